"""How does a plain function run on a connection in aiosqlite's thread, in one hop?

aiosqlite makes every statement a hop of its own; a transaction here is one function and so one hop. This is the
only place that uses protected names of aiosqlite (`Connection._tx`, the queue of its thread, `_thread` and `_connect`;
tested with 0.22).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import aiosqlite

T = TypeVar("T")
_ITERATION = 64  # rows; unused, since nobody iterates over a cursor here


class HoppingConnection(aiosqlite.Connection):
    """A connection whose thread runs whole functions."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, _ITERATION)

    async def _connect(self) -> aiosqlite.Connection:
        try:
            return await super()._connect()
        except BaseException:
            await asyncio.to_thread(self._thread.join)  # it tells this loop that it ends, which therefore must still be open
            raise

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Hands a function to the thread and returns at once; functions run in the order of their handing in."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        queue: Any = self._tx
        queue.put_nowait((future, fn))
        return future

    def send(self, fn: Callable[[], object]) -> None:
        """As `submit`, for a function that tells of its end by itself: what it raises is lost."""
        queue: Any = self._tx
        queue.put_nowait((None, fn))

    async def run(self, fn: Callable[[], T]) -> T:
        """Runs a function in the thread. Cancelling the await doesn't stop a function that was handed in."""
        return await asyncio.shield(self.submit(fn))
