"""How does a handler run in the thread of the test, where in life a worker process would run it?

It stands where the pool of worker processes stands: an assignment comes in, an outcome goes out. What calls the handler
and reads its end is the code of the worker process itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

from p2pqueue.clock import Wall
from p2pqueue.errors import Cancelled
from p2pqueue.workers.children.context import JobContext, running
from p2pqueue.workers.children.handler import call
from p2pqueue.workers.children.interrupt import Interrupt
from p2pqueue.workers.children.protocol import Assignment, Failed, Outcome, Stopped, TimedOut, Why
from p2pqueue.workers.running.attempt import Hooks
from p2pqueue.workers.running.log import AttemptLog

if TYPE_CHECKING:
    from p2pqueue.jobs.task import Task
    from p2pqueue.payload.shelf import Shelf


class Here:
    """The place of worker processes: handlers are called by whoever serves (`serve`)."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], wall: Wall, shelf: Shelf) -> None:
        self._tasks = tasks
        self._shelf = shelf
        self._wall = wall
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._running: dict[str, _Call] = {}
        self.interrupted = False  # somebody pressed Ctrl-C while a handler ran

    async def run(
        self, assignment: Assignment, *, on_progress: Callable[[float, str | None], object],
        on_checkpoint: Callable[[bytes], Awaitable[object]], on_request: Callable[[str, dict[str, Any]], Awaitable[Any]],
    ) -> Outcome:  # fmt: skip
        """Runs an assignment; gives what became of its handler."""
        hooks = Hooks(on_progress, on_checkpoint, on_request)
        done = _Call(self._tasks[assignment.task].function, assignment, hooks, self._wall, self._shelf)
        self._running[assignment.key] = done
        try:
            self._calls.put(done)
            return await done.outcome
        finally:
            done.end_clock()
            del self._running[assignment.key]

    def stop(self, key: str, why: Why) -> None:
        """Stops a run: its outcome will be `Stopped(why)`."""
        found = self._running.get(key)
        if found is not None:
            found.stop(Stopped(why))

    def serve(self, until: Future[Any]) -> None:
        """Calls, in this thread, the handlers that are asked for until something is done."""
        until.add_done_callback(lambda _: self._calls.put(None))
        while (asked := self._calls.get()) is not None:
            asked.perform()
            self.interrupted = self.interrupted or asked.was_interrupted


class _Call:
    """One call of a handler, and what carries its words to the worker."""

    def __init__(self, function: Callable[..., Any], assignment: Assignment, hooks: Hooks, wall: Wall, shelf: Shelf) -> None:
        self._function = function
        self._shelf = shelf
        self._assignment = assignment
        self._hooks = hooks
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._interrupt = _Stop()
        self._log = AttemptLog(assignment.log_file)
        self.was_interrupted = False
        self._cause: Outcome | None = None  # why it was stopped; the first cause stays
        self._began = self._moved = (time.monotonic(), wall())
        self._timer: asyncio.TimerHandle | None = None
        self._keep_time()

    def perform(self) -> None:
        """Calls the handler, in the thread of the caller."""
        given = self._assignment
        context = JobContext(
            self, job_id=given.job_id, task=given.task, attempt=given.attempt, workdir=given.workdir, timeout=given.deadline,
            resume_from=given.resume_from,
        )  # fmt: skip
        try:
            with running(context, whole_process=True), self._listening():
                outcome = call(self._function, given, self._interrupt, self._shelf)
            self.was_interrupted = isinstance(outcome, Failed) and outcome.kinds[:1] == ("KeyboardInterrupt",)
            self._look_at_clocks()
            outcome = self._cause or outcome
            self._log.close()
            if isinstance(outcome, Failed | TimedOut) and outcome.log_tail is None:
                outcome = outcome.changed(log_tail=self._log.tail())
        except BaseException as error:  # noqa: BLE001 - the worker is told of it, else it would wait for ever
            self._loop.call_soon_threadsafe(self.outcome.set_exception, error)
        else:
            self._loop.call_soon_threadsafe(self.outcome.set_result, outcome)

    def stop(self, cause: Outcome) -> None:
        """Stops it: one that awaits at once, another with its next word to its worker."""
        if self._cause is None:
            self._cause = cause
            self._interrupt.stop()

    def end_clock(self) -> None:
        """Looks at no clock any more."""
        if self._timer is not None:
            self._timer.cancel()

    # -- the channel of the job ---------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        self._look_at_clocks()
        return self._cause is not None

    def progress(self, fraction: float, phase: str | None) -> None:
        self._heed()
        self._hooks.on_progress(fraction, phase)

    def checkpoint(self, state: bytes) -> None:
        self._heed()
        self._wait_for(self._hooks.on_checkpoint(state))

    def request(self, kind: str, fields: dict[str, Any]) -> Any:
        self._heed()
        return self._wait_for(self._hooks.on_request(kind, fields))

    def log(self, data: bytes) -> None:
        self._log.write(data)

    def _wait_for(self, answering: Awaitable[Any]) -> Any:
        async def answer() -> Any:
            return await answering

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()

    def _heed(self) -> None:
        """Notes that the handler moves; raises `Cancelled`, once, where it has to stop."""
        if self.cancelled and not self._interrupt.delivered:
            self._interrupt.delivered = True
            raise Cancelled("this job was stopped")
        self._moved = (time.monotonic(), self._wall())

    # -- limits -------------------------------------------------------------------------------------------------------

    def _keep_time(self) -> None:
        """Looks at the clocks again and again, in the loop, for a handler that says nothing."""
        self._look_at_clocks()
        limits = ((self._assignment.deadline, self._began), (self._assignment.stall_timeout, self._moved))
        left = [limit - self._since(moment) for limit, moment in limits if limit is not None]
        if left and self._cause is None:
            self._timer = self._loop.call_later(max(0.001, min(left)), self._keep_time)

    def _look_at_clocks(self) -> None:
        deadline, stall = self._assignment.deadline, self._assignment.stall_timeout
        if deadline is not None and self._since(self._began) >= deadline:
            self.stop(TimedOut(f"it took longer than its timeout of {deadline:g} s"))
        elif stall is not None and self._since(self._moved) >= stall:
            self.stop(TimedOut(f"it made no progress for {stall:g} s"))

    def _since(self, moment: tuple[float, int]) -> float:
        """Seconds since then, by the clock of the test or by that of the system, whichever went further."""
        return max(time.monotonic() - moment[0], (self._wall() - moment[1]) / 1000)

    # -- what is printed ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Lets what is printed go to the log as well."""
        with contextlib.redirect_stdout(_Tee(sys.stdout, self._log)), contextlib.redirect_stderr(_Tee(sys.stderr, self._log)):
            yield


class _Stop(Interrupt):
    """The stop signal of a handler that runs in a thread of the test: no signal of the system, which would meet the test."""

    def stop(self) -> None:
        self.stopping = True
        softly = self._deliver_softly
        if softly is not None and not self.delivered:
            self.delivered = True
            softly()


class _Tee(io.TextIOBase):
    """A stream that goes on to another one and to a log."""

    def __init__(self, stream: TextIO, log: AttemptLog) -> None:
        self._stream = stream
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._log.write(text.encode("utf-8", "backslashreplace"))
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()
