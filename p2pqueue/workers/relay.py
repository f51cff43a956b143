"""Which task runs a claimed job, where most handlers end without ever waiting?

A task of its own costs more than such a handler. So one task runs the handlers of a batch one after the other. As soon
as one of them waits, or leaves something behind in the task, those after it get tasks of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Relay(Generic[T]):
    """Runs what is started, in the tasks of a group that ends after all of it; `run` raises nothing but what ends the group."""

    def __init__(self, group: asyncio.TaskGroup, run: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        self._group = group
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._batch: deque[T] | None = None  # what is started in this turn of the loop

    def start(self, item: T) -> None:
        """Runs it from the next turn of the loop on."""
        if self._batch is not None:
            self._batch.append(item)
            return
        self._batch = deque((item,))
        self._group.create_task(self._lead(self._batch))

    def close(self) -> None:
        """Starts nothing any more: the group ends by an error."""
        if self._batch is not None:
            self._batch.clear()

    async def _lead(self, batch: deque[T]) -> None:
        self._loop.call_soon(self._part, batch)  # which runs once this task waits or has ended
        task = asyncio.current_task()
        assert task is not None
        before = copy_context()
        clean = _variables(before)
        while batch:
            await self._run(batch.popleft())
            if task.cancelling() or _variables(copy_context()) != clean:
                break

    def _part(self, batch: deque[T]) -> None:
        """What the leader has not begun gets tasks of its own."""
        if self._batch is batch:
            self._batch = None
        while batch:
            self._group.create_task(self._run(batch.popleft()))


def _variables(context: Context) -> list[int]:
    """Which variables are set there, and to which objects: a number for each of both, good while the context lives."""
    return [*map(id, context), *map(id, context.values())] if len(context) else []
