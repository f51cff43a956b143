"""What does an origin keep, up to which quota, and for how long?

The place of its objects and the ledger of them together. Everything raises `StoreFailed`, and `StoreFull` beyond the quota.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.payload.origins.ledger import Ledger
from p2pqueue.payload.origins.objects import MAIL, SHARDS, Listed, ObjectStore, StoreFailed, StoreFull

LOOK_EVERY: Final = 600.0  # seconds between two looks for what nobody has read for long

_log = logging.getLogger(__name__)


class Keeping:
    """The objects of an origin. `quota` is in bytes; `open` makes one."""

    def __init__(self, store: ObjectStore, ledger: Ledger, *, quota: int) -> None:
        self.store = store
        self.ledger = ledger
        self.quota = quota

    @classmethod
    async def open(cls, store: ObjectStore, *, quota: int, state: Path | None = None) -> Keeping:
        """Looks what is there; `state` is the file that keeps when something was read. Raises `StoreFailed`."""
        listed = [*await store.listed(SHARDS), *await store.listed(MAIL)]
        return cls(store, Ledger(state, listed), quota=quota)

    def check_room(self, name: str, size: int) -> None:
        """Raises `StoreFull` when a body would pass the quota."""
        more = size - (self.ledger.size(name) or 0)
        if self.ledger.used + more > self.quota:
            raise StoreFull(f"{self.ledger.used} of {self.quota} bytes are used")

    async def put(self, name: str, body: bytes) -> bool:
        """Keeps a body in place of an earlier one; says whether there was none."""
        new = self.ledger.size(name) is None
        self.check_room(name, len(body))
        await self.store.put(name, body)
        self.ledger.enter(name, len(body))
        return new

    async def get(self, name: str, *, limit: int) -> bytes | None:
        """A body, None where there is none."""
        body = await self.store.get(name, limit=limit)
        self._seen(name, None if body is None else len(body))
        return body

    async def size(self, name: str) -> int | None:
        """How many bytes a body has, None where there is none. Whoever asks needs it to stay."""
        size = await self.store.size(name)
        self._seen(name, size)
        return size

    async def delete(self, name: str) -> bool:
        """Removes an object; says whether one was known."""
        await self.store.delete(name)
        known = self.ledger.size(name) is not None
        self.ledger.forget(name)
        return known

    async def listed(self, prefix: str, *, most: int) -> list[Listed]:
        """The objects whose names begin so. Whoever lists mail needs all of it to stay, though he may have read it before."""
        found = await self.store.listed(prefix, most=most)
        for each in found:
            self._seen(each.name, each.size)
        return found

    async def run(self) -> None:
        """Removes what nobody has read for long, until it is cancelled."""
        try:
            while True:
                await self.tidy()
                await asyncio.sleep(LOOK_EVERY)
        finally:
            self._save()

    async def tidy(self, *, now: float | None = None) -> int:
        """Removes what nobody has read for long; tells how many objects."""
        gone = 0
        for name in self.ledger.unread(now=now):
            try:
                await self.delete(name)
                gone += 1
            except StoreFailed as error:
                _log.warning("%s", error)
                break
        self._save()
        return gone

    def _seen(self, name: str, size: int | None) -> None:
        if size is None:
            if self.ledger.size(name) is not None:
                self.ledger.forget(name)
        elif self.ledger.size(name) != size:  # put there by another hand
            self.ledger.enter(name, size)
        else:
            self.ledger.touch(name)

    def _save(self) -> None:
        try:
            self.ledger.save()
        except P2PQueueError as error:
            _log.warning("when shards were read is not kept: %s", error)
