"""Looking for inputs that have no manifest yet costs nothing where there are none, however many jobs wait."""

from __future__ import annotations

import sqlite3

from p2pqueue.jobs import ledger
from p2pqueue.workers.sealer import find_unsealed
from tests.unit.jobs.desk import Desk, new_job, original


def steps(connection: sqlite3.Connection) -> int:
    """How many steps SQLite takes for one look, in tens."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 10)
    find_unsealed(connection)
    connection.set_progress_handler(None, 0)
    return taken


def test_a_look_takes_no_longer_where_many_jobs_wait() -> None:
    desk = Desk()
    with_file = desk.enqueue(files=[original()])
    before = desk.replica.read(steps)
    desk.write(lambda writer: [ledger.enqueue(writer, new_job("work")) for _ in range(300)])
    assert [each.job_id for each in desk.replica.read(find_unsealed)] == [with_file]
    assert desk.replica.read(steps) <= before + 1
