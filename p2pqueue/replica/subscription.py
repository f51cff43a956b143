"""How does somebody hear of changes without being flooded by them?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

Rows = frozenset[tuple[str, str]]  # (table, key)


class Subscription:
    """An async iterator over what changed: the touched rows, or None where it isn't known which.

    What comes while nobody waits is gathered into one. Leaving its `async with` block ends it.
    """

    def __init__(self, on_close: Callable[[Subscription], None], *, quiet: bool = False) -> None:
        self.quiet = quiet  # it hears of quiet commits too
        self._on_close = on_close
        self._touched: set[tuple[str, str]] = set()
        self._unknown = False
        self._news = asyncio.Event()
        self._closed = False

    def tell(self, touched: Rows | None) -> None:
        """Notes a change."""
        if touched is None:
            self._unknown = True
        elif touched:
            self._touched |= touched
        else:
            return
        self._news.set()

    def close(self) -> None:
        """Ends the iteration."""
        self._closed = True
        self._on_close(self)
        self._news.set()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Rows | None]:
        return self

    async def __anext__(self) -> Rows | None:
        await self._news.wait()
        if self._closed:
            raise StopAsyncIteration
        self._news.clear()
        touched, self._touched = frozenset(self._touched), set()
        unknown, self._unknown = self._unknown, False
        return None if unknown else touched
