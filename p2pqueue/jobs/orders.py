"""Which jobs shall stop, by what was written here, although they may run on another device?

Whoever runs such a job reads it in its row. Where many rows are on their way that row may take long to come, so the
same is said by a signal: an order names the job, what is to be done and the generation that is meant, for a retry
makes what was ordered before it void.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, Literal, NamedTuple

Action = Literal["cancel", "pause", "delete"]

MOST: Final = 256  # orders at once; of more jobs than that, those that nobody is known to run wait for their rows
_ACTIONS: Final = ("cancel", "pause", "delete")
_ID_LIMIT: Final = 64  # characters
_GIVEN = """SELECT DISTINCT changes.key,
        CASE WHEN jobs.live IS NOT 1 THEN 'delete' WHEN jobs.status = 'cancelled' THEN 'cancel' ELSE 'pause' END,
        coalesce(jobs.state_generation, jobs.spec_generation)
    FROM changes INDEXED BY changes_by_author JOIN jobs ON jobs.id = changes.key
    WHERE changes.author = ? AND changes.seq > ? AND changes.seq <= ? AND changes.tbl = 'jobs'
        AND changes.register IN ('state', 'hold', 'life') AND (jobs.live IS NOT 1 OR jobs.status IN ('cancelled', 'paused'))
    ORDER BY jobs.worker_id IS NULL LIMIT ?"""


class Order(NamedTuple):
    """What is to be done with a job in that generation."""

    job_id: str
    action: Action
    generation: int


def given(connection: sqlite3.Connection, author: bytes, *, after: int, upto: int) -> list[Order]:
    """The orders that an author gave by its writes with these numbers, as far as they stand."""
    return [Order(*row) for row in connection.execute(_GIVEN, (author, after, upto, MOST))]


def read_order(values: Any) -> Order | None:
    """An order as a signal tells it; None where it is none."""
    if not isinstance(values, (list, tuple)) or len(values) != len(Order._fields):
        return None
    job_id, action, generation = values
    if not (isinstance(job_id, str) and len(job_id) <= _ID_LIMIT and action in _ACTIONS):
        return None
    return Order(job_id, action, generation) if type(generation) is int and 0 <= generation < 1 << 40 else None
