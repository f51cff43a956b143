"""Which sealed shards lie on this disk, how much room may they take, and how is a rotten one noticed?

Shards up to 32 KiB lie in the catalogue, larger ones in a file each, named by their address. `Batch` adds them.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from p2pqueue.errors import DiskFull
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.expected import Expected
from p2pqueue.payload.format import LARGEST_SHARD
from p2pqueue.payload.seal import address_of
from p2pqueue.private import make_private_dir

INLINE_LIMIT: Final = 32 * 1024  # bytes of a shard that lies in the catalogue
DEFAULT_QUOTA: Final = 20 * 1024**3  # bytes; less where that is more than a tenth of the disk
DEFAULT_RESERVE: Final = 1024**3  # bytes; less where that is more than a twentieth of the disk

UNCOPY: Final = """
UPDATE files SET copied = 0
WHERE (source IS NOT NULL OR folder IS NOT NULL) AND address IN (SELECT root FROM uses WHERE address = ?)  -- uses_address
"""
UNUSE: Final = """
DELETE FROM uses
WHERE address = ? AND (
    EXISTS (SELECT 1 FROM plain p JOIN files f ON f.source = p.source WHERE p.address = uses.address AND f.address = root)
    OR EXISTS (SELECT 1 FROM pieces p JOIN files f ON f.folder = p.folder WHERE p.address = uses.address AND f.address = root)
)
"""
_IS_NEEDED: Final = """
SELECT EXISTS (SELECT 1 FROM uses WHERE address = ?)      -- uses_address
    OR EXISTS (SELECT 1 FROM holds WHERE address = ?)     -- holds_address
