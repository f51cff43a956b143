"""How do jobs stand, inside a transaction that will change them?"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from p2pqueue.jobs.job import JobState
from p2pqueue.jobs.ledger import STATE_COLUMNS

_SELECT = f"SELECT id, {STATE_COLUMNS} FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND live = 1 AND status IS NOT NULL"


def states_of(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, JobState]:
    """The states of those of these jobs that are there and not deleted."""
    return {row[0]: JobState(*row[1:]) for row in connection.execute(_SELECT, (json.dumps(list(ids)),))}
