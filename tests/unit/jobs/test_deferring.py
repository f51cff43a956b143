"""A job that is enqueued alone is deferred, and is a job like any other for whoever looks."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.home import Home
from p2pqueue.jobs import deferring
from p2pqueue.jobs.deferring import Deferrer
from p2pqueue.jobs.opening import open_reader
from p2pqueue.jobs.queue import Queue
from tests.unit.jobs.desk import Desk, new_job

COLUMNS = "task, queue, args, title, priority, max_attempts, timeout, owner, enqueued_by, created_at, status, live, ready IS NULL"


def row(desk: Desk, job_id: str) -> tuple[object, ...]:
    made: tuple[object, ...] = desk.replica.read(
        lambda connection: connection.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    )
    return made


@pytest.mark.parametrize("wanted", [{}, {"title": "A film", "priority": 3}, {"queue": "films", "max_attempts": 1, "timeout": 2.5}])
def test_its_row_is_that_of_one_made_at_once(wanted: dict[str, object]) -> None:
    desk = Desk()
    change, made = Deferrer(desk.me, desk.clock).defer(new_job("work", **wanted))
    desk.write(lambda writer: deferring.carry_out(writer, [change]))
    assert row(desk, made.id) == row(desk, desk.enqueue("work", **wanted))


def test_ids_of_one_program_are_in_the_order_of_their_making() -> None:
    deferrer = Deferrer("device", lambda: 1_700_000_000_000)
    ids = [deferrer.defer(new_job("work"))[1].id for _ in range(100)]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("change", [wire.pack([2, "of a later version"]), wire.pack("no list"), b"\xc1"])
def test_a_form_that_is_not_known_is_told(change: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Desk().write(lambda writer: deferring.carry_out(writer, [change]))


def test_a_job_can_be_acted_on_at_once(queue: Queue) -> None:
    double = queue.tasks["double"]
    jobs = [double.enqueue(number) for number in range(3)]
    jobs[1].cancel()
    assert [job.status for job in jobs] == ["queued", "cancelled", "queued"]
    assert queue.counts()["queued"] == 2


def test_one_enqueue_is_one_row_of_one_local_table(queue: Queue, home: Home) -> None:
    queue.tasks["double"].enqueue(1)
    with closing(sqlite3.connect(home.replica_file)) as connection:
        assert connection.execute("SELECT count(*) FROM deferred").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    assert queue.counts()["queued"] == 1


def test_a_reader_without_keys_sees_it(queue: Queue, home: Home) -> None:
    job = queue.tasks["double"].enqueue(1)
    with closing(open_reader(home)) as connection:
        assert connection.execute("SELECT id FROM jobs").fetchall() == [(job.id,)]
