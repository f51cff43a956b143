"""Where does a fetched file land, and from when on may it be read and served?

Chunks are written where they belong in a private file of this home, in whatever order they come, and a `Record` says
which are there: whatever ends the fetch, the next one goes on with what is missing. When the last is there, the file is
made durable, gets its name, and is entered in the catalogue as a plain file that holds the content: from then on it
is read from there, and served to others from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.fetching.opening import Opener
from p2pqueue.payload.fetching.record import COMMIT_EVERY, Record
from p2pqueue.payload.format import TAG_SIZES
from p2pqueue.payload.manifest import Chunk, FileManifest
from p2pqueue.payload.names import safe_name
from p2pqueue.payload.plain import identify, settle
from p2pqueue.payload.publish import enter_fetched
from p2pqueue.private import FILE_MODE, in_words, make_private_dir, sync_dir

PART: Final = "part"  # its content so far
TREE: Final = "tree"  # what there is of a folder
HAVE: Final = "have"  # the record of what is there
WHAT: Final = "what"  # its capability, name, size and kind
KEPT_FOR: Final = 7 * 86_400.0  # seconds without a fetch after which a half-done file is removed
IDLE_AFTER: Final = 300.0  # seconds without a fetch after which one may be removed because its room is needed


class Landing:
    """The file that one fetch writes. A context; what is there at its end stays for the next fetch of that file.

    `write` may be called by several threads at once.
    """

    def __init__(self, landings: Path, outputs: Path, root: Capability, manifest: FileManifest) -> None:
        self._manifest = manifest
        self._outputs = outputs
        self._folder = folder_of(landings, root)
        self._state = threading.Condition()
        self._writes = 0  # under way in threads, which can't be cancelled
        self._uncommitted = 0  # bytes
        self._committing = False
        self._opener = Opener(manifest.algorithm)
        self._tag_size = TAG_SIZES.get(manifest.algorithm, 0)
        self._tags = bytearray(self._tag_size * manifest.chunk_count)  # of what comes in this fetch
        try:
            make_private_dir(landings)
            make_private_dir(self._folder)
            note(self._folder, root, manifest.name, manifest.size, "file")
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
            self._descriptor = os.open(self._folder / PART, flags, FILE_MODE)
        except OSError as error:
            raise in_words(error, self._folder) from error
        try:
            if os.fstat(self._descriptor).st_size != manifest.size:  # what the record says was written to another file
                (self._folder / HAVE).unlink(missing_ok=True)
                os.ftruncate(self._descriptor, manifest.size)
            self._record = Record(self._folder / HAVE, manifest.chunk_count, manifest.content)
        except OSError as error:
            os.close(self._descriptor)
            raise in_words(error, self._folder) from error

    @property
    def here(self) -> bytes:
        """A bit for each chunk that is there and checked, the lowest first."""
        return self._record.here

    def __enter__(self) -> Landing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        descriptor = self._close_for_writing()
        if descriptor >= 0:
            if self._uncommitted:
                with contextlib.suppress(OSError):  # a full disk: then what was forced to it before counts
                    self._record.commit(descriptor)
            os.close(descriptor)
            is_empty = not any(self._record.here)
            self._record.close()
            if is_empty:
                remove_landing(self._folder)

    def touch(self) -> None:
        """Says that the fetch goes on, so that no sweep takes the folder for a left-over."""
        os.utime(self._folder)

    def write(self, number: int, chunk: Chunk, shard: memoryview | bytes, also: Sequence[tuple[int, Chunk]] = ()) -> bool:
        """Checks and opens a shard, and writes its chunk where it belongs; says whether it was written.

        `also` are the other places of the same chunk, as a file full of zeros has them.
        Raises `BadShard` for another shard than was asked for, `MalformedMessage` where the manifest itself is wrong,
        and `DiskFull` and its like.
        """
        tag = bytes(shard[chunk.plain_size :])
        plain = self._opener.open(chunk, shard)
        with self._writing() as descriptor:
            if descriptor < 0:
                return False  # nobody waits for it any more
            for each, where in ((number, chunk), *also):
                _write_at(descriptor, plain[where.skip : where.skip + where.size], where.offset)
                self._tags[each * self._tag_size : (each + 1) * self._tag_size] = tag
                self._record.mark(each)
                if self._is_due(where.size):
                    self._commit(descriptor)
        return True

    def finish(self, batch: Batch, root: Capability) -> Path:
        """Makes the file durable and enters it, with the shards of its manifest, which are in the batch; gives its path."""
        folder = self._outputs / os.urandom(8).hex()
        target = folder / safe_name(self._manifest.name)
        descriptor = self._close_for_writing()
        try:
            os.fsync(descriptor)
            os.close(descriptor)
            make_private_dir(self._outputs)
            make_private_dir(folder)
            os.rename(self._folder / PART, target)
            sync_dir(folder)
            identity = identify(target)
            assert identity is not None
            settle(identity)

            def enter(connection: sqlite3.Connection) -> None:
                enter_fetched(connection, root, self._manifest, identity, batch.addresses, tags=self._tags)

            batch.end(enter, keep=root.address)
        except BaseException as error:
            if target.exists():
                os.rename(target, self._folder / PART)
                folder.rmdir()
            if isinstance(error, OSError):
                raise in_words(error, self._folder) from error
            raise
        finally:
            self._record.close()
        remove_landing(self._folder)
        return target

    def _close_for_writing(self) -> int:
        """The descriptor, to which nothing is written any more: a late write would change a file that others know by its time."""
        with self._state:
            descriptor, self._descriptor = self._descriptor, -1
            while self._writes:
                self._state.wait()
        return descriptor

    @contextlib.contextmanager
    def _writing(self) -> Iterator[int]:
        with self._state:
            descriptor = self._descriptor
            self._writes += descriptor >= 0
        try:
            yield descriptor
        except OSError as error:
            raise in_words(error, self._folder) from error
        finally:
            if descriptor >= 0:
                with self._state:
                    self._writes -= 1
                    self._state.notify_all()

    def _is_due(self, size: int) -> bool:
        with self._state:
            self._uncommitted += size
            if self._committing or self._uncommitted < COMMIT_EVERY:
                return False
            self._committing, self._uncommitted = True, 0
            return True

    def _commit(self, descriptor: int) -> None:
        try:
            self._record.commit(descriptor)
        finally:
            with self._state:
                self._committing = False


def sweep_landings(landings: Path, *, older_than: float = KEPT_FOR, needed: int | None = None, but: Capability | None = None) -> int:
    """Removes half-done files that nobody has fetched for a while, the oldest first; tells the bytes freed.

    With `needed`, only as long as fewer bytes than that are freed; that of `but` stays.
    """
    freed, now = 0, time.time()
    found = []
    for folder in landings.glob("*"):
        try:
            found.append((folder.stat().st_mtime, folder))
        except OSError:
            continue  # it has just ended
    for touched_at, folder in sorted(found):
        if now - touched_at >= older_than and (but is None or folder.name != but.address.hex()) and (needed is None or freed < needed):
            freed += remove_landing(folder)
    return freed


def allocated(landings: Path, root: Capability) -> int:
    """How many bytes a half-done file or folder takes on the disk already."""
    try:
        found = os.stat(folder_of(landings, root) / PART)
    except OSError:
        return allocated_below(folder_of(landings, root) / TREE)
    return getattr(found, "st_blocks", 0) * 512


def allocated_below(folder: Path) -> int:
    """How many bytes the files below a folder take."""
    size = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                size += getattr(os.lstat(os.path.join(path, name)), "st_blocks", 0) * 512
            except OSError:
                continue
    return size


def note(folder: Path, root: Capability, name: str, size: int, kind: str) -> None:
    """Writes down what there is a part of, for whoever lists it."""
    told = json.dumps({"capability": root.text, "name": name, "size": size, "kind": kind}).encode()
    descriptor = os.open(folder / WHAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), FILE_MODE)
    with open(descriptor, "wb") as file:
        file.write(told)


def folder_of(landings: Path, root: Capability) -> Path:
    """Where what there is of a file or folder lies."""
    return landings / root.address.hex()


def remove_landing(folder: Path) -> int:
    """Removes what there is of a file or folder; tells the bytes freed."""
    freed = allocated_below(folder / TREE)
    shutil.rmtree(folder / TREE, ignore_errors=True)
    for name in (PART, HAVE, WHAT):
        try:
            found = (folder / name).stat()
            (folder / name).unlink()
            freed += getattr(found, "st_blocks", found.st_size // 512) * 512
        except OSError:
            continue
    try:
        folder.rmdir()
    except OSError:
        pass  # gone already, or the next sweep tries again
    return freed


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
