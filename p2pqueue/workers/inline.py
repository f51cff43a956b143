"""How does an inline task run: an `async def` in the node's own loop?

Fast to start and cheap, and for handlers that wait rather than work. One that blocks holds up the whole node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from p2pqueue.errors import Cancelled, MisuseError, Retry
from p2pqueue.home import Home
from p2pqueue.jobs.arguments import decode
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.context import Continue, JobContext, enter, leave
from p2pqueue.workers.handler import failure, misfit, open_files, reported
from p2pqueue.workers.inputs import Inputs
from p2pqueue.workers.log import AttemptLog
from p2pqueue.workers.protocol import Continued, Failed, Outcome, RetryLater, Stopped, Succeeded, TaskDescription, TimedOut, Why
from p2pqueue.workers.report import Report
from p2pqueue.workers.workdir import folder_of, remove

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
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._why: dict[str, Why] = {}

    async def run(self, job: ClaimedJob, report: Report) -> tuple[Outcome, str | None]:
        """Runs the job to its end; gives the outcome and the manifest of its outputs. Raises `Unreachable`."""
        grants = await self._inputs.grants(job) if job.has_input else {}
        if report.stopped is not None:
            return Stopped(report.stopped), None
        task = asyncio.current_task()
        assert task is not None
        key = job.key
        self._running[key] = task
        outcome = await self._outcome(job, key, report, grants)
        manifest = await self._inputs.keep(outcome.outputs) if isinstance(outcome, Succeeded) and outcome.outputs else None
        if grants or manifest:
            await asyncio.to_thread(remove, _Folder(self._home, job))
        return outcome, manifest

    def stop(self, key: str, why: Why) -> None:
        """Stops a run: its outcome will be `Stopped(why)`."""
        task = self._running.get(key)
        if task is not None:
            self._why[key] = why
            task.cancel()

    async def _outcome(self, job: ClaimedJob, key: str, report: Report, grants: Mapping[str, Any]) -> Outcome:
        timeout = job.timeout if job.timeout is not None else self._tasks[job.task].timeout
        channel, folder = _Channel(report, job, self._why, self._home), _Folder(self._home, job)
        context = JobContext(
            channel, job_id=job.job_id, task=job.task, attempt=job.attempt, workdir=folder, timeout=timeout, resume_from=job.checkpoint
        )
        entered = enter(context)
        limit = None if timeout is None else asyncio.timeout(timeout)
        try:
            files = open_files(grants, folder, self._inputs.shelf) if grants else {}
            called = self._functions[job.task](**decode(job.args, files))
            if limit is None:
                value = await called
            else:
                async with limit:
                    value = await called
            outcome: Outcome = reported(value)
        except asyncio.CancelledError:
            stopped = self._stopped(job)
            if stopped is None:
                raise
            outcome = stopped
        except TimeoutError as error:
            late = limit is not None and limit.expired()
            outcome = TimedOut(f"it took longer than its timeout of {timeout:g} s") if late else failure(error)
        except Cancelled:
            outcome = Stopped("cancelled")
        except Continue as go_on:
            outcome = Continued(go_on.state)
        except Retry as retry:
            outcome = RetryLater(str(retry), retry.delay)
        except GeneratorExit:  # this coroutine is thrown away
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises ends its attempt, never the node
            outcome = misfit(error) if isinstance(error, TypeError) else failure(error)
        finally:
            leave(entered)
            del self._running[key]  # from here on a stop comes too late
            self._why.pop(key, None)
        if channel.is_used:
            await channel.settled()
        return outcome

    def _stopped(self, job: ClaimedJob) -> Outcome | None:
        """What a handler's `CancelledError` means: its stop, an error that only looks like one, or the end of the node (None)."""
        current, why = asyncio.current_task(), self._why.get(job.key)
        if why is not None:
            if current is not None:
                current.uncancel()
            return Stopped(why)
        if current is not None and current.cancelling():
            return None
        return Failed("CancelledError: something that the handler waited for was cancelled", kinds=("CancelledError", "Exception"))


class _Folder(NamedTuple):
    """The working folder of an attempt; its path is only made up for a handler that asks."""

    home: Home
    job: ClaimedJob

    def __fspath__(self) -> str:
        return str(folder_of(self.home.work_dir, self.job.key))


class _Channel:
    """What carries an inline handler's words to its worker."""

    __slots__ = ("_home", "_job", "_log", "_pending", "_report", "_stopped")

    def __init__(self, report: Report, job: ClaimedJob, stopped: Mapping[str, Why], home: Home) -> None:
        self._report = report
        self._job = job
        self._stopped = stopped
        self._home = home
        self._log: AttemptLog | None = None
        self._pending: list[asyncio.Task[None]] | None = None

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


def load_functions(application: str | None, names: Sequence[str], queue: Queue | None) -> dict[str, Function]:
    """The handlers of inline tasks. The node imports the application itself for these alone. Raises `ConfigError`."""
    if not names:
        return {}
    if queue is not None:
        return {name: queue.tasks[name].function for name in names}
    from p2pqueue.workers.application import load

    loaded = load(application or "")
    return {name: loaded.tasks[name].function for name in names}
