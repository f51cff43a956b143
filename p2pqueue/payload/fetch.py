"""How does a file come to this device from the others?

First the shards of its manifest, then its chunks, from every source that has some, several at a time. Each is checked
against its address, opened and written where it belongs; memory stays the same whatever the size. A source that fails,
lies or falls silent costs time and nothing else: what was asked of it is asked of another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from p2pqueue.errors import BadShard, MalformedMessage, P2PQueueError, PayloadUnavailable
from p2pqueue.payload.batch import Batch
from p2pqueue.payload.budget import Budget
from p2pqueue.payload.capability import Capability, parse_capability
from p2pqueue.payload.format import LARGEST_SHARD, TAG_SIZES
from p2pqueue.payload.landing import Landing, manifest_shard
from p2pqueue.payload.manifest import Chunk, FileManifest, FolderManifest, PartedManifest, decode
from p2pqueue.payload.names import safe_name
from p2pqueue.payload.plan import Plan
from p2pqueue.payload.publish import enter_folder
from p2pqueue.payload.seal import open_into
from p2pqueue.payload.shelf import Shelf
from p2pqueue.payload.source import Lane, ShardMissing, Source, SourceFailed

IN_FLIGHT: Final = 32 * 1024**2  # bytes of shards that are asked for, or wait to be written, in this process
SLOWEST: Final = 20.0  # seconds after which a shard that was asked for is asked of another source
ORIGIN_AFTER: Final = 2.0  # seconds without a shard from a peer after which the origin is asked too
PATIENCE: Final = 6.0  # seconds without any source that has a use before the fetch is given up
TOUCH_EVERY: Final = 30.0  # seconds
LOOK_EVERY: Final = 0.25  # seconds between two looks for sources that came or went
DEEPEST: Final = 64  # manifests of manifests in one another
_TOLD: Final = 3  # reasons that are told when a fetch is given up

Progress = Callable[[int, int], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fetched:
    """What a fetch brought: bytes by (source, lane). Nothing where everything was here already."""

    received: dict[tuple[str, Lane], int]


class Fetcher:
    """Brings files to a shelf. `sources` is asked again and again for the sources there are now."""

    def __init__(self, shelf: Shelf, sources: Callable[[], Sequence[Source]]) -> None:
        self._shelf = shelf
        self._sources = sources
        self._under_way: dict[bytes, asyncio.Lock] = {}
        self._room = Budget(IN_FLIGHT)

    async def fetch(self, capability: str, *, on_progress: Progress | None = None) -> Fetched:
        """Makes the shelf hold a file, or all files that a manifest lists.

        `on_progress` is told the bytes that came and those of the whole file. Raises `PayloadUnavailable` where no
        source has it now (what came of it is let go), `BadShard` and `MalformedMessage` for a manifest that is wrong,
        and `DiskFull`.
        """
        root = parse_capability(capability)
        lock = self._under_way.setdefault(root.address, asyncio.Lock())
        received: Counter[tuple[str, Lane]] = Counter()
        try:
            async with lock:  # several jobs may want one file
                await self._fetch(root, received, on_progress)
        finally:
            if not lock.locked():
                self._under_way.pop(root.address, None)
        return Fetched(dict(received))

    async def describe(self, capability: str) -> FileManifest | FolderManifest:
        """What a manifest tells, of which nothing else is fetched and nothing kept. Raises as `fetch` does."""
        with self._shelf.batch() as batch:
            return await _Manifests(self._sources, batch, Counter()).read(parse_capability(capability))

    async def _fetch(
        self, root: Capability, received: Counter[tuple[str, Lane]], on_progress: Progress | None, *, depth: int = 0
    ) -> None:  # fmt: skip
        if depth > DEEPEST:
            raise MalformedMessage(f"its manifests are nested more than {DEEPEST} deep")
        if await asyncio.to_thread(self._shelf.holds, root.text):
            return
        with self._shelf.batch() as batch:
            manifest = await _Manifests(self._sources, batch, received).read(root)
            if isinstance(manifest, FolderManifest):
                for entry in manifest.entries:
                    await self._fetch(entry.capability, received, None, depth=depth + 1)
                folder = manifest
                await asyncio.to_thread(
                    batch.end, lambda connection: enter_folder(connection, root, folder, batch.addresses), keep=root.address
                )
                return
            with await asyncio.to_thread(self._shelf.landing, manifest) as landing:
                await _Transfer(manifest, landing, self._sources, self._room, received, on_progress).run()
                await asyncio.to_thread(landing.finish, batch, root)


class _Manifests:
    """Fetches the shards of a manifest one after the other; there are few."""

    def __init__(self, sources: Callable[[], Sequence[Source]], batch: Batch, received: Counter[tuple[str, Lane]]) -> None:
        self._sources = sources
        self._batch = batch
        self._received = received

    async def read(self, root: Capability) -> FileManifest | FolderManifest:
        first = Chunk(root.address, root.key, root.size, 0, 0, root.size)
        manifest = decode(await self._plain(first, root.algorithm))
        if not isinstance(manifest, PartedManifest):
            return manifest
        references = bytearray()
        for part in manifest.chunks():
            references += await self._plain(part, manifest.head.algorithm)
        return manifest.complete(bytes(references))

    async def _plain(self, chunk: Chunk, algorithm: int) -> bytes:
        size = chunk.plain_size + TAG_SIZES.get(algorithm, 0)
        until = time.monotonic() + PATIENCE
        refused: set[str] = set()
        reasons: dict[str, str] = {}
        while True:
            for source in sorted(self._sources(), key=lambda source: source.is_last_resort):
                if source.name in refused:
                    continue
                try:
                    async with asyncio.timeout(SLOWEST):
                        body = await source.shard(chunk.address, size)
                    shard = manifest_shard(chunk, body)
                    plain = memoryview(bytearray(chunk.plain_size))
                    open_into(algorithm, chunk.key, shard.body, plain)
                except (ShardMissing, SourceFailed, TimeoutError) as error:
                    reasons[source.name] = str(error)
                    continue
                except BadShard as error:
                    _log.warning("%s sent a wrong shard: %s", source.name, error)
                    refused.add(source.name)
                    continue
                self._received[source.name, source.lane] += len(body)
                await asyncio.to_thread(self._batch.add, shard)
                return bytes(plain)
            if time.monotonic() >= until:
                if any(reasons.values()):
                    raise PayloadUnavailable(f"its manifest can't be had: {_told(reasons)} (shard {chunk.address.hex()})")
                raise PayloadUnavailable(f"no device that is linked has shard {chunk.address.hex()} of its manifest, and no origin has it")
            await asyncio.sleep(LOOK_EVERY)


class _Transfer:
    """Brings the chunks of one file."""

    def __init__(
        self, manifest: FileManifest, landing: Landing, sources: Callable[[], Sequence[Source]], room: Budget,
        received: Counter[tuple[str, Lane]], on_progress: Progress | None,
    ) -> None:  # fmt: skip
        self._manifest = manifest
        self._landing = landing
        self._sources = sources
        self._room = room
        self._received = received
        self._on_progress = on_progress
        self._plan = Plan(range(manifest.chunk_count))
        self._size = min(LARGEST_SHARD, (manifest.shared or manifest.chunk_size) + TAG_SIZES.get(manifest.algorithm, 0))
        self._came = 0
        self._delivered_at = time.monotonic()  # when a peer delivered last
        self._changed = asyncio.Event()
        self._failure: P2PQueueError | None = None
        self._reasons: dict[str, str] = {}  # by source: why it can't give what it once had, or failed last
        self._pulls: dict[tuple[str, Lane], list[asyncio.Task[None]]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self._drive(group)
            for task in self._running():
                task.cancel()
        if self._failure is not None:
            raise self._failure

    async def _drive(self, group: asyncio.TaskGroup) -> None:
        useful_at = touched_at = time.monotonic()
        while not self._plan.finished and self._failure is None:
            now = time.monotonic()
            useful = [source for source in self._sources() if self._is_due(source, now)]
            for source in useful:
                key = (source.name, source.lane)
                if all(task.done() for task in self._pulls.get(key, ())):
                    self._pulls[key] = [group.create_task(self._pull(source)) for _ in range(source.parallel)]
            if useful or self._running():
                useful_at = now
            elif now - useful_at >= PATIENCE:
                self._failure = PayloadUnavailable(self._lacking())
            if now - touched_at >= TOUCH_EVERY:
                self._landing.touch()
                touched_at = now
            self._changed.clear()
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _lacking(self) -> str:
        shard = self._manifest.chunk(self._plan.first_undone).address.hex()
        more = f" and {self._plan.undone - 1} more" if self._plan.undone > 1 else ""
        if self._reasons:
            return f"{safe_name(self._manifest.name)} can't be had: {_told(self._reasons)} (shard {shard}{more})"
        return f"no device that is linked has all of {safe_name(self._manifest.name)}, and no origin has the rest: shard {shard}{more}"

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._pulls.values() for task in tasks if not task.done()]

    def _is_due(self, source: Source, now: float) -> bool:
        if not self._plan.has_use_for(source.name, now):
            return False
        return not source.is_last_resort or now - self._delivered_at >= ORIGIN_AFTER

    async def _pull(self, source: Source) -> None:
        while (number := self._plan.take(source.name, time.monotonic())) is not None:
            async with self._room.of(self._size):
                await self._bring(source, number)

    async def _bring(self, source: Source, number: int) -> None:
        chunk, plan = self._manifest.chunk(number), self._plan
        try:
            async with asyncio.timeout(SLOWEST):
                body = await source.shard(chunk.address, self._size)
            await asyncio.to_thread(self._landing.write, chunk, body)
        except ShardMissing as error:
            plan.missing(number, source.name)
            self._remember(source, str(error))
        except BadShard as error:
            _log.warning("%s sent a wrong shard: %s", source.name, error)
            plan.wrong(number, source.name)
        except (SourceFailed, TimeoutError) as error:
            _log.debug("%s failed: %s", source.name, error)
            plan.failed(number, source.name, time.monotonic())
            self._remember(source, str(error) or "it did not answer in time")
        except P2PQueueError as error:  # this disk
            self._failure = error
        else:
            self._took(source, number, chunk.size, len(body))
        finally:
            self._changed.set()

    def _remember(self, source: Source, words: str) -> None:
        if words:
            self._reasons[source.name] = words

    def _took(self, source: Source, number: int, size: int, received: int) -> None:
        self._received[source.name, source.lane] += received
        self._reasons.pop(source.name, None)
        if not source.is_last_resort:
            self._delivered_at = time.monotonic()
        if self._plan.came(number, source.name):
            self._came += size
            if self._on_progress is not None:
                self._on_progress(self._came, self._manifest.size)


def _told(reasons: Mapping[str, str]) -> str:
    return "; ".join(sorted({words for words in reasons.values() if words})[:_TOLD])
