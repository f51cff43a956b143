"""How do new shards come to lie on this disk, whole or not at all?

Files are written under temporary names and made durable together; then they are renamed, and their rows written, in
one transaction. What a batch adds is held by a *temporary root*, for an hour after its end: by then a job's row
names the manifest, or nobody will.
"""

from __future__ import annotations

import io
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.seal import Shard
from p2pqueue.payload.store import INLINE_LIMIT, ShardStore, is_unneeded
from p2pqueue.private import FILE_MODE, in_words, make_private_dir, sync_dir

BATCH_SIZE: Final = 32 * 1024**2  # bytes that become durable together

ADD_SHARD: Final = """
INSERT INTO stored (address, size, body) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET body = excluded.body WHERE body IS NOT excluded.body  -- it had rotted
"""


@dataclass(frozen=True)
class _Temporary:
    path: Path
    file: io.FileIO
    size: int


class Batch:
    """Stores shards under a temporary root. A context: what did not come to its end leaves no trace."""

    def __init__(self, store: ShardStore, catalogue: Catalogue, *, limited: bool = True) -> None:
        self._store = store
        self._catalogue = catalogue
        self._limited = limited  # by quota and reserve
        self._small: dict[bytes, bytes] = {}
        self._large: dict[bytes, _Temporary] = {}
        self._renamed: set[bytes] = set()
        self._pending = 0
        self._root: int | None = None
        self._ended = False
        self.addresses: set[bytes] = set()  # of all shards that were added

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for temporary in self._large.values():
            temporary.file.close()
            temporary.path.unlink(missing_ok=True)
        if not self._ended:
            self._catalogue.free(self._forget)

    def add(self, shard: Shard) -> None:
        """Takes a shard in, and writes when enough came together. Raises `DiskFull`."""
        if shard.address in self.addresses:
            return
        self.addresses.add(shard.address)
        if len(shard.body) <= INLINE_LIMIT:
            self._small[shard.address] = bytes(shard.body)
        else:
            self._large[shard.address] = self._write(shard)
        self._pending += len(shard.body)
        if self._pending >= BATCH_SIZE:
            self._flush(None)

    def end(self, finish: Callable[[sqlite3.Connection], None], *, keep: bytes) -> None:
        """Makes everything durable, with what `finish` writes in the same transaction, and keeps the manifest `keep`."""

        def ending(connection: sqlite3.Connection, root: int) -> None:
            finish(connection)
            connection.execute("INSERT INTO holds VALUES (?, ?) ON CONFLICT DO NOTHING", (root, keep))
            connection.execute("UPDATE roots SET finished = 1 WHERE id = ?", (root,))

        self._flush(ending)
        self._ended = True

    def _flush(self, ending: Callable[[sqlite3.Connection, int], None] | None) -> None:
        large = sum(temporary.size for temporary in self._large.values())
        if self._limited:
            self._store.check_room(self._pending, written=large)
        rows: list[tuple[bytes, int, bytes | None]] = [(address, len(body), body) for address, body in self._small.items()]
        rows += [(address, temporary.size, None) for address, temporary in self._large.items()]

        def publish(connection: sqlite3.Connection) -> int:
            root = self._touch(connection)
            self._rename()
            connection.executemany(ADD_SHARD, rows)
            connection.executemany("INSERT INTO holds VALUES (?, ?) ON CONFLICT DO NOTHING", [(root, row[0]) for row in rows])
            if ending is not None:
                ending(connection, root)
            return root

        try:
            for temporary in self._large.values():
                os.fsync(temporary.file.fileno())
                temporary.file.close()
            self._root = self._catalogue.write(publish)
        except OSError as error:
            raise in_words(error, self._store.folder) from error
        self._small.clear()
        self._large.clear()
        self._renamed.clear()
        self._pending = 0

    def _touch(self, connection: sqlite3.Connection) -> int:
        now = time.time()
        if connection.execute("UPDATE roots SET touched_at = ? WHERE id = ?", (now, self._root)).rowcount:
            assert self._root is not None
            return self._root
        root = connection.execute("INSERT INTO roots (pid, touched_at) VALUES (?, ?)", (os.getpid(), now)).lastrowid
        assert root is not None
        return root

    def _write(self, shard: Shard) -> _Temporary:
        path = self._store.folder / f".{shard.address.hex()}.{os.getpid()}-{os.urandom(4).hex()}"
        file = None
        try:
            make_private_dir(self._store.folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            file = io.FileIO(os.open(path, flags, FILE_MODE), "wb")
            written = 0
            while written < len(shard.body):
                written += file.write(shard.body[written:])
        except OSError as error:
            if file is not None:
                file.close()
                path.unlink(missing_ok=True)
            raise in_words(error, self._store.folder) from error
        return _Temporary(path, file, len(shard.body))

    def _rename(self) -> None:
        """Gives the files their names; inside the transaction, so that nobody frees or drops them in between."""
        for address, temporary in self._large.items():
            if address not in self._renamed:  # a transaction that is tried again
                os.replace(temporary.path, self._store.path_of(address))
                self._renamed.add(address)
        if self._renamed:
            sync_dir(self._store.folder)

    def _forget(self, connection: sqlite3.Connection) -> None:
        """Removes what this batch stored and nothing else needs, and files whose rows never came to be."""
        for address in self._renamed:
            if connection.execute("SELECT 1 FROM stored WHERE address = ?", (address,)).fetchone() is None:
                self._store.path_of(address).unlink(missing_ok=True)
        connection.execute("DELETE FROM roots WHERE id = ?", (self._root,))
        self._store.remove_unneeded(connection, [address for address in self.addresses if is_unneeded(connection, address)])
