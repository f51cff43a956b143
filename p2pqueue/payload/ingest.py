"""How is a file read, once, into the references of its manifest?

Chunk after chunk goes through kept buffers: hashed, sealed, addressed. The sealed bytes are handed to `keep` where the
file is to be stored, and forgotten where it is served from where it lies. The hash of the whole is made beside it.
Large files use the cores of the machine, a few chunks ahead; memory stays the same whatever the size.
"""

from __future__ import annotations

import contextlib
import io
import mimetypes
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from p2pqueue.errors import InputUnreadable, WorldError
from p2pqueue.payload.manifest import FileManifest, chunk_size_of
from p2pqueue.payload.names import wellformed_name
from p2pqueue.payload.plain import FileIdentity, changed, identify, identify_open, shown, unreadable
from p2pqueue.payload.seal import Sealer, Shard, preferred_algorithm
from p2pqueue.payload.store import read_whole

MOST_THREADS: Final = 3  # beside the reading one: with more, reading is what takes longest
FEWEST_CHUNKS: Final = 4  # below, starting threads costs more than it brings

_TYPES: Final = mimetypes.MimeTypes()  # the built-in table, so that a name has one media type on every device


class IngestStopped(WorldError):
    """Reading a file in was stopped before its end; nothing of it is kept."""


@dataclass(frozen=True)
class Ingest:
    """What to tell, and whom, while a file is read."""

    space_key: bytes
    algorithm: int | None = None
    threads: int | None = None  # beside the caller's; None: by cores and size
    on_progress: Callable[[int, int], None] | None = None  # bytes done, bytes in all
    stop: Callable[[], bool] | None = None


def seal_file(
    file: io.FileIO, identity: FileIdentity, name: str, ingest: Ingest, keep: Callable[[Shard], None] | None = None
) -> FileManifest:
    """The manifest of an open file, whose shards go to `keep` in their order.

    Raises `InputChanged` when the file didn't stay as it was, `InputUnreadable`, and `IngestStopped`.
    """
    pipeline = _Pipeline(identity, ingest, keep)
    pipeline.run(file)
    check_unchanged(file, identity)
    return FileManifest(
        wellformed_name(name),
        media_type_of(name),
        identity.size,
        pipeline.whole.digest(),
        pipeline.algorithm,
        bytes(pipeline.references),
    )


def seal_bytes(data: bytes | memoryview, name: str, ingest: Ingest, keep: Callable[[Shard], None]) -> FileManifest:
    """The manifest of content that lies in memory, whose shards go to `keep`."""
    view, chunk_size = memoryview(data), chunk_size_of(len(data))
    sealer = Sealer(ingest.space_key, algorithm=ingest.algorithm, capacity=min(chunk_size, len(data)))
    references = bytearray()
    for offset in range(0, len(data), chunk_size):
        shard = sealer.seal(view[offset : offset + chunk_size])
        references += shard.address + shard.key
        keep(shard)
    called = wellformed_name(name)
    return FileManifest(called, media_type_of(name), len(data), blake3(data).digest(), sealer.algorithm, bytes(references))


@dataclass
class _Lane:
    """Buffers for one chunk under way."""

    plain: memoryview
    sealer: Sealer
    size: int = 0

    def seal(self) -> Shard:
        return self.sealer.seal(self.plain[: self.size])


class _Pipeline:
    """Reads in the caller's thread, which also hashes the whole; seals in the others, or in the same if there are none."""

    def __init__(self, identity: FileIdentity, ingest: Ingest, keep: Callable[[Shard], None] | None) -> None:
        self.algorithm = ingest.algorithm or preferred_algorithm()
        self.whole = blake3()
        self.references = bytearray()
        self._identity, self._ingest, self._keep = identity, ingest, keep
        self._chunk_size = chunk_size_of(identity.size)
        self._threads = _threads(ingest, -(-identity.size // self._chunk_size))
        self._free = deque(self._lane() for _ in range(self._threads + 1))
        self._under_way: deque[tuple[_Lane, Future[Shard]]] = deque()
        self._done = 0

    def run(self, file: io.FileIO) -> None:
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="p2pqueue-seal") if self._threads else None
        with pool or contextlib.nullcontext():
            for offset in range(0, self._identity.size, self._chunk_size):
                if self._ingest.stop is not None and self._ingest.stop():
                    raise IngestStopped(f"{shown(self._identity.path)} was not read to its end")
                if not self._free:
                    self._take_oldest()
                lane = self._free.popleft()
                lane.size = min(self._chunk_size, self._identity.size - offset)
                _fill(file, lane, self._identity)
                self._seal(lane, pool)
            while self._under_way:
                self._take_oldest()

    def _seal(self, lane: _Lane, pool: ThreadPoolExecutor | None) -> None:
        if pool is not None:
            self._under_way.append((lane, pool.submit(lane.seal)))
        self.whole.update(lane.plain[: lane.size])
        if pool is None:
            self._take(lane, lane.seal())

    def _take_oldest(self) -> None:
        lane, sealing = self._under_way.popleft()
        self._take(lane, sealing.result())

    def _take(self, lane: _Lane, shard: Shard) -> None:
        self.references += shard.address + shard.key
        if self._keep is not None:
            self._keep(shard)
        self._done += lane.size
        if self._ingest.on_progress is not None:
            self._ingest.on_progress(self._done, self._identity.size)
        self._free.append(lane)

    def _lane(self) -> _Lane:
        capacity = min(self._identity.size, self._chunk_size)
        return _Lane(memoryview(bytearray(capacity)), Sealer(self._ingest.space_key, algorithm=self.algorithm, capacity=capacity))


def check_unchanged(file: io.FileIO, identity: FileIdentity) -> None:
    """Raises `InputChanged` when an open file, or what lies at its path, is not what it was."""
    if identify_open(file, identity.path) != identity or identify(identity.path) != identity:
        raise changed(identity.path)
    if not identity.size and file.read(1):
        raise InputUnreadable(f"{shown(identity.path)} doesn't tell its size; copy what it holds to a file first")


def media_type_of(name: str) -> str:
    """The media type that a name's extension stands for."""
    return _TYPES.guess_type(name)[0] or "application/octet-stream"


def _fill(file: io.FileIO, lane: _Lane, identity: FileIdentity) -> None:
    try:
        read = read_whole(file.readinto, lane.plain[: lane.size])
    except OSError as error:
        raise unreadable(identity.path, error) from error
    if read < lane.size:
        raise changed(identity.path)


def _threads(ingest: Ingest, chunks: int) -> int:
    if chunks < FEWEST_CHUNKS:
        return 0
    if ingest.threads is not None:
        return ingest.threads
    cores = os.cpu_count() or 1
    return min(MOST_THREADS, cores) if cores > 1 else 0