"""

_log = logging.getLogger(__name__)


class ShardStore:
    """The sealed shards of one home. For any thread and several processes."""

    def __init__(
        self, folder: Path, catalogue: Catalogue, *, quota: int = 0, reserve: int | None = None, plain: Callable[[], int] = lambda: 0
    ) -> None:  # fmt: skip
        self.folder = folder
        self.expected = Expected()
        self._catalogue = catalogue
        self._plain = plain  # bytes of the home that fetched files and outputs take in the plain
        self._quota = quota
        self._reserve = reserve

    def path_of(self, address: bytes) -> Path:
        """The file of a shard that doesn't lie in the catalogue."""
        return self.folder / address.hex()

    def load(self, address: bytes, into: memoryview) -> memoryview | None:
        """The shard of that address, checked, in the beginning of `into`; None if it isn't here.

        A rotten one is dropped and reported in the log, so that it is never offered again.
        """
        shard = self.peek(address, into)
        if shard is not None and address_of(shard) == address:
            return shard
        if shard is not None:
            self._drop_rotten(address)
        return None

    def peek(self, address: bytes, into: memoryview) -> memoryview | None:
        """The shard of that address, unchecked; None if it isn't here. For whoever checks its seal at once."""
        row = self._catalogue.read(lambda c: c.execute("SELECT body FROM stored WHERE address = ?", (address,)).fetchone())
        if row is None:
            return None
        shard = self._content(address, row[0], into)
        if shard is None:
            self._drop_rotten(address)
        return shard

    def size_of(self, address: bytes) -> int | None:
        """How many bytes the shard of that address has, by the catalogue; None if it isn't here."""
        row = self._catalogue.read(lambda c: c.execute("SELECT size FROM stored WHERE address = ?", (address,)).fetchone())
        return None if row is None else int(row[0])

    def quota(self) -> int:
        """How many bytes stored shards may take; one that was set holds for all files of the home."""
        return self._quota or min(DEFAULT_QUOTA, shutil.disk_usage(self._existing_folder()).total // 10)

    def check_room(self, size: int, *, written: int = 0) -> None:
        """Raises `DiskFull` when that many bytes more would pass the quota, or leave less of the disk than is reserved.

        `written` of them lie on the disk already, under temporary names.
        """
        self.check_quota(size, expected=self.expected.total() if self._quota else 0)
        self.check_disk(size - written, expected=self.expected.total())

    def check_fetched(self, size: int, *, expected: int = 0) -> None:
        """Raises `DiskFull` when so many bytes that are fetched would pass a quota that was set, or the reserve.

        `expected` are those that other transfers will still write.
        """
        if self._quota:
            self.check_quota(size, expected=expected)
        self.check_disk(size, expected=expected)

    def check_quota(self, size: int, *, expected: int = 0) -> None:
        """Raises `DiskFull` when that many bytes more would pass the quota."""
        used = self._catalogue.read(lambda c: int(c.execute("SELECT bytes FROM total").fetchone()[0]))
        quota = self.quota()
        if self._quota:
            used += self._plain()
        if used + expected + size > quota:
            also = f", and files on their way take {expected} more" if expected else ""
            raise DiskFull(
                f"Storing {size} bytes would pass the quota for files ({used} of {quota} bytes are used{also}); run `p2pqueue prune`, "
                "or raise the setting `quota`"
            )

    def check_disk(self, size: int, *, expected: int = 0) -> None:
        """Raises `DiskFull` when that many bytes more would leave less of the disk than is reserved."""
        disk = shutil.disk_usage(self._existing_folder())
        reserve = reserved(disk.total, self._reserve)
        if disk.free - expected - size < reserve:
            also = f"files on their way take {expected}, " if expected else ""
            raise DiskFull(
                f"No space left to store {size} bytes in {self.folder} ({disk.free} are free, {also}{reserve} stay reserved); "
                "free some and try again"
            )

    def verify(self) -> list[bytes]:
        """Checks every stored shard and drops the rotten ones, whose addresses it gives. Takes a read of all of them."""
        buffer = memoryview(bytearray(LARGEST_SHARD))
        addresses = self._catalogue.read(lambda c: [row[0] for row in c.execute("SELECT address FROM stored")])
        return [address for address in addresses if self.load(address, buffer) is None]

    def remove_unneeded(self, connection: sqlite3.Connection, addresses: Iterable[bytes]) -> int:
        """Removes shards, files first, within the transaction of the caller, and tells how many bytes that freed."""
        freed = 0
        for address in addresses:
            row = connection.execute("SELECT size, body IS NULL FROM stored WHERE address = ?", (address,)).fetchone()
            if row is None:
                continue
            if row[1]:
                self.path_of(address).unlink(missing_ok=True)
            connection.execute("DELETE FROM stored WHERE address = ?", (address,))
            freed += row[0]
        return freed

    def _content(self, address: bytes, body: bytes | None, into: memoryview) -> memoryview | None:
        if body is not None:
            kept = body[: len(into)]
            into[: len(kept)] = kept
            return into[: len(kept)]
        try:
            with open(self.path_of(address), "rb", buffering=0) as file:
                size = read_whole(file.readinto, into)
        except OSError as error:
            _log.warning("shard %s can't be read: %s", address.hex(), error.strerror or error)
            return None
        return into[:size]

    def _drop_rotten(self, address: bytes) -> None:
        def drop(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT body FROM stored WHERE address = ?", (address,)).fetchone()
            if row is None:
                return False
            # Looked at again inside the transaction: another process may have stored a good copy in the meantime.
            shard = self._content(address, row[0], memoryview(bytearray(LARGEST_SHARD)))
            if shard is not None and address_of(shard) == address:
                return False
            self.remove_unneeded(connection, [address])
            # A file that lies in the plain as well goes on from there.
            connection.execute(UNCOPY, (address,))
            connection.execute(UNUSE, (address,))
            return True

        if self._catalogue.free(drop):
            _log.warning("shard %s was damaged on this disk and is dropped; another copy will be looked for", address.hex())

    def _existing_folder(self) -> Path:
        make_private_dir(self.folder)
        return self.folder


def reserved(total: int, wanted: int | None = None) -> int:
    """How many bytes of a disk of that size stay free; `wanted` is the setting."""
    return min(DEFAULT_RESERVE if wanted is None else wanted, total // 20)


def is_unneeded(connection: sqlite3.Connection, address: bytes) -> bool:
    """Says whether no manifest here and nothing in the making needs a shard."""
    needed = connection.execute(_IS_NEEDED, (address, address)).fetchone()
    return not needed[0]


def read_whole(readinto: Callable[[memoryview], int | None], into: memoryview) -> int:
    """Fills `into` from a file and tells how much there was; less than that only at the file's end."""
    size = 0
    while size < len(into):
        read = readinto(into[size:])
        if not read:
            break
        size += read
    return size
