"""Who keeps worker processes warm, and hands each job to one of them?

A child runs one handler after the other. It is replaced when its attempt was stopped, timed out or crashed. One more
than is busy is kept ready, up to the size of the pool, so that a job need not wait for an interpreter to start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from p2pqueue.errors import P2PQueueError
from p2pqueue.workers.children.protocol import Assignment, Leave, Outcome, Stopped, TaskDescription, Why
from p2pqueue.workers.running.attempt import Attempt, Hooks
from p2pqueue.workers.running.guard import Guard
from p2pqueue.workers.running.log import LIMIT
from p2pqueue.workers.running.warm import LEAVE_PATIENCE, WarmChild

IDLE_PATIENCE = 300.0  # seconds after which a child that ran nothing is let go, but for one

_log = logging.getLogger(__name__)


class Pool:
    """The worker processes of a node.

    :param application: `module:queue`, a `.py` or a `.toml` file; None for a node that runs only commands.
    :param home: the folder of the device, which handlers find as their own home.
    :param size: the most attempts at the same time.
    :param log_limit: bytes of one attempt's log.
    :param idle_patience: seconds after which children that run nothing are let go, all but one.
    """

    def __init__(
        self, application: str | None, *, home: Path, size: int, log_limit: int = LIMIT, idle_patience: float = IDLE_PATIENCE
    ) -> None:
        self._application = application
        self._home = home
        self._size = size
        self._log_limit = log_limit
        self._idle_patience = idle_patience
        self._trimming: asyncio.TimerHandle | None = None
        self._idle: list[WarmChild] = []
        self._children: set[WarmChild] = set()
        self._attempts: dict[str, Attempt] = {}
        self._slots = asyncio.Semaphore(max(1, size))
        self._closing = False
        self._quiet = asyncio.Event()
        self._guard = Guard()

    async def start(self) -> list[TaskDescription]:
        """Starts the first child and gives the tasks that it found. Raises `ConfigError` where there is no loading them."""
        self._guard.start()
        child = self._spawn(describe=True)
        try:
            ready = await child.ready()
        except BaseException:
            await self._discard(child)
            self._guard.close()
            raise
        self._idle.append(child)
        return [TaskDescription.from_map(each) for each in ready.tasks]

    async def run(
        self, assignment: Assignment, *, on_progress: Callable[[float, str | None], object],
        on_checkpoint: Callable[[bytes], Awaitable[object]], on_request: Callable[[str, dict[str, Any]], Awaitable[Any]],
    ) -> Outcome:  # fmt: skip
        """Runs an attempt in a warm child, within its limits; returns when all its processes are gone.

        Raises `ConfigError` and `WorldError` where no child can be started: the attempt has not begun then.
        """
        attempt = Attempt(assignment, Hooks(on_progress, on_checkpoint, on_request), log_limit=self._log_limit)
        self._attempts[assignment.key] = attempt
        self._quiet.clear()
        try:
            async with self._slots:
                return await self._run(attempt)
        finally:
            del self._attempts[assignment.key]
            if not self._attempts:
                self._quiet.set()

    def stop(self, key: str, why: Why) -> None:
        """Stops an attempt: TERM to its whole group at once, KILL 2 s later, to what left the group too.

        Its outcome will be `Stopped(why)`, unless the handler had already ended. An unknown key is no error.
        """
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.stop(why)

    async def close(self, grace: float = 0.0) -> None:
        """Waits up to `grace` seconds for what runs, stops the rest (`shutdown`), and ends all children."""
        self._closing = True
        if self._trimming is not None:
            self._trimming.cancel()
        try:
            async with asyncio.timeout(grace):
                while self._attempts:
                    await self._quiet.wait()
        except TimeoutError:
            pass
        for attempt in self._attempts.values():
            attempt.stop("shutdown")
        while self._attempts:
            await self._quiet.wait()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.leave() for child in idle))
        for child in list(self._children):
            await self._discard(child) if child not in idle else self._forget(child)
        self._guard.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _run(self, attempt: Attempt) -> Outcome:
        while True:
            if attempt.stopped is not None:
                return attempt.stopped
            if self._closing:
                return Stopped("shutdown")
            child = await self._take()
            try:
                outcome = await attempt.run(child)
            finally:
                await self._give_back(child, keep=attempt.keep_child)
            if outcome is not None:
                return outcome

    async def _take(self) -> WarmChild:
        child = None
        while self._idle and child is None:
            child = self._idle.pop()
            if not child.alive:
                await self._discard(child)
                child = None
        if child is None:
            child = self._spawn()
        self._keep_spare()
        try:
            await child.ready()
        except BaseException:
            await self._discard(child)
            raise
        return child

    async def _give_back(self, child: WarmChild, *, keep: bool) -> None:
        if not keep:  # the attempt has ended it
            self._forget(child)
        elif self._closing or not child.alive:
            await self._discard(child)
        else:
            child.idle_since = time.monotonic()
            self._idle.append(child)
            if self._trimming is None:
                self._trimming = asyncio.get_running_loop().call_later(self._idle_patience, self._trim)

    def _trim(self) -> None:
        """Lets go of children that have run nothing for long; the one used last stays."""
        self._trimming = None
        loop, now = asyncio.get_running_loop(), time.monotonic()
        for child in [each for each in self._idle[:-1] if now - each.idle_since >= self._idle_patience]:
            self._idle.remove(child)
            child.send(Leave())
            loop.call_later(LEAVE_PATIENCE, self._let_go, child)
        if len(self._idle) > 1:
            self._trimming = loop.call_later(self._idle_patience, self._trim)

    def _let_go(self, child: WarmChild) -> None:
        if child in self._children:
            child.kill_now()
            self._forget(child)

    def _keep_spare(self) -> None:
        if not self._idle and len(self._children) < self._size and not self._closing:
            try:
                self._idle.append(self._spawn())
            except P2PQueueError as error:
                _log.warning("%s", error)

    def _spawn(self, *, describe: bool = False) -> WarmChild:
        child = WarmChild(self._application, self._home, describe=describe)
        self._children.add(child)
        self._guard.watch(child.root)
        return child

    async def _discard(self, child: WarmChild) -> None:
        await child.end(set())
        self._forget(child)

    def _forget(self, child: WarmChild) -> None:
        self._children.discard(child)
        self._guard.release(child.root)
