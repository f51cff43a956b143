"""How is a file read, once, into the references of its manifest?

Chunk after chunk goes through kept buffers: hashed, sealed, addressed. The sealed bytes are handed to `keep` where the
file is to be stored, and forgotten where it is served from where it lies. The hash of the whole is made beside it.
Large files use the cores of the machine, a few chunks ahead; memory stays the same whatever the size.
"""

from __future__ import annotations

import functools
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
from p2pqueue.payload.memory import pages
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
class Lane:
    """Buffers for one chunk under way."""

    plain: memoryview
    sealer: Sealer
    size: int = 0

    def seal(self) -> Shard:
        """The shard of what was filled in."""
        return self.sealer.seal(self.plain[: self.size])


class Line:
    """Seals chunk after chunk in kept buffers, in threads beside the caller's, or in the caller's if there are none.

    What is made of each is handed to the caller in the order in which it was sent: in the caller's thread, while the
    caller waits for a free lane or for the end. A context.
    """

    def __init__(self, space_key: bytes, algorithm: int, threads: int) -> None:
        self.algorithm = algorithm
        self._space_key = space_key
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="p2pqueue-seal") if threads else None
        self._free: deque[Lane | None] = deque([None] * (threads + 2))  # None: not made yet; one may be filled bit by bit
        self._under_way: deque[tuple[Lane, Future[Shard], Callable[[Shard], None]]] = deque()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def lane(self, capacity: int) -> Lane:
        """A lane with room for a chunk of that size, as soon as there is one."""
        while not self._free:
            self._take_oldest()
        lane = self._free.popleft()
        if lane is None or len(lane.plain) < capacity:
            lane = Lane(pages(capacity), Sealer(self._space_key, algorithm=self.algorithm, capacity=capacity))
        return lane

    def send(self, lane: Lane, then: Callable[[Shard], None]) -> None:
        """Seals what was filled in; `then` gets the shard. It may be called at once."""
        if self._pool is None:
            then(lane.seal())
            self._free.append(lane)
        else:
            self._under_way.append((lane, self._pool.submit(lane.seal), then))

    def give_back(self, lane: Lane) -> None:
        """The lane isn't needed after all."""
        self._free.append(lane)

    def drain(self) -> None:
        """Waits until everything that was sent is sealed and handed over."""
        while self._under_way:
            self._take_oldest()

    def _take_oldest(self) -> None:
        lane, sealing, then = self._under_way.popleft()
        then(sealing.result())
        self._free.append(lane)


class _Pipeline:
    """Reads in the caller's thread, which also hashes the whole, and sends chunk after chunk down the line."""

    def __init__(self, identity: FileIdentity, ingest: Ingest, keep: Callable[[Shard], None] | None) -> None:
        self.algorithm = ingest.algorithm or preferred_algorithm()
        self.whole = blake3()
        self.references = bytearray()
        self._identity, self._ingest, self._keep = identity, ingest, keep
        self._chunk_size = chunk_size_of(identity.size)
        self._done = 0

    def run(self, file: io.FileIO) -> None:
        threads = _threads(self._ingest, -(-self._identity.size // self._chunk_size))
        with Line(self._ingest.space_key, self.algorithm, threads) as line:
            for offset in range(0, self._identity.size, self._chunk_size):
                check_going(self._ingest, self._identity.path)
                lane = line.lane(min(self._identity.size, self._chunk_size))
                lane.size = min(self._chunk_size, self._identity.size - offset)
                fill(file, lane.plain[: lane.size], self._identity)
                content = lane.plain[: lane.size]
                line.send(lane, functools.partial(self._take, lane.size))
                self.whole.update(content)  # no lane is filled again before the next turn
            line.drain()

    def _take(self, size: int, shard: Shard) -> None:
        self.references += shard.address + shard.key
        if self._keep is not None:
            self._keep(shard)
        self._done += size
        if self._ingest.on_progress is not None:
            self._ingest.on_progress(self._done, self._identity.size)


def check_going(ingest: Ingest, path: str) -> None:
    """Raises `IngestStopped` where whoever reads a path in shall stop."""
    if ingest.stop is not None and ingest.stop():
        raise IngestStopped(f"{shown(path)} was not read to its end")


def check_unchanged(file: io.FileIO, identity: FileIdentity) -> None:
    """Raises `InputChanged` when an open file, or what lies at its path, is not what it was."""
    if identify_open(file, identity.path) != identity or identify(identity.path) != identity:
        raise changed(identity.path)
    if not identity.size and file.read(1):
        raise InputUnreadable(f"{shown(identity.path)} doesn't tell its size; copy what it holds to a file first")


def media_type_of(name: str) -> str:
    """The media type that a name's extension stands for."""
    return _TYPES.guess_type(name)[0] or "application/octet-stream"


def fill(file: io.FileIO, buffer: memoryview, identity: FileIdentity) -> None:
    """Fills a buffer from a file. Raises `InputUnreadable`, and `InputChanged` where it has not so much any more."""
    try:
        read = read_whole(file.readinto, buffer)
    except OSError as error:
        raise unreadable(identity.path, error) from error
    if read < len(buffer):
        raise changed(identity.path)


def _threads(ingest: Ingest, chunks: int) -> int:
    if chunks < FEWEST_CHUNKS:
        return 0
    if ingest.threads is not None:
        return ingest.threads
    cores = os.cpu_count() or 1
    return min(MOST_THREADS, cores) if cores > 1 else 0
