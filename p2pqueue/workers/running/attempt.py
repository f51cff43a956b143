"""How does one attempt run in a worker process, within its limits, and what is its outcome?

Every wait here is the supervisor's: time limits run on its monotonic clock, and a handler that hangs, floods or dies
is ended from outside. The outcome is known only when all processes of the attempt are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.workers.children.protocol import (
    IDLE_END,
    LOST_NODE,
    Assignment,
    Checkpoint,
    Crashed,
    Ended,
    Failed,
    Outcome,
    Progress,
    Reap,
    Reply,
    Request,
    Stop,
    Stopped,
    TimedOut,
    Why,
)
from p2pqueue.workers.running import processes
from p2pqueue.workers.running.log import LIMIT, AttemptLog
from p2pqueue.workers.running.processes import Known
from p2pqueue.workers.running.warm import HANG_UP_PATIENCE, Exited, HungUp, WarmChild, describe_status

TERM_AGAIN: Final = (0.3, 1.0)  # seconds after TERM when the child gets it again: it can be lost just before a system call
TERM_PATIENCE: Final = 2.0  # seconds from TERM to KILL
LEFT_PATIENCE: Final = 30.0  # seconds in which killed processes are waited for that a device still holds
LOOK_EVERY: Final = 0.02  # seconds between looks for what has not ended yet
MEMORY_EVERY: Final = 0.5  # seconds between looks at the memory of an attempt that has a limit

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hooks:
    """What the node does with a handler's words. A request's answer is a value, or raises a `P2PQueueError`."""

    on_progress: Callable[[float, str | None], object]
    on_checkpoint: Callable[[bytes], Awaitable[object]]
    on_request: Callable[[str, dict[str, Any]], Awaitable[Any]]


class Attempt:
    """One assignment, from before its child is there until nothing of it is left."""

    def __init__(self, assignment: Assignment, hooks: Hooks, *, log_limit: int = LIMIT) -> None:
        self.assignment = assignment
        self.keep_child = False
        self._hooks = hooks
        self._log = AttemptLog(assignment.log_file, limit=log_limit)
        self._loop = asyncio.get_running_loop()
        self._child: WarmChild | None = None
        self._silent = True  # nothing has been heard from the handler
        self._taken_back = False
        self._known: Known = set()
        self._cause: Outcome | None = None  # why it was stopped; the first cause stays
        self._kill_at: float | None = None
        self._moved = self._loop.time()
        self._timers: list[asyncio.TimerHandle] = []
        self._scope: asyncio.Timeout | None = None

    @property
    def stopped(self) -> Stopped | None:
        """That it was stopped by its node, if so."""
        return self._cause if isinstance(self._cause, Stopped) else None

    def stop(self, why: Why) -> None:
        """Stops it: TERM to all its processes now, KILL 2 s later. A program that talks is told first, by its child."""
        self._stop(Stopped(why))

    async def run(self, child: WarmChild) -> Outcome | None:
        """Runs in that child; None where the child was dead before it could take the assignment."""
        if self._cause is not None:
            self.keep_child = True
            return self._cause
        child.begin_log(self._log)
        if not child.send(self.assignment):
            await child.end(self._known)
            return None
        self._child = child
        self._start_clocks()
        try:
            ended = await self._listen(child)
            outcome = await self._settle(child, ended)
            return None if self._was_not_begun(child) else outcome
        except BaseException:
            child.kill_now()
            raise
        finally:
            self._child = None
            for timer in self._timers:
                timer.cancel()

    # -- while it runs ------------------------------------------------------------------------------------------------

    async def _listen(self, child: WarmChild) -> Ended | Crashed | None:
        try:
            async with asyncio.timeout(None) as self._scope:
                while True:
                    event = await child.next()
                    self._silent = self._silent and isinstance(event, (Exited, HungUp))
                    if isinstance(event, Ended):
                        return event
                    if isinstance(event, (Exited, HungUp)):
                        return await self._crashed(child, event)
                    await self._take(child, event)
        except TimeoutError:
            return None  # it did not end within its time after TERM

    async def _take(self, child: WarmChild, event: object) -> None:
        self._moved = self._loop.time()
        if isinstance(event, Progress):
            try:
                self._hooks.on_progress(float(event.fraction), event.phase)
            except (TypeError, ValueError):
                pass  # not a number: a handler that writes to our socket by itself
        elif isinstance(event, Checkpoint):
            child.send(await self._answer(event.number, self._hooks.on_checkpoint(event.state), discard=True))
        elif isinstance(event, Request):
            child.send(await self._answer(event.number, self._hooks.on_request(event.what, event.fields)))

    async def _answer(self, number: int, answering: Awaitable[Any], *, discard: bool = False) -> Reply:
        try:
            value = await answering
        except P2PQueueError as error:
            return Reply(number, error=str(error))
        return Reply(number, None if discard else value)

    async def _crashed(self, child: WarmChild, event: Exited | HungUp) -> Crashed:
        """The crash of a child that has ended or let go of us; the way in which it ended says most."""
        if isinstance(event, HungUp):
            if not await child.is_gone(HANG_UP_PATIENCE):
                processes.send_group(child.pid, processes.KILL)
                await child.is_gone(TERM_PATIENCE)
                if child.status in (None, -processes.KILL):
                    return Crashed(f"the handler's process is out of step: {event.reason}")
            if child.status == LOST_NODE:
                return Crashed(f"the handler's process is out of step: {event.reason}")
            event = Exited(child.status or 0)
        return Crashed(f"the handler's process {describe_status(event.status)}")

    def _was_not_begun(self, child: WarmChild) -> bool:
        """Says, once at most, that the child was told to end just before it took the assignment."""
        if self._cause is not None or self._taken_back or not self._silent or child.status != IDLE_END:
            return False
        self._taken_back = True
        return True

    # -- limits -------------------------------------------------------------------------------------------------------

    def _start_clocks(self) -> None:
        self._moved = self._loop.time()
        assignment = self.assignment
        if assignment.deadline is not None:
            self._later(assignment.deadline, self._check_deadline)
        if assignment.stall_timeout is not None:
            self._later(assignment.stall_timeout, self._check_stall)
        if assignment.memory_limit is not None:
            self._later(MEMORY_EVERY, self._check_memory)

    def _later(self, delay: float, check: Callable[[], None]) -> None:
        self._timers = [timer for timer in self._timers if not timer.cancelled() and timer.when() > self._loop.time()]
        self._timers.append(self._loop.call_later(delay, check))

    def _check_deadline(self) -> None:
        self._stop(TimedOut(f"it took longer than its timeout of {self.assignment.deadline:g} s"))

    def _check_stall(self) -> None:
        limit = self.assignment.stall_timeout or 0.0
        left = self._moved + limit - self._loop.time()
        if left <= 0:
            self._stop(TimedOut(f"it made no progress for {limit:g} s"))
        else:
            self._later(left, self._check_stall)

    def _check_memory(self) -> None:
        limit = self.assignment.memory_limit or 0
        used = processes.memory(self._child.pid) if self._child is not None else 0
        if used > limit:
            self._stop(Crashed(f"the handler and its programs used {used:,} bytes of memory, and its limit is {limit:,}"))
        else:
            self._later(MEMORY_EVERY, self._check_memory)

    def _stop(self, cause: Outcome) -> None:
        if self._cause is not None:
            return
        self._cause = cause
        if self._child is None:
            return
        if (self.assignment.command or {}).get("talks"):
            self._child.send(Stop(_word_of(cause)))
            self._child.send_term()
        else:
            processes.terminate(self._child.root, self._known)
        self._kill_at = self._loop.time() + TERM_PATIENCE
        for delay in TERM_AGAIN:
            self._later(delay, self._repeat)
        self._later(TERM_PATIENCE, self._give_up)

    def _repeat(self) -> None:
        if self._child is not None:
            self._child.send_term()

    def _give_up(self) -> None:
        if self._child is not None:
            processes.send_group(self._child.pid, processes.KILL)
        if self._scope is not None and not self._scope.expired():
            try:
                self._scope.reschedule(self._loop.time())
            except RuntimeError:
                pass  # it has ended in this very moment

    # -- afterwards ---------------------------------------------------------------------------------------------------

    async def _settle(self, child: WarmChild, ended: Ended | Crashed | None) -> Outcome:
        """Ends what is left of the attempt, and gives its outcome when nothing is."""
        if isinstance(ended, Ended) and self._cause is None and not ended.spent:
            self.keep_child = ended.clean or await self._end_rest(child)
        if not self.keep_child:
            await self._end_all(child)
        child.end_log()
        return self._outcome(ended)

    async def _end_rest(self, child: WarmChild) -> bool:
        """Kills what the handler left running, for this and for a child that nothing is left of."""
        gone = await asyncio.to_thread(processes.kill, child.root, self._known, spare=(child.pid,))
        return gone and self._cause is None and child.send(Reap())

    async def _end_all(self, child: WarmChild) -> None:
        while self._kill_at is not None and self._loop.time() < self._kill_at and self._others(child):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY)
        patience = self._loop.time() + LEFT_PATIENCE
        while not await child.end(self._known):
            if self._loop.time() > patience:
                _log.error("processes of job %s can't be killed; its slot is used again", self.assignment.job_id)
                return
            await asyncio.sleep(LOOK_EVERY)

    def _others(self, child: WarmChild) -> bool:
        """Says whether anything but the child itself still runs."""
        if child.status is None:
            self._known.update((each.pid, each.started) for each in processes.descendants(child.pid))
        return any(processes.is_alive(pid, started) for pid, started in self._known if pid != child.pid)

    def _outcome(self, ended: Ended | Crashed | None) -> Outcome:
        outcome = ended.outcome if isinstance(ended, Ended) else ended
        if self._cause is not None and (outcome is None or isinstance(outcome, (Stopped, Crashed))):
            outcome = self._cause
        if isinstance(self._cause, (TimedOut, Crashed)):
            outcome = self._cause
        if isinstance(outcome, Stopped) and self._cause is None:
            outcome = Crashed("the handler's process was told to end (SIGTERM) by somebody else")
        if isinstance(outcome, (Failed, Crashed, TimedOut)) and outcome.log_tail is None:
            outcome = outcome.changed(log_tail=self._log.tail())
        return outcome if outcome is not None else Crashed("the handler's process is out of step")


def _word_of(cause: Outcome) -> str:
    """Why an attempt is stopped, as its program is told."""
    if isinstance(cause, Stopped):
        return {"held": "paused"}.get(cause.why, cause.why)
    return "timeout" if isinstance(cause, TimedOut) else "memory"
