"""What can a program do with a job that it has enqueued or found?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from p2pqueue.errors import NoSuchJob
from p2pqueue.jobs import ledger, rows
from p2pqueue.jobs.backoff import seconds
from p2pqueue.jobs.outcome import Outcome
from p2pqueue.jobs.waiting import moment
from p2pqueue.jobs.watching import Progress as Progress
from p2pqueue.jobs.watching import Watch, await_end, wait_for_end

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access
    from p2pqueue.replica.writer import Writer

R_co = TypeVar("R_co", covariant=True)

Timeout = float | timedelta | None


@dataclass(frozen=True)
class Attempt:
    """One run of a job.

    :ivar number: 1 for the first; one that was given back and the one after it have the same.
    :ivar status: one of running, succeeded, failed, cancelled, skipped, released, lost.
    :ivar device: label of the device that ran it.
    :ivar started_at: when it was claimed.
    :ivar ended_at: when it ended; None while it runs.
    :ivar duration: seconds that it took, where that is known.
    :ivar error: why it did not succeed; None where it did.
    :ivar traceback: the handler's, where it raised.
    :ivar log_tail: the end of its log, kept where it failed.
    """

    number: int
    status: str
    device: str | None
    started_at: datetime
    ended_at: datetime | None
    duration: float | None  # seconds
    error: str | None
    traceback: str | None
    log_tail: str | None


class Job(Generic[R_co]):
    """A job: one launch of a task. `Job[int]` is one whose result is an int.

    A handle holds nothing but the id: each property reads the job as it is now. `await job` gives its result.

    :ivar id: its id.
    """

    def __init__(self, access: Access, job_id: str) -> None:
        self._access = access
        self.id = job_id

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- looking ----------------------------------------------------------------------------------------------

    @property
    def row(self) -> rows.JobRow:
        """All that is known of the job, as the command line and the dashboard show it. Raises `NoSuchJob`."""
        row = self._access.read(lambda connection: rows.get(connection, self.id))
        if row is None:
            raise NoSuchJob(f"job {self.id} was deleted, or dropped after its time")
        return row

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.row.task

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.row.queue

    @property
    def title(self) -> str:
        """Its title: the one that was given, else the name of its task."""
        row = self.row
        return row.title or row.task

    @property
    def priority(self) -> int:
        """Its priority; higher runs first."""
        return self.row.priority

    @property
    def status(self) -> str:
        """One of queued, running, paused, succeeded, failed, cancelled."""
        return self.row.status

    @property
    def progress(self) -> float:
        """How far it is, from 0 to 1."""
        return self.row.progress

    @property
    def phase(self) -> str | None:
        """What it is at, in the handler's words."""
        return self.row.phase

    @property
    def device(self) -> str | None:
        """The label of the device that runs it, or ran it last."""
        return self.row.worker_label

    @property
    def error(self) -> str | None:
        """Why it failed, or why its last attempt did."""
        return self.row.error

    @property
    def created_at(self) -> datetime:
        """When it was enqueued."""
        return moment(self.row.created_at)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended, if it has."""
        at = self.row.finished_at
        return None if at is None else moment(at)

    @property
    def done(self) -> bool:
        """Says whether it has ended, in whichever way."""
        return self.row.ended

    @property
    def attempts(self) -> list[Attempt]:
        """Its runs, the first first."""
        return [_attempt(run) for run in self._access.read(lambda connection: rows.runs_of(connection, self.id))]

    # -- waiting ----------------------------------------------------------------------------------------------

    def result(self, timeout: Timeout = None) -> R_co:
        """Waits for the end and gives what the handler returned; a `File` where it returned one.

        `timeout` is in seconds or a `timedelta`; default without limit. Raises `JobFailed`, `JobCancelled`,
        `ResultTimeout`, and `NoSuchJob` where somebody deletes the job.
        """
        return self._value(wait_for_end(self._access, self.id, timeout=_seconds(timeout)))

    async def aresult(self, timeout: Timeout = None) -> R_co:
        """As `result`, without blocking the loop."""
        return self._value(await await_end(self._access, self.id, timeout=_seconds(timeout)))

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.aresult().__await__()

    def watch(self) -> Watch:
        """Its progress as it goes, until it ends, as `Progress`: for `for` and `async for` alike.

        Steps that come faster than they are taken become one; the last one tells how the job ended.
        """
        return Watch(self._access, self.id)

    # -- acting -----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ends the job wherever it is; a running handler is stopped. Raises `WrongState` where it has ended already."""
        self._access.write(lambda writer: ledger.cancel(writer, self.id))

    def pause(self) -> None:
        """Keeps the job from running; a running handler is stopped and its job goes on later from its checkpoint."""
        self._access.write(lambda writer: ledger.hold(writer, self.id))

    def resume(self) -> None:
        """Lets a paused job run."""
        self._access.write(lambda writer: ledger.resume(writer, self.id))

    def retry(self, *, fresh: bool = False) -> Job[R_co]:
        """Makes a job that has ended run again, with all its attempts; from its checkpoint unless `fresh`.

        Gives its handle: another job where this one ended so long ago that other devices may have dropped it.
        """
        return Job(self._access, self._access.write(self._retrying(fresh)))

    def delete(self) -> None:
        """Deletes the job on every device; a running handler is stopped."""
        self._access.write(lambda writer: ledger.delete(writer, self.id))

    async def acancel(self) -> None:
        """As `cancel`, without blocking the loop."""
        await self._access.awrite(lambda writer: ledger.cancel(writer, self.id))

    async def apause(self) -> None:
        """As `pause`, without blocking the loop."""
        await self._access.awrite(lambda writer: ledger.hold(writer, self.id))

    async def aresume(self) -> None:
        """As `resume`, without blocking the loop."""
        await self._access.awrite(lambda writer: ledger.resume(writer, self.id))

    async def aretry(self, *, fresh: bool = False) -> Job[R_co]:
        """As `retry`, without blocking the loop."""
        return Job(self._access, await self._access.awrite(await asyncio.to_thread(self._retrying, fresh)))

    async def adelete(self) -> None:
        """As `delete`, without blocking the loop."""
        await self._access.awrite(lambda writer: ledger.delete(writer, self.id))

    async def arow(self) -> rows.JobRow:
        """As `row`, without blocking the loop."""
        return await asyncio.to_thread(lambda: self.row)

    def _retrying(self, fresh: bool) -> Callable[[Writer], str]:
        retention_ms = self._access.retention_ms
        return lambda writer: ledger.retry(writer, self.id, fresh=fresh, retention_ms=retention_ms)

    def _value(self, outcome: Outcome) -> R_co:
        return cast("R_co", outcome.value(self._access))


def _attempt(run: rows.RunRow) -> Attempt:
    return Attempt(
        number=run.attempt,
        status=run.status,
        device=run.worker_label,
        started_at=moment(run.started_at),
        ended_at=None if run.ended_at is None else moment(run.ended_at),
        duration=run.duration,
        error=run.error,
        traceback=run.traceback,
        log_tail=run.log_tail,
    )


def _seconds(timeout: Timeout) -> float | None:
    return None if timeout is None else seconds(timeout)
