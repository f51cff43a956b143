"""What that this device put on an origin is not needed there any more?

What it put is remembered durably, file by file. When no row of the space names a file any more, since its jobs are past
retention, its shards are removed, but for those that a file needs which is still named. Of a file that isn't here the
manifest is asked for; where it can't be had, nothing is removed until it can.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from p2pqueue.errors import P2PQueueError, PayloadUnavailable
from p2pqueue.jobs.local import live_capabilities
from p2pqueue.payload.capability import parse_capability
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.payload.manifest import FileManifest, FolderManifest, TreeManifest
from p2pqueue.payload.origins.access import AnyOrigin
from p2pqueue.payload.shelf import Shelf
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer

LOOK_FIRST: Final = 60.0  # seconds after the start
LOOK_EVERY: Final = 1_800.0  # seconds
AT_ONCE: Final = 200  # shards whose removal is noted in one transaction

_ROOTS: Final = "SELECT DISTINCT root FROM uploaded WHERE origin = ?"  # primary key
_SHARDS: Final = "SELECT address FROM uploaded WHERE origin = ? AND root = ?"  # primary key
_log = logging.getLogger(__name__)


class Retiring:
    """Removes from an origin what this device put there and nobody needs. `describe` gives the manifest of a file that is elsewhere."""

    def __init__(
        self, store: Store, shelf: Shelf, origin: AnyOrigin, *,
        describe: Callable[[str], Awaitable[FileManifest | FolderManifest | TreeManifest]], is_on: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._store = store
        self._shelf = shelf
        self._origin = origin
        self._describe = describe
        self._is_on = is_on
        self.removed = 0  # shards

    async def note(self, root: bytes, addresses: Sequence[bytes]) -> None:
        """Remembers what is about to be put there."""
        rows = [(self._origin.name, root, address) for address in addresses]
        insert = "INSERT OR IGNORE INTO uploaded (origin, root, address) VALUES (?, ?, ?)"

        def write(writer: Writer) -> None:
            writer.connection.executemany(insert, rows)

        await self._store.write(write, quiet=True)

    async def run(self) -> None:
        """Looks from time to time, until it is cancelled."""
        await asyncio.sleep(LOOK_FIRST)
        while True:
            if self._is_on():
                try:
                    await self.look()
                except (SourceFailed, P2PQueueError) as error:
                    _log.info("what isn't needed on the origin any more stays for now: %s", error)
            await asyncio.sleep(LOOK_EVERY)

    async def look(self) -> int:
        """Removes what isn't needed; tells how many shards. Raises `SourceFailed`, and what `describe` raises."""
        roots, live = await self._store.read(self._read)
        named = {parse_capability(each).address for each in live}
        gone = [root for root in roots if root not in named]
        if not gone:
            return 0
        needed = await self._needed(live)
        before, begun = self.removed, time.monotonic()
        for root in gone:
            await self._remove(root, needed)
        _log.info("%d shards were removed from the origin in %.1f s", self.removed - before, time.monotonic() - begun)
        return self.removed - before

    def _read(self, connection: sqlite3.Connection) -> tuple[list[bytes], list[str]]:
        roots = [bytes(root) for (root,) in connection.execute(_ROOTS, (self._origin.name,))]
        return roots, list(live_capabilities(connection))

    async def _needed(self, live: Iterable[str]) -> set[bytes]:
        """The shards of all files that rows name."""
        found: set[bytes] = set()
        waiting = list(live)
        while waiting:
            capability = waiting.pop()
            try:
                found.update(await asyncio.to_thread(self._shelf.addresses, capability))
                continue
            except P2PQueueError:  # it isn't here
                manifest = await self._describe(capability)
            found.add(parse_capability(capability).address)
            if isinstance(manifest, FolderManifest):
                waiting += [entry.capability.text for entry in manifest.entries]
            elif isinstance(manifest, TreeManifest):
                raise PayloadUnavailable("a folder that isn't here is still named")
            else:
                found.update(manifest.chunk(number).address for number in range(manifest.chunk_count))
        return found

    async def _remove(self, root: bytes, needed: set[bytes]) -> None:
        rows = await self._store.read(lambda connection: connection.execute(_SHARDS, (self._origin.name, root)).fetchall())
        addresses = [bytes(address) for (address,) in rows]
        addresses.sort(key=lambda address: address != root)  # the manifest first: what has one is whole
        for start in range(0, len(addresses), AT_ONCE):
            part = addresses[start : start + AT_ONCE]
            for address in part:
                if address not in needed:
                    await self._origin.delete(address)
                    self.removed += 1
            await self._store.write(lambda writer, part=part: self._forget(writer, root, part), quiet=True)  # type: ignore[misc]

    def _forget(self, writer: Writer, root: bytes, addresses: Sequence[bytes]) -> None:
        rows = [(self._origin.name, root, address) for address in addresses]
        writer.connection.executemany("DELETE FROM uploaded WHERE origin = ? AND root = ? AND address = ?", rows)
