"""Which files are put on the origin, and when?

What a job needs and nobody who is linked can take: an input whose job waits while no linked device could run it, an
output whose enqueuer is not there. In the background, shard by shard, the manifest last: a file whose manifest an
origin has is whole there. Whatever goes wrong is tried again with growing waits, and what is there isn't sent again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.payload.capability import parse_capability
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.payload.memory import pages
from p2pqueue.payload.origins.access import AnyOrigin
from p2pqueue.payload.reading import missing
from p2pqueue.payload.shelf import Shelf
from p2pqueue.payload.supply import Supply

LOOK_EVERY: Final = 3.0  # seconds between two looks for what came to be needed without any event
GATHER: Final = 1.0  # seconds from an event to the look: a device that links now may take what is needed
FIRST_WAIT: Final = 2.0  # seconds after a failure; doubles
LONGEST_WAIT: Final = 120.0  # seconds
AGAIN_AFTER: Final = 86_400.0  # seconds after which a file that was whole there is looked at again: another may have removed parts
ASKED: Final = 8  # shards on end that were not there, after which only some are asked for before they are sent
SAMPLE: Final = 16  # shards after which one is asked for then; each that isn't there either doubles it

_log = logging.getLogger(__name__)


class Uploader:
    """Puts files on an origin. `wanted` gives the capabilities of those that should be there by the policy.

    `note` remembers durably what is about to be put there, `take` waits until so many bytes may go, and `forbids` says
    why nothing may be sent now, None where it may.
    """

    def __init__(
        self, shelf: Shelf, origin: AnyOrigin, wanted: Callable[[], Awaitable[Sequence[str]]], *,
        note: Callable[[bytes, Sequence[bytes]], Awaitable[object]], take: Callable[[int], Awaitable[object]],
        forbids: Callable[[], str | None],
    ) -> None:  # fmt: skip
        self._shelf = shelf
        self._origin = origin
        self._wanted = wanted
        self._note = note
        self._take = take
        self._forbids = forbids
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._done: dict[bytes, float] = {}  # addresses of manifests that the origin has, and when that was found
        self._absent = 0  # shards on end that were asked for and were not there
        self._unasked = 0  # that are sent before the next is asked for
        self.sent = 0  # bytes
        self.trouble: str | None = None  # why the last upload failed, until one succeeds

    def wake(self) -> None:
        """Tells that jobs or peers have changed."""
        self._wake.set()

    async def settled(self) -> None:
        """Returns when all that is wanted now is there, or was tried."""
        self._settled.clear()
        self.wake()
        await self._settled.wait()

    async def run(self) -> None:
        """Uploads until it is cancelled."""
        wait = FIRST_WAIT
        while True:
            self._wake.clear()
            try:
                for capability in () if self._forbids() else await self._wanted():
                    await self._upload(capability)
                self.trouble, wait = self._forbids(), FIRST_WAIT
                self._settled.set()
            except (SourceFailed, P2PQueueError) as error:
                if str(error) != self.trouble:
                    _log.warning("an upload failed and is tried again: %s", error)
                self.trouble = str(error)
                self._settled.set()
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._wake.wait()
                await asyncio.sleep(GATHER)
            except TimeoutError:
                pass

    async def _upload(self, capability: str) -> None:
        root = parse_capability(capability).address
        now = time.monotonic()
        seen = self._done.get(root)
        if seen is not None and now - seen < AGAIN_AFTER:
            return
        if seen is not None or not await self._origin.has(root):
            addresses = await asyncio.to_thread(self._shelf.addresses, capability)
            others = list(dict.fromkeys(addresses[:-1]))
            await self._note(root, [*others, root])
            self._absent = self._unasked = 0
            await self._put_all(others)
            await self._put(root, self._shelf.shard)
            _log.info("a file of %d shards is on the origin after %.1f s", len(addresses), time.monotonic() - now)
        self._done[root] = now

    async def _put_all(self, addresses: list[bytes]) -> None:
        left = iter(addresses)
        # Kept from the group, which would lose a cancellation that comes beside them, and stop readers in the middle of a file.
        failures: list[SourceFailed | P2PQueueError] = []

        async def work() -> None:
            with self._shelf.supply() as supply:
                reading = _Reading(supply)
                for address in left:
                    if failures:
                        return
                    try:
                        await self._put(address, reading.shard)
                    except (SourceFailed, P2PQueueError) as error:
                        failures.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._origin.parallel):
                group.create_task(work())
        if failures:
            raise failures[0]

    async def _put(self, address: bytes, read: Callable[[bytes], bytes | memoryview]) -> None:
        if (why := self._forbids()) is not None:
            raise SourceFailed(why)
        if await self._is_there(address):
            return
        body = await asyncio.to_thread(read, address)
        await self._take(len(body))
        await self._origin.put(address, body)
        self.sent += len(body)

    async def _is_there(self, address: bytes) -> bool:
        """Asks, unless the last were all missing: then samples, fewer and fewer, tell whether that has changed."""
        if self._unasked:
            self._unasked -= 1
            return False
        if self._absent >= ASKED:  # told before the answer comes: the others don't ask meanwhile
            self._unasked = SAMPLE * 2 ** (self._absent - ASKED)
        there = await self._origin.has(address)
        self._absent = 0 if there else self._absent + 1
        if there:
            self._unasked = 0
        return there


class _Reading:
    """Reads one shard after the other into a kept buffer."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._buffer = memoryview(b"")

    def shard(self, address: bytes) -> memoryview:
        """The shard of that address, until the next one is read. Raises `PayloadUnavailable` and `InputChanged`."""
        held = self._supply.find(address)
        if held is None:
            raise missing(address, "a file", None)
        if len(self._buffer) < held.size:
            self._buffer = pages(held.size)
        return self._supply.fill(held, self._buffer)
