"""Where does a fetched folder land, and from when on may it be read and served?

As a single file does (`landing`): its files are written where they belong, below a private folder of this home, while
a record says which chunks are there. A chunk of many small files is written and noted as one; nothing is forced to the
disk file by file, but the whole of it at once, every 64 MiB and at the end.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Final

import msgpack

from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.fetching.landing import HAVE, TREE, folder_of, note, remove_landing
from p2pqueue.payload.fetching.opening import Opener
from p2pqueue.payload.fetching.record import Record
from p2pqueue.payload.folders import enter_folder_at
from p2pqueue.payload.layout import Layout
from p2pqueue.payload.listing import listed
from p2pqueue.payload.manifest import Chunk
from p2pqueue.payload.names import safe_name
from p2pqueue.payload.packing import Piece
from p2pqueue.payload.plain import settle_since
from p2pqueue.payload.publish import add_file, add_uses, go_on_plain
from p2pqueue.payload.saving import open_up
from p2pqueue.payload.scan import Scan, scan
from p2pqueue.payload.unpacking import Unpacking, sync_below
from p2pqueue.private import in_words, make_private_dir, sync_dir

SYNC_EVERY: Final = 64 * 1024**2  # bytes of chunks after which they are forced to the disk


class FolderLanding:
    """The folder that one fetch writes. A context; what is there at its end stays for the next fetch of that folder.

    `write` may be called by several threads at once.
    """

    def __init__(self, landings: Path, outputs: Path, root: Capability, layout: Layout) -> None:
        self._layout = layout
        self._outputs = outputs
        self._folder = folder_of(landings, root)
        self._tree = self._folder / TREE
        self._state = threading.Condition()
        self._writes = 0  # under way in threads, which can't be cancelled
        self._unsynced = 0  # bytes
        self._is_open = True
        self._opener = Opener(layout.algorithm)
        try:
            make_private_dir(landings)
            make_private_dir(self._folder)
            note(self._folder, root, layout.name, layout.size, "folder")
            if not self._tree.is_dir():  # what the record says was written elsewhere
                (self._folder / HAVE).unlink(missing_ok=True)
            self._unpacking = Unpacking(self._tree, layout)
            self._record = Record(self._folder / HAVE, layout.chunk_count, root.address)
        except OSError as error:
            raise in_words(error, self._folder) from error

    @property
    def here(self) -> bytes:
        """A bit for each chunk that is there and checked, the lowest first."""
        return self._record.here

    def __enter__(self) -> FolderLanding:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._close_for_writing():
            is_empty = not any(self._record.here)
            self._record.close()
            if is_empty:
                remove_landing(self._folder)

    def touch(self) -> None:
        """Says that the fetch goes on, so that no sweep takes the folder for a left-over."""
        os.utime(self._folder)

    def write(self, number: int, chunk: Chunk, shard: memoryview | bytes, also: Sequence[tuple[int, Chunk]] = ()) -> bool:
        """As `Landing.write`; the chunks of a folder are distinct, so that `also` is empty."""
        plain = self._opener.open(chunk, shard)
        with self._state:
            if not self._is_open:
                return False  # nobody waits for it any more
            self._writes += 1
        try:
            self._unpacking.write(number, plain)
            self._record.mark(number)
            if self._is_due(chunk.size):
                self._record.commit(lambda: sync_below(self._tree))
        except OSError as error:
            raise in_words(error, self._folder) from error
        finally:
            with self._state:
                self._writes -= 1
                self._state.notify_all()
        return True

    def finish(self, batch: Batch, root: Capability) -> Path:
        """Makes all files durable and enters the folder, with the shards of its manifest, which are in the batch; gives its path."""
        folder = self._outputs / os.urandom(8).hex()
        target = folder / safe_name(self._layout.name)
        self._close_for_writing()
        try:
            open_up(self._tree)
            sync_below(self._tree)
            make_private_dir(self._outputs)
            make_private_dir(folder)
            os.rename(self._tree, target)
            sync_dir(folder)
            self._enter(batch, root, scan(target))
        except BaseException as error:
            if target.exists():
                os.rename(target, self._tree)
                folder.rmdir()
            if isinstance(error, OSError):
                raise in_words(error, self._folder) from error
            raise
        finally:
            self._record.close()
        remove_landing(self._folder)
        return target

    def _enter(self, batch: Batch, root: Capability, found: Scan) -> None:
        settle_since(found.newest)
        listings, marks = listed(found)
        digest, layout = found.digest, self._layout

        def enter(connection: sqlite3.Connection) -> None:
            pieces = self._pieces(marks)
            number = enter_folder_at(connection, found.base, digest, listings, pieces, owned=True)
            add_file(connection, root, layout.name, layout.content_size, folder=number, kind="folder", fetched=True)
            add_uses(connection, root, batch.addresses)
            go_on_plain(connection, root)

        batch.end(enter, keep=root.address)

    def _pieces(self, marks: dict[str, str]) -> Iterator[Piece]:
        """Of which pieces of files each chunk is made."""
        layout = self._layout
        for number in range(layout.chunk_count):
            chunk, end, pieces = layout.chunk(number), 0, []
            for file, offset, skip, size in sorted(layout.places(number), key=itemgetter(2)):
                local = self._unpacking.local(file)
                if skip == end and local in marks:  # another file of the same content begins earlier
                    pieces.append((os.fsencode(local), marks[local], offset, size))
                    end += size
            if end == chunk.plain_size:
                yield chunk.address, layout.algorithm, chunk.key, end, msgpack.packb(pieces), b""

    def _close_for_writing(self) -> bool:
        """Says whether it was open. A late write would change files that others know by their times."""
        with self._state:
            was_open, self._is_open = self._is_open, False
            while self._writes:
                self._state.wait()
        return was_open

    def _is_due(self, size: int) -> bool:
        with self._state:
            self._unsynced += size
            if self._unsynced < SYNC_EVERY:
                return False
            self._unsynced = 0
            return True
