"""How do other devices hear at once that a job of theirs shall stop?

What this device's programs write is looked through for orders, and those are signalled. The rows follow, and say the
same to whoever missed the signal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.jobs.orders import given
from p2pqueue.replica.store import Store

PAUSE: Final = 0.05  # seconds between two looks: somebody may write thousands of jobs a second

_log = logging.getLogger(__name__)


class Ordering:
    """Signals the orders of this device with `emit`, while some device `is_linked`."""

    def __init__(self, store: Store, *, emit: Callable[..., Any], is_linked: Callable[[], bool]) -> None:
        self._store = store
        self._emit = emit
        self._is_linked = is_linked

    async def run(self) -> None:
        """Goes on until it is cancelled, or until the store is closed."""
        async with self._store.subscribe() as changes:
            author, seen = self._store.own_number
            async for _ in changes:
                before, (now, upto) = (author, seen), self._store.own_number
                author, seen = now, upto
                if now == before[0] and upto > before[1] and self._is_linked():
                    await self._look(author, after=before[1], upto=upto)
                    await asyncio.sleep(PAUSE)

    async def _look(self, author: bytes, *, after: int, upto: int) -> None:
        try:
            orders = await self._store.read(partial(given, author=author, after=after, upto=upto))
        except P2PQueueError as error:
            _log.debug("orders can't be read, their rows will tell: %s", error)
        else:
            if orders:
                self._emit("control", jobs=[list(order) for order in orders])
