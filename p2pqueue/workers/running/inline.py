"""How does an inline task run: an `async def` in the node's own loop?

Fast to start and cheap, and for handlers that wait rather than work. One that blocks holds up the whole node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import Cancelled, MisuseError, Retry
from p2pqueue.home import Home
from p2pqueue.jobs.arguments import decode
from p2pqueue.workers.children.context import Continue, JobContext, enter, leave
from p2pqueue.workers.children.handler import failure, misfit, open_files, reported
from p2pqueue.workers.children.protocol import Continued, Failed, Outcome, RetryLater, Stopped, Succeeded, TaskDescription, TimedOut, Why
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.inputs import Inputs
from p2pqueue.workers.running.log import AttemptLog
from p2pqueue.workers.running.preparing import Preparing
from p2pqueue.workers.running.report import Report
from p2pqueue.workers.running.workdir import folder_of, remove

if TYPE_CHECKING:
    from p2pqueue.jobs.queue import Queue

Function = Callable[..., Coroutine[Any, Any, Any]]

_log = logging.getLogger(__name__)


class InlineRunner:
    """Runs inline tasks; `functions` are their handlers by name."""

    def __init__(self, functions: Mapping[str, Function], tasks: Mapping[str, TaskDescription], home: Home, inputs: Inputs) -> None:
        self._functions = functions
        self._tasks = tasks
        self._home = home
        self._inputs = inputs
        self._preparing = Preparing(inputs)
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._why: dict[str, Why] = {}

    async def run(self, job: ClaimedJob, report: Report) -> tuple[Outcome, str | None]:
        """Runs the job to its end; gives the outcome and the manifest of its outputs. Raises `Unreachable`."""
        grants = await self._preparing.grants(job, report) if job.has_input else None
        if report.stopped is not None:
            return Stopped(report.stopped), None
        task, key, place = asyncio.current_task(), job.key, _Place(report, job, self._why, self._home)
        assert task is not None
        timeout = self._timeout(job)
        limit = None if timeout is None else asyncio.timeout(timeout)
        context = JobContext(
            place, job_id=job.job_id, task=job.task, attempt=job.attempt, workdir=place, timeout=timeout, resume_from=job.checkpoint
        )
        entered = enter(context)
        self._running[key] = task
        try:
            files = open_files(grants, place, self._inputs.shelf) if grants else {}
            called = self._functions[job.task](**decode(job.args, files))
            if limit is None:
                outcome = reported(await called)
            else:
                async with limit:
                    outcome = reported(await called)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises ends its attempt, never the node
            outcome = self._outcome(error, job, limit, task)
        finally:
            leave(entered)
            del self._running[key]  # from here on a stop comes too late
            self._why.pop(key, None)
        if place.is_used:
            await place.settled()
        if not grants and not (isinstance(outcome, Succeeded) and outcome.outputs):
            return outcome, None
        return outcome, await self._with_files(job, outcome, place)

    async def _with_files(self, job: ClaimedJob, outcome: Outcome, place: _Place) -> str | None:
        """What follows where there were files; gives the manifest of its outputs. Raises `Unreachable`."""
        try:
            if isinstance(outcome, Failed):
                await self._inputs.check(job, outcome)
            return await self._inputs.keep(outcome.outputs) if isinstance(outcome, Succeeded) else None
        finally:
            await asyncio.to_thread(remove, place)

    def _timeout(self, job: ClaimedJob) -> float | None:
        return job.timeout if job.timeout is not None else self._tasks[job.task].timeout

    def stop(self, key: str, why: Why) -> None:
        """Stops a run: its outcome will be `Stopped(why)`."""
        self._preparing.stop(key)
        task = self._running.get(key)
        if task is not None:
            self._why[key] = why
            task.cancel()

    def _outcome(self, error: BaseException, job: ClaimedJob, limit: asyncio.Timeout | None, task: asyncio.Task[Any]) -> Outcome:
        """What it means that a handler raised; raises it again where it is not the handler's: the node has ended.

        A handler may cancel its own task, which looks as if the node ended. Either way the attempt is over, and a node
        that ends writes no more of it.
        """
        if isinstance(error, asyncio.CancelledError):
            why = self._why.get(job.key)
            if why is not None:
                task.uncancel()
                return Stopped(why)
            what = "the task that it runs in" if task.cancelling() else "something that the handler waited for"
            return Failed(f"CancelledError: {what} was cancelled", kinds=("CancelledError", "Exception"))
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():
            return TimedOut(f"it took longer than its timeout of {self._timeout(job):g} s")
        if isinstance(error, Cancelled):
            return Stopped("cancelled")
        if isinstance(error, Continue):
            return Continued(error.state)
        if isinstance(error, Retry):
            return RetryLater(str(error), error.delay)
        if isinstance(error, GeneratorExit) and not _runs(task):  # this coroutine is thrown away
            raise error
        return misfit(error) if isinstance(error, TypeError) else failure(error)


class _Place:
    """Where an inline handler runs: what carries its words to its worker, and the path of its working folder."""

    __slots__ = ("_home", "_job", "_log", "_pending", "_report", "_stopped")

    def __init__(self, report: Report, job: ClaimedJob, stopped: Mapping[str, Why], home: Home) -> None:
        self._report = report
        self._job = job
        self._stopped = stopped
        self._home = home
        self._log: AttemptLog | None = None
        self._pending: list[asyncio.Task[None]] | None = None

    def __fspath__(self) -> str:
        return str(folder_of(self._home.work_dir, self._job.key))  # only made up for a handler that asks

    @property
    def cancelled(self) -> bool:
        return self._job.key in self._stopped

    def progress(self, fraction: float, phase: str | None) -> None:
        self._report.progress(fraction, phase)

    def checkpoint(self, state: bytes) -> None:
        # The loop can't wait here: it is durable a commit later, and before the attempt ends at the latest.
        self._pending = [*(self._pending or ()), self._report.begin_checkpoint(state)]

    def request(self, kind: str, fields: dict[str, Any]) -> Any:
        raise MisuseError("an inline handler can't wait for its node: use `await task.aenqueue(…)` of the queue")

    def log(self, data: bytes) -> None:
        if self._log is None:
            holder = self._job.holder
            self._log = AttemptLog(self._home.log_file(self._job.job_id, holder.generation, holder.claim))
        self._log.write(data)

    @property
    def is_used(self) -> bool:
        """Says whether there is anything to wait for, or to close."""
        return self._pending is not None or self._log is not None

    async def settled(self) -> None:
        """Waits for what is under way."""
        for pending in self._pending or ():
            await pending
        if self._log is not None:
            self._log.close()


def _runs(task: asyncio.Task[Any]) -> bool:
    """Says whether that task is the one that runs now."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no loop runs
        return False


def load_functions(application: str | None, names: Sequence[str], queue: Queue | None) -> dict[str, Function]:
    """The handlers of inline tasks. The node imports the application itself for these alone. Raises `ConfigError`."""
    if not names:
        return {}
    if queue is not None:
        return {name: queue.tasks[name].function for name in names}
    from p2pqueue.workers.application import load

    loaded = load(application or "")
    return {name: loaded.tasks[name].function for name in names}
