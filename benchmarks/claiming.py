"""How long does a worker look for the next job, when a million lie behind it and thousands stand in its way?

A look is made as a worker makes it: within a transaction. Counted is the time on the processor, as a select waits for
nothing and what other programs take must not show; and of three looks at the same state the shortest. A machine's
timer interrupts one in fifty stretches of that length, by more than a look takes: without that, the p99 is the
machine's and not the select's (an empty loop of 13 us has one of 40). Before each triple the job in front is claimed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.contender import make_home
from p2pqueue import wire
from p2pqueue.identity import keys
from p2pqueue.jobs.job import JobState, Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.jobs.opening import open_replica
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.writer import Put, Writer
from p2pqueue.workers.claiming.scan import CANDIDATES

BATCH = 1000
DAY_MS = 86_400_000
LOOKS = 2_000
WARMING = 200  # looks that fill the connection's cache, as a worker's has long been


@dataclass(frozen=True)
class Sizes:
    """How many jobs of each kind there are; the first two from the start, the others in the way later."""

    finished: int = 1_000_000
    queued: int = 100_000
    leased: int = 5_000
    future: int = 8_000


def figures(folder: Path, targets: Mapping[str, Target], *, sizes: Sizes) -> list[Figure]:
    """The rows about claiming: before and after the leased and future jobs are put ahead of the others."""
    home = make_home(folder / "home")
    replica = open_replica(home, keys.load(home))
    try:
        _fill(replica, sizes.finished, status="succeeded")
        _fill(replica, sizes.queued)
        alone = _look(home.replica_file)
        _fill(replica, sizes.leased, status="running", priority=9)
        _fill(replica, sizes.future, run_in=DAY_MS, priority=9)
        hindered = _look(home.replica_file)
    finally:
        replica.close()
    return [
        _figure("claim select p99, 1 M finished + 100 k queued", alone, targets),
        _figure("claim select p99, + 5,000 leased + 8,000 future", hindered, targets),
    ]


def _figure(name: str, looks: Sample, targets: Mapping[str, Target]) -> Figure:
    return Figure(name, looks.percentile(0.99), "us", targets.get(name, Target()), spread=looks.spread)


def _look(database: Path) -> Sample:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    times = []
    for _ in range(WARMING + LOOKS):
        looks = [_look_once(connection) for _ in range(3)]
        times.append(min(took for took, _ in looks))
        connection.execute("UPDATE jobs SET status = 'running', ready = 0 WHERE id = ?", (looks[0][1],))
    connection.execute("ROLLBACK")
    connection.close()
    return Sample.of(times[WARMING:])


def _look_once(connection: sqlite3.Connection) -> tuple[float, str]:
    """Microseconds of one look, and the job that it found."""
    start = time.thread_time_ns()
    cursor = connection.execute(CANDIDATES, (0,))
    row = cursor.fetchone()
    cursor.close()
    return (time.thread_time_ns() - start) / 1000, row[0]


def _fill(replica: Replica, count: int, *, status: str | None = None, run_in: int = 0, priority: int = 0) -> None:
    for size in _batches(count):
        replica.write(partial(_put, size, status, run_in, priority))


def _put(count: int, status: str | None, run_in: int, priority: int, writer: Writer) -> None:
    writer.put_many("jobs", list(_puts(writer, count, status, run_in, priority)))


def _batches(count: int) -> Iterator[int]:
    for start in range(0, count, BATCH):
        yield min(BATCH, count - start)


def _puts(writer: Writer, count: int, status: str | None, run_in: int, priority: int) -> Iterator[Put]:
    nothing = wire.pack({})
    run_at = writer.now + run_in if run_in else None
    for _ in range(count):
        job_id = writer.new_id()
        yield Put(
            job_id,
            "spec",
            ("bench", "noop", nothing, None, None, None, None, None, run_at, None, None, None, None, None,
             writer.device_id, writer.device_id, writer.now, nothing),
            generation=0,
        )  # fmt: skip
        if priority:
            yield Put(job_id, "tune", (None, priority), generation=0)
        if status is not None:
            ended = status == "succeeded"
            state = JobState(0, status, 1, 1, writer.device_id, writer.label, writer.now, writer.now if ended else None)
            yield put_state(job_id, Transition(state))
