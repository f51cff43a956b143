"""Where does a fetched file land, and from when on may it be read and served?

Chunks are written where they belong in a private file of this home, in whatever order they come. When the last is
there, the file is made durable, gets its name, and is entered in the catalogue as a plain file that holds the
content: from then on it is read from there, and served to others from there.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from types import TracebackType

from p2pqueue.errors import BadShard
from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.format import TAG_SIZES
from p2pqueue.payload.manifest import Chunk, FileManifest
from p2pqueue.payload.names import safe_name
from p2pqueue.payload.plain import identify, settle
from p2pqueue.payload.publish import enter_fetched
from p2pqueue.payload.seal import Shard, address_of, open_into
from p2pqueue.private import FILE_MODE, in_words, make_private_dir, sync_dir


class Landing:
    """The file that one fetch writes. A context: what did not come to its end leaves no trace.

    `write` may be called by several threads at once.
    """

    def __init__(self, folder: Path, manifest: FileManifest) -> None:
        self._manifest = manifest
        self._folder = folder / os.urandom(8).hex()
        self._target = self._folder / safe_name(manifest.name)
        self._part = self._folder / ".part"
        self._kept = False
        self._writes = 0  # under way in threads, which can't be cancelled
        self._calm = threading.Condition()
        try:
            make_private_dir(folder)
            make_private_dir(self._folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(self._part, flags, FILE_MODE)
        except OSError as error:
            raise in_words(error, self._folder) from error

    def __enter__(self) -> Landing:
        try:
            os.ftruncate(self._descriptor, self._manifest.size)
        except OSError as error:
            self._discard()
            raise in_words(error, self._folder) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._discard()

    def touch(self) -> None:
        """Says that the fetch goes on, so that no sweep takes the folder for a left-over."""
        os.utime(self._folder)

    def write(self, chunk: Chunk, shard: bytes) -> None:
        """Checks and opens a shard, and writes its chunk where it belongs. Raises `BadShard`, and `DiskFull` and its like."""
        if address_of(shard) != chunk.address:
            raise BadShard(f"what came for shard {chunk.address.hex()} is another one")
        plain = memoryview(bytearray(max(0, len(shard) - TAG_SIZES.get(self._manifest.algorithm, 0))))
        if open_into(self._manifest.algorithm, chunk.key, shard, plain) != chunk.plain_size:
            raise BadShard(f"shard {chunk.address.hex()} has another length than its manifest says")
        with self._calm:
            descriptor = self._descriptor
            if descriptor < 0:
                return  # nobody waits for it any more
            self._writes += 1
        try:
            _write_at(descriptor, plain[chunk.skip : chunk.skip + chunk.size], chunk.offset)
        except OSError as error:
            raise in_words(error, self._folder) from error
        finally:
            with self._calm:
                self._writes -= 1
                self._calm.notify_all()

    def finish(self, batch: Batch, root: Capability) -> Path:
        """Makes the file durable and enters it, with the shards of its manifest, which are in the batch; gives its path."""
        try:
            os.fsync(self._descriptor)
            os.rename(self._part, self._target)
            sync_dir(self._folder)
        except OSError as error:
            raise in_words(error, self._folder) from error
        identity = identify(self._target)
        assert identity is not None
        settle(identity)

        def enter(connection: sqlite3.Connection) -> None:
            enter_fetched(connection, root, self._manifest, identity, batch.addresses)

        batch.end(enter, keep=root.address)
        self._kept = True
        return self._target

    def _discard(self) -> None:
        with self._calm:
            descriptor, self._descriptor = self._descriptor, -1
            while self._writes:  # else a late write would go to whatever file gets this number next
                self._calm.wait()
        if descriptor >= 0:
            os.close(descriptor)
        if not self._kept:
            self._part.unlink(missing_ok=True)
            self._target.unlink(missing_ok=True)
            self._folder.rmdir()


def sweep_landings(folder: Path) -> None:
    """Removes what the fetches of a node that was killed left half done. For a node's start: nothing else fetches."""
    for part in folder.glob("*/.part"):
        try:
            part.unlink()
            part.parent.rmdir()
        except OSError:
            continue  # the hourly sweep tries again


def manifest_shard(chunk: Chunk, shard: bytes) -> Shard:
    """A shard of a manifest as the store takes it. Raises `BadShard` for another one."""
    if address_of(shard) != chunk.address:
        raise BadShard(f"what came for shard {chunk.address.hex()} is another one")
    return Shard(chunk.address, chunk.key, memoryview(shard))


if hasattr(os, "pwrite"):

    def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written

else:
    _seeking = threading.Lock()

    def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
        with _seeking:
            os.lseek(descriptor, offset, os.SEEK_SET)
            while data:
                data = data[os.write(descriptor, data) :]
