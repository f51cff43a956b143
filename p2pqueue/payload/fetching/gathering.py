"""How is a manifest got from others, shard by shard?

There are few of them, and nothing can begin before they are here: a source that doesn't answer within a second is
not waited for, the next one is asked as well.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from p2pqueue.errors import BadShard, PayloadUnavailable
from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.fetching.source import Lane, ShardMissing, Source, SourceFailed
from p2pqueue.payload.fetching.threaded import to_end
from p2pqueue.payload.format import TAG_SIZES
from p2pqueue.payload.layout import Layout, gather
from p2pqueue.payload.limit import tells_of_pause
from p2pqueue.payload.manifest import Chunk, FileManifest, Manifest, PartedManifest, TreeManifest, decode
from p2pqueue.payload.seal import Shard, address_of, open_into

PAGES_AHEAD: Final = 8  # of a folder that are asked for at once
SLOWEST: Final = 20.0  # seconds after which an answer is not waited for any more
NEXT_AFTER: Final = 1.0  # seconds without an answer after which another source is asked as well
PATIENCE: Final = 6.0  # seconds in which nobody has it, and nobody who is linked is paused, before the fetch is given up
LOOK_EVERY: Final = 0.25  # seconds between two looks for sources that came or went
NOBODY: Final = "no device is linked, and no origin is set; start the node of a device that has it, or set an origin"
PAUSED: Final = "its transfers are paused there"
_TOLD: Final = 3  # reasons that are told

_log = logging.getLogger(__name__)


class Manifests:
    """Fetches the shards of one manifest, and adds them to a batch. `holders` tells who should have it, by id and name."""

    def __init__(
        self, sources: Callable[[], Sequence[Source]], batch: Batch, received: Counter[tuple[str, Lane]],
        holders: Callable[[], Awaitable[Sequence[tuple[str, str]]]] | None = None, *, called: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self._sources = sources
        self._holders = holders
        self._called = called
        self._batch = batch
        self._received = received
        self._refused: set[str] = set()  # names of those that sent something else
        self._reasons: dict[str, str] = {}

    async def read(self, root: Capability) -> Manifest:
        """The manifest of that capability. Raises `PayloadUnavailable`, `BadShard` and `MalformedMessage`."""
        first = Chunk(root.address, root.key, root.size, 0, 0, root.size)
        return decode(await self.plain(first, root.algorithm))

    async def complete(self, manifest: PartedManifest) -> FileManifest:
        """The manifest of a large file with its parts: some bytes for each of its chunks. Raises as `read` does."""
        references = bytearray()
        for part in manifest.chunks():
            references += await self.plain(part, manifest.head.algorithm)
        return manifest.complete(bytes(references))

    async def layout(self, manifest: TreeManifest) -> Layout:
        """Which chunks a folder is made of. Raises as `read` does."""
        gathering = gather(manifest)
        try:
            async with asyncio.TaskGroup() as group:
                coming = (group.create_task(self.plain(page, manifest.algorithm)) for page in manifest.pages())
                ahead = deque(itertools.islice(coming, PAGES_AHEAD))
                try:
                    chunk = next(gathering)
                    while True:
                        page = ahead.popleft() if ahead else None  # behind the pages come the manifests of large files
                        ahead.extend(itertools.islice(coming, 1))
                        plain = await page if page is not None else await self.plain(chunk, manifest.algorithm)
                        chunk = gathering.send(plain)
                except StopIteration as end:
                    layout: Layout = end.value
                finally:
                    for task in ahead:
                        task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return layout

    async def plain(self, chunk: Chunk, algorithm: int) -> bytes:
        """The plaintext of one shard of it."""
        until = time.monotonic() + PATIENCE
        while True:
            ready = [source for source in _in_turn(self._sources()) if source.name not in self._refused]
            found = await self._ask(ready, chunk, chunk.plain_size + TAG_SIZES.get(algorithm, 0))
            if found is not None:
                source, shard = found
                plain = memoryview(bytearray(chunk.plain_size))
                open_into(algorithm, chunk.key, shard.body, plain)
                self._received[source.name, source.lane] += len(shard.body)
                self._reasons.pop(source.name, None)
                await to_end(self._batch.add, shard)
                return bytes(plain)
            if self.paused:
                until = time.monotonic() + PATIENCE
            if time.monotonic() >= until:
                raise await self._lacking(chunk)
            await asyncio.sleep(LOOK_EVERY)

    @property
    def paused(self) -> list[str]:
        """The names of those who are there and said that their transfers are paused."""
        told = [source.name for source in self._sources() if tells_of_pause(self._reasons.get(source.name, ""))]
        return list(dict.fromkeys(told))

    async def _ask(self, sources: Sequence[Source], chunk: Chunk, size: int) -> tuple[Source, Shard] | None:
        """Asks one after the other, each as well as those before where they don't answer soon; what comes first counts."""
        found: list[tuple[Source, Shard]] = []
        ended = asyncio.Event()

        async def ask(source: Source) -> None:
            shard = await self._one(source, chunk, size)
            if shard is not None:
                found.append((source, shard))
            ended.set()

        async with asyncio.TaskGroup() as group:
            tasks = []
            for source in sources:
                ended.clear()
                tasks.append(group.create_task(ask(source)))
                await _wait(ended, NEXT_AFTER)
                if found:
                    break
            while not found and not all(task.done() for task in tasks):
                ended.clear()
                await _wait(ended, LOOK_EVERY)
            for task in tasks:
                task.cancel()
        return found[0] if found else None

    async def _one(self, source: Source, chunk: Chunk, size: int) -> Shard | None:
        try:
            async with asyncio.timeout(SLOWEST):
                return manifest_shard(chunk, await source.shard(chunk.address, size))
        except (ShardMissing, SourceFailed, TimeoutError) as error:
            self._reasons[source.name] = str(error)
        except BadShard as error:
            _log.warning("%s sent a wrong shard: %s", source.name, error)
            self._refused.add(source.name)
        return None

    async def _lacking(self, chunk: Chunk) -> PayloadUnavailable:
        _log.debug("shard %s of a manifest can't be had", chunk.address.hex())
        if any(self._reasons.values()):
            return PayloadUnavailable(f"its manifest can't be had: {joined(self._reasons, self._called)}")
        linked = {source.name for source in self._sources()}
        away = [label for name, label in (await self._holders() if self._holders is not None else ()) if name not in linked]
        if away:
            return PayloadUnavailable(only(away))
        return PayloadUnavailable("no device that is linked has it, and no origin" if linked else NOBODY)


def manifest_shard(chunk: Chunk, shard: bytes) -> Shard:
    """A shard of a manifest as the store takes it. Raises `BadShard` for another one."""
    if address_of(shard) != chunk.address:
        raise BadShard(f"what came for shard {chunk.address.hex()} is another one")
    return Shard(chunk.address, chunk.key, memoryview(shard))


def joined(reasons: Mapping[str, str], called: Callable[[str], str]) -> str:
    """Some reasons as one text, each once, and whose they are."""
    told = set()
    for name, words in reasons.items():
        label = called(name)
        if words:
            told.add(words if words.startswith(label) else f"{label}: {PAUSED if tells_of_pause(words) else words}")
    return "; ".join(sorted(told)[:_TOLD])


def only(away: Sequence[str]) -> str:
    """Says that nobody has it but these, who are not linked."""
    return f"only {', '.join(away[:_TOLD])} {'has' if len(away) == 1 else 'have'} it, and {'is' if len(away) == 1 else 'are'} not linked"


def _in_turn(sources: Sequence[Source]) -> list[Source]:
    """Peers before origins; of each device first the lane that needs no connection to be built."""
    return sorted(sources, key=lambda source: (source.is_last_resort, source.lane != "http"))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
