"""A replica with its jobs and a worker by hand, on a clock that moves only when it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from p2pqueue import wire
from p2pqueue.jobs import ledger, rows
from p2pqueue.jobs.begun import Begun
from p2pqueue.jobs.ledger import NewFile, NewJob
from p2pqueue.jobs.local import LOCAL_TABLES
from p2pqueue.jobs.tables import TABLES
from p2pqueue.jobs.waiting import Ability
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.writer import Writer
from p2pqueue.workers import recovery
from p2pqueue.workers import settle as transactions
from p2pqueue.workers.claimed import ClaimedJob, Ending, How, Taker
from p2pqueue.workers.claiming import begun
from tests.unit.replica.kit import NOW, Clock, Space

T = TypeVar("T")
NO_ARGS = wire.pack({})
SPACE = "space"


@dataclass
class Desk:
    """What a test does with jobs: each method is one transaction."""

    clock: Clock = field(default_factory=Clock)
    tasks: tuple[str, ...] = ("work",)
    ability: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device = Space().device("here")
        self.replica = Replica.open(
            ":memory:", tables=TABLES, identity=device, wall=self.clock, machine="machine", local_tables=LOCAL_TABLES
        )
        self.me = device.device_id

    # -- asking -----------------------------------------------------------------------------------------------

    def write(self, fn: Callable[[Writer], T]) -> T:
        return self.replica.write(fn)

    def enqueue(self, task: str = "work", **wanted: Any) -> str:
        return self.write(lambda writer: ledger.enqueue(writer, new_job(task, **wanted))).id

    def cancel(self, job_id: str) -> None:
        self.write(lambda writer: ledger.cancel(writer, job_id))

    def hold(self, job_id: str) -> None:
        self.write(lambda writer: ledger.hold(writer, job_id))

    def resume(self, job_id: str) -> None:
        self.write(lambda writer: ledger.resume(writer, job_id))

    def retry(self, job_id: str, **how: Any) -> str:
        return self.write(lambda writer: ledger.retry(writer, job_id, **how))

    def delete(self, job_id: str) -> None:
        self.write(lambda writer: ledger.delete(writer, job_id))

    # -- looking ----------------------------------------------------------------------------------------------

    def row(self, job_id: str) -> rows.JobRow:
        found = self.find(job_id)
        assert found is not None, f"there is no job {job_id}"
        return found

    def find(self, job_id: str) -> rows.JobRow | None:
        return self.replica.read(lambda connection: rows.get(connection, job_id))

    def status(self, job_id: str) -> str:
        return self.row(job_id).status

    def runs(self, job_id: str) -> list[rows.RunRow]:
        return self.replica.read(lambda connection: rows.runs_of(connection, job_id))

    def run_words(self, job_id: str) -> list[str]:
        return [run.status for run in self.runs(job_id)]

    def why(self, job_id: str, *, node_running: bool = True) -> str | None:
        row = self.row(job_id)
        return self.replica.read(lambda connection: rows.why(connection, row, node_running=node_running, now=self.clock.now))

    def files(self, job_id: str) -> list[NewFile]:
        return self.replica.read(lambda connection: ledger.files_of(connection, job_id))

    def counts(self) -> dict[str, int]:
        return self.replica.read(rows.counts)

    def recount(self) -> dict[str, int]:
        """What the counters should say."""
        query = "SELECT status FROM jobs WHERE live = 1 AND status IS NOT NULL"
        found = self.replica.read(lambda connection: [status for (status,) in connection.execute(query)])
        return dict.fromkeys(rows.STATUSES, 0) | Counter(found)

    def next_due(self) -> int | None:
        return self.replica.read(transactions.next_due)

    # -- working ----------------------------------------------------------------------------------------------

    @property
    def taker(self) -> Taker:
        ability = Ability("here", tasks=frozenset(self.tasks), **self.ability)
        return Taker(self.me, "here", ability, self.limits)

    def settle(
        self, *endings: Ending, slots: int = 0, skip: frozenset[str] = frozenset(), begun: tuple[Begun, ...] = ()
    ) -> list[ClaimedJob]:  # fmt: skip
        taker = replace(self.taker, skip=skip, begun=begun)
        return self.write(lambda writer: transactions.settle(writer, endings, taker, slots))

    def claim(self, slots: int = 1) -> list[ClaimedJob]:
        """Claims jobs, and writes at once that they run, as a node does a moment later."""
        jobs = self.settle(slots=slots)
        self.record(*jobs)
        return jobs

    def claim_one(self) -> ClaimedJob:
        (job,) = self.claim()
        return job

    def record(self, *jobs: ClaimedJob) -> None:
        claims = [begun.begun(job, self.replica.author) for job in jobs]
        self.write(lambda writer: begun.write_begun(writer, claims))

    def end(self, job: ClaimedJob, how: How = "succeeded", **more: Any) -> None:
        self.settle(self.ending(job, how, **more))

    def ending(self, job: ClaimedJob, how: How = "succeeded", **more: Any) -> Ending:
        """How an attempt ended; a first one whose row may tell nothing of it yet, whatever it tells in truth."""
        if how in ("failed", "retry", "crashed"):
            more = {"error": "boom"} | more
        return Ending(job, how, author=self.replica.author, **{"unwritten": job.first} | more)

    def run(self, how: How = "succeeded", **more: Any) -> str:
        """Claims the most urgent job and ends it; gives its id."""
        job = self.claim_one()
        self.end(job, how, **more)
        return job.job_id

    def run_after_enqueue(self, how: How = "succeeded", **more: Any) -> str:
        self.enqueue()
        return self.run(how, **more)

    def checkpoint(self, job: ClaimedJob, state: bytes) -> bool:
        return self.write(lambda writer: transactions.checkpoint(writer, job, state))

    def beat(self, job: ClaimedJob, progress: float, phase: str = "at it") -> None:
        self.write(lambda writer: transactions.beat(writer, [(job.holder, job.job_id, progress, phase)]))

    def recover(self, **limits: int) -> list[str]:
        return self.write(lambda writer: recovery.recover(writer, limits))

    def fail_unknown(self, older_than_ms: int, known: tuple[str, ...] | None = None) -> int:
        tasks = self.tasks if known is None else known
        return self.write(lambda writer: recovery.fail_unknown(writer, tasks, older_than_ms))

    def wait(self, ms: int) -> None:
        self.clock.now += ms


def new_job(task: str = "work", **wanted: Any) -> NewJob:
    """A job without arguments, in the one space of these tests."""
    return NewJob(**({"task": task, "args": NO_ARGS, "space": SPACE} | wanted))


def original(parameter: str = "file", path: str = "/there", **more: Any) -> NewFile:
    """A large file, served from where it lies."""
    return replace(NewFile(parameter, "there", 100, path, mtime_ns=7), **more)


def shared(parameter: str = "file", capability: str = "p2pq1-shared") -> NewFile:
    """A file that was shared already."""
    return NewFile(parameter, "shared", 10, capability=capability)


__all__ = ["NOW", "Clock", "Desk", "new_job", "original", "shared"]
