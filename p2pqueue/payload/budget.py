"""How much may be under way at once? Bytes that tasks take before they begin, and give back at their end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """A number of bytes. Whoever came first is served first, so that a large taker isn't starved by small ones."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def of(self, size: int) -> AsyncIterator[None]:
        """Holds so many bytes, the whole budget at most, while the block runs."""
        size = min(size, self._size)
        await self._take(size)
        try:
            yield
        finally:
            self._free += size
            self._serve()

    async def _take(self, size: int) -> None:
        if not self._waiting and self._free >= size:
            self._free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # served and cancelled at the same moment
                self._free += size
            self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._free >= self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= size
                turn.set_result(None)
