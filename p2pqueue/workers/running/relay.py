"""Which task runs a claimed job, where most handlers end without ever waiting?

A task of its own costs more than such a handler. So one task runs the handlers one after the other, for a few
milliseconds at a time. As soon as one of them waits, or leaves something behind in the task, those after it get tasks of
their own. While none does, more may be claimed at once than there are slots, since no two of them run at the same time:
a claim of many costs much less for each.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sized
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")

STRETCH = 0.005  # seconds after which the loop gets its turn
AHEAD = 0.02  # seconds for which handlers may be claimed ahead
MOST = 512  # jobs that are claimed ahead

_Run = Callable[[T], Coroutine[Any, Any, None]]


class Relay(Generic[T]):
    """Runs what is started, in the tasks of a group that ends after all of it; `run` raises nothing but what ends the group.

    :param held: what was started and has not ended.
    :param slots: the most that run at the same time.
    :param give_back: called with what was started ahead and would now run beyond the slots.
    """

    def __init__(self, group: asyncio.TaskGroup, run: _Run[T], *, held: Sized, slots: int, give_back: Callable[[T], None]) -> None:
        self._group = group
        self._run = run
        self._held = held
        self._slots = slots
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[T] = deque()  # what was started and has not begun
        self._leader: asyncio.Task[None] | None = None
        self._in_a_row = 0  # handlers of the leader that ended without waiting
        self._lately = 0  # handlers that ended without waiting since the reach was set, and
        self._took = 0.0  # the seconds that they took
        self.reach = slots  # what may be held at the same time, as long as handlers end like those before

    def start(self, item: T) -> None:
        """Runs it from the next turn of the loop on."""
        self._waiting.append(item)
        if self._leader is None:
            self._follow()

    def close(self) -> None:
        """Starts nothing any more: the group ends by an error."""
        self._waiting.clear()

    def _follow(self) -> None:
        self._leader = self._group.create_task(self._lead(max(self._slots, self.reach // 2)))

    async def _lead(self, most: int) -> None:
        leader = self._leader
        assert leader is not None
        began = time.monotonic()
        self._in_a_row = 0
        self._loop.call_soon(self._part, leader, began)  # which runs once this task waits or has ended
        clean = _variables(copy_context())
        while self._waiting and self._in_a_row < most and time.monotonic() < began + STRETCH:
            await self._run(self._waiting.popleft())
            if self._leader is not leader:
                return  # it waited: others lead on
            self._in_a_row += 1
            if leader.cancelling() or _variables(copy_context()) != clean:
                return

    def _part(self, leader: asyncio.Task[None], began: float) -> None:
        self._leader = None
        if leader.done():
            self._look_ahead(time.monotonic() - began)
            if self._waiting:
                self._follow()
            return
        self._reach_for(self._slots)
        begun = len(self._held) - len(self._waiting)
        while self._waiting:
            item = self._waiting.popleft()
            if begun < self._slots:
                begun += 1
                self._group.create_task(self._run(item))
            else:
                self._give_back(item)

    def _look_ahead(self, took: float) -> None:
        """Reaches as far as handlers like these end soon: those of several leaders, as one may have had but a few."""
        self._lately += self._in_a_row
        self._took += took
        if self._lately >= self._slots:
            soon = int(AHEAD * self._lately / max(self._took, 1e-6))
            self._reach_for(max(self._slots, min(soon, 2 * self.reach, MOST)))
        elif self._took >= STRETCH:
            self._reach_for(self._slots)

    def _reach_for(self, jobs: int) -> None:
        self.reach, self._lately, self._took = jobs, 0, 0.0


def _variables(context: Context) -> list[int]:
    """Which variables are set there, and to which objects: a number for each of both, good while the context lives."""
    return [*map(id, context), *map(id, context.values())] if len(context) else []
