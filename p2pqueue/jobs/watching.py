"""How does a program wait for a job, and see how far it is?"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from p2pqueue.errors import NoSuchJob, ResultTimeout
from p2pqueue.jobs import rows
from p2pqueue.jobs.follower import Seen, look
from p2pqueue.jobs.outcome import Outcome, read_outcome

if TYPE_CHECKING:
    import sqlite3

    from p2pqueue.jobs.access import Access

LOOK_AGAIN: Final = 10.0  # seconds after which a waiter looks for itself, whatever it was told or not told


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is.

    :ivar fraction: from 0 to 1.
    :ivar phase: what it is at, in the handler's words.
    :ivar device: label of the device that runs it.
    :ivar status: as `Job.status`.
    """

    fraction: float
    phase: str | None
    device: str | None
    status: str


def wait_for_end(access: Access, job_id: str, *, timeout: float | None) -> Outcome:
    """Blocks until the job has ended. Raises `ResultTimeout`, and `NoSuchJob` where it is deleted."""
    deadline = None if timeout is None else time.monotonic() + timeout
    outcome = access.read(lambda connection: read_outcome(connection, job_id))
    if outcome is not None:
        return outcome
    news: queue.SimpleQueue[Seen] = queue.SimpleQueue()
    with access.follower.following(job_id, news.put):
        while True:
            outcome = access.read(lambda connection: read_outcome(connection, job_id))
            if outcome is not None:
                return outcome
            _wait_for_final(news, deadline, access, job_id)


def _wait_for_final(news: queue.SimpleQueue[Seen], deadline: float | None, access: Access, job_id: str) -> None:
    look_at = time.monotonic() + LOOK_AGAIN
    while True:
        left = look_at - time.monotonic()
        if deadline is not None:
            left = min(left, deadline - time.monotonic())
        try:
            if news.get(timeout=max(0.0, left)).is_final:
                return
        except queue.Empty:
            if deadline is not None and time.monotonic() >= deadline:
                raise _too_late(access, job_id) from None
            return


async def await_end(access: Access, job_id: str, *, timeout: float | None) -> Outcome:
    """As `wait_for_end`, without blocking the loop."""
    outcome = await access.aread(lambda connection: read_outcome(connection, job_id))
    if outcome is not None:
        return outcome
    news = _AsyncNews()
    try:
        async with asyncio.timeout(timeout):
            with access.follower.following(job_id, news.tell):
                while True:
                    outcome = await access.aread(lambda connection: read_outcome(connection, job_id))
                    if outcome is not None:
                        return outcome
                    await news.final(LOOK_AGAIN)
    except TimeoutError:
        raise await asyncio.to_thread(_too_late, access, job_id) from None


class Watch:
    """The progress of one job, for `for` and `async for`. Raises `NoSuchJob` where there is no such job."""

    def __init__(self, access: Access, job_id: str) -> None:
        self._access = access
        self._job_id = job_id

    def __iter__(self) -> Iterator[Progress]:
        """Blocks between the steps."""
        news: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        view = _View()
        with self._access.follower.following(self._job_id, news.put):
            seen = self._access.read(self._first)
            while True:
                progress = view.take(seen)
                if progress is not None:
                    yield progress
                if seen.is_final:
                    return
                seen = self._next(news)

    async def __aiter__(self) -> AsyncIterator[Progress]:
        """Lets the loop go on between the steps."""
        news = _AsyncNews()
        view = _View()
        with self._access.follower.following(self._job_id, news.tell):
            seen = await self._access.aread(self._first)
            while True:
                progress = view.take(seen)
                if progress is not None:
                    yield progress
                if seen.is_final:
                    return
                told = await news.next(LOOK_AGAIN)
                seen = await self._access.aread(self._look) if told is None else told

    def _next(self, news: queue.SimpleQueue[Seen]) -> Seen:
        try:
            seen = news.get(timeout=LOOK_AGAIN)
            while not seen.is_final and not news.empty():
                seen = news.get()
        except queue.Empty:
            return self._access.read(self._look)
        return seen

    def _look(self, connection: sqlite3.Connection) -> Seen:
        return look(connection, [self._job_id])[self._job_id]

    def _first(self, connection: sqlite3.Connection) -> Seen:
        seen = self._look(connection)
        if seen.status is None:
            raise NoSuchJob(f"job {self._job_id} was deleted, or dropped after its time")
        return seen


class _View:
    """What one watcher has been shown: the same thing twice, and what a row says late, are left out.

    A row lags behind the node's word: by up to two seconds about progress, by a moment about the claim itself.
    """

    def __init__(self) -> None:
        self._shown: Progress | None = None
        self._by_node = False  # whether a node's word was shown last
        self._row: Seen | None = None

    def take(self, seen: Seen) -> Progress | None:
        """The progress to show, if any."""
        if seen.status is None:
            return None
        progress = Progress(seen.fraction, seen.phase, seen.device, seen.status)
        late = self._is_late(seen)
        if seen.attempt is not None:
            self._row = seen
        if late or progress == self._shown:
            return None
        self._shown, self._by_node = progress, seen.attempt is None
        return progress

    def _is_late(self, seen: Seen) -> bool:
        shown, row = self._shown, self._row
        if not self._by_node or shown is None or shown.status != "running" or seen.attempt is None:
            return False
        waited = row is not None and row.status != "running"
        if seen.status == "queued":
            return row is None or (waited and seen.attempt == row.attempt)
        generation, claim = seen.attempt if row is None or row.attempt is None else row.attempt
        same_run = seen.attempt == (generation, claim + 1 if waited else claim)
        return seen.status == "running" and same_run and seen.fraction <= shown.fraction


class _AsyncNews:
    """Takes what a thread tells, for a coroutine; steps that were not taken yet become one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._newest: Seen | None = None

    def tell(self, seen: Seen) -> None:
        """Called from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._take, seen)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more

    def _take(self, seen: Seen) -> None:
        self._newest = seen
        self._event.set()

    async def next(self, patience: float) -> Seen | None:
        """The newest state that was not taken yet; None where nothing is told for `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                await self._event.wait()
        except TimeoutError:
            return None
        self._event.clear()
        return self._newest

    async def final(self, patience: float) -> None:
        """Returns when the job is said to have ended, or after `patience` seconds without news."""
        while (seen := await self.next(patience)) is not None and not seen.is_final:
            pass


def _too_late(access: Access, job_id: str) -> ResultTimeout:
    row = access.read(lambda connection: rows.get(connection, job_id))
    status = "gone" if row is None else f"{row.status}, {row.progress:.0%}"
    return ResultTimeout(f"job {job_id} has not ended in the time allowed ({status}); it goes on", job_id=job_id)
