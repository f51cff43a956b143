"""Which files are put on the origin, and when?

What a job needs and nobody who is linked can take: an input whose job waits while no linked device could run it, an
output whose enqueuer is not there. In the background, shard by shard, the manifest last: a file whose manifest an
origin has is whole there. Whatever goes wrong is tried again with growing waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.payload.capability import parse_capability
from p2pqueue.payload.origin_access import AnyOrigin
from p2pqueue.payload.shelf import Shelf
from p2pqueue.payload.source import SourceFailed

LOOK_EVERY: Final = 3.0  # seconds between two looks for what came to be needed without any event
GATHER: Final = 1.0  # seconds from an event to the look: a device that links now may take what is needed
FIRST_WAIT: Final = 2.0  # seconds after a failure; doubles
LONGEST_WAIT: Final = 120.0  # seconds

_log = logging.getLogger(__name__)


class Uploader:
    """Puts files on an origin. `wanted` gives the capabilities of those that should be there by the policy."""

    def __init__(self, shelf: Shelf, origin: AnyOrigin, wanted: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._shelf = shelf
        self._origin = origin
        self._wanted = wanted
        self._wake = asyncio.Event()
        self._done: set[bytes] = set()  # addresses of manifests that the origin has
        self.sent = 0  # bytes
        self.trouble: str | None = None  # why the last upload failed, until one succeeds

    def wake(self) -> None:
        """Tells that jobs or peers have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Uploads until it is cancelled."""
        wait = FIRST_WAIT
        while True:
            self._wake.clear()
            try:
                for capability in await self._wanted():
                    await self._upload(capability)
                self.trouble, wait = None, FIRST_WAIT
            except (SourceFailed, P2PQueueError) as error:
                if str(error) != self.trouble:
                    _log.warning("an upload failed and is tried again: %s", error)
                self.trouble = str(error)
                await asyncio.sleep(wait)
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
        if root in self._done:
            return
        if not await self._origin.has(root):
            begun = time.monotonic()
            addresses = await asyncio.to_thread(self._shelf.addresses, capability)
            await self._put_all(list(dict.fromkeys(addresses[:-1])))
            await self._put(root)
            _log.info("a file of %d shards is on the origin after %.1f s", len(addresses), time.monotonic() - begun)
        self._done.add(root)

    async def _put_all(self, addresses: list[bytes]) -> None:
        left = iter(addresses)

        async def work() -> None:
            for address in left:
                await self._put(address)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._origin.parallel):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _put(self, address: bytes) -> None:
        if await self._origin.has(address):
            return
        body = await asyncio.to_thread(self._shelf.shard, address)
        await self._origin.put(address, body)
        self.sent += len(body)
