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


class Subscriptions:
    """All who hear of changes in one loop."""

    def __init__(self) -> None:
        self._open: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, *, quiet: bool) -> Subscription:
        """One more, that hears of `quiet` commits too or doesn't."""
        subscription = Subscription(self._open.discard, quiet=quiet)
        self._open.add(subscription)
        return subscription

    def tell(self, rows: Rows | None) -> None:
        """Tells all of touched rows."""
        for subscription in tuple(self._open):
            subscription.tell(rows)

    def tell_of_quiet(self) -> None:
        """Tells those that want to know that there was a quiet commit."""
        for subscription in tuple(self._open):
            if subscription.quiet:
                subscription.tell(None)

    def close(self) -> None:
        """Ends all iterations."""
        for subscription in tuple(self._open):
            subscription.close()
