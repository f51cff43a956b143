"""How is a whole folder taken in, and what is entered of it?

As a single file it is copied, sealed, into the store, or read once and served from where it lies. Either way the
catalogue keeps its files' states and of which pieces of them its chunks are made.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability, parse_capability, unpack_capability
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.format import ROOT_LIMIT
from p2pqueue.payload.holdings import IS_INCOMPLETE, hold, is_sound
from p2pqueue.payload.ingest import Ingest, Line
from p2pqueue.payload.layout import gather_file
from p2pqueue.payload.listing import LAST_FOLDER, Last, Listings
from p2pqueue.payload.manifest import FileManifest
from p2pqueue.payload.packing import Packer, Piece
from p2pqueue.payload.plain import settle_since
from p2pqueue.payload.publish import Stored, add_file, add_uses, seal_manifest
from p2pqueue.payload.reading import Reader
from p2pqueue.payload.scan import Scan
from p2pqueue.payload.seal import Sealer, preferred_algorithm
from p2pqueue.payload.store import ShardStore

ADD_FOLDER: Final = "INSERT INTO folders (path, digest, owned) VALUES (?, ?, ?)"
ADD_PIECE: Final = """
INSERT INTO pieces (address, folder, algorithm, key, length, made_of, contents) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
ADD_LISTING: Final = "INSERT INTO listings (folder, path, files) VALUES (?, ?, ?)"
MISSING_OF: Final = "SELECT NOT EXISTS (SELECT 1 FROM stored WHERE address = ?)"
MOST_THREADS: Final = 2  # that seal, beside the one that reads: reading many files takes longest
FEWEST_BYTES: Final = 4 * 1024**2  # below, starting threads costs more than it brings


class _Vanished(Exception):
    """Something that was known from last time isn't here any more."""


@dataclass(frozen=True)
class Folders:
    """Takes folders in."""

    store: ShardStore
    catalogue: Catalogue
    space_key: bytes

    def take_in(self, scan: Scan, name: str, ingest: Ingest, *, copying: bool, owned: bool = False) -> Stored:
        """The folder that was scanned; durable on return. One that is `owned` lies in the home. Raises as `Shelf.ingest`."""
        settle_since(scan.newest)
        digest = scan.digest
        last = self._last(scan, name, digest, copying)
        if isinstance(last, Stored):
            if is_sound(self.catalogue, self.store, parse_capability(last.capability)):
                return last
            last = None
        if last is not None:
            try:
                return self._pack(scan, name, ingest, digest, copying, owned, last)
            except _Vanished:
                pass
        return self._pack(scan, name, ingest, digest, copying, owned, None)

    def _last(self, scan: Scan, name: str, digest: bytes, copying: bool) -> Stored | int | None:
        """What this folder was published as, if it is the same still; else the number under which it is known, if it is."""

        def find(connection: sqlite3.Connection) -> Stored | int | None:
            row = connection.execute(LAST_FOLDER, (os.fsencode(scan.base),)).fetchone()
            if row is None:
                return None
            number, known, address, capability, called, size, copied = row
            if known != digest or called != name or (copying and not copied) or not _is_whole(connection, address):
                return int(number)
            hold(connection, address)
            return Stored(capability, called, size, not copied, "folder")

        return self.catalogue.write(find)

    def _pack(self, scan: Scan, name: str, ingest: Ingest, digest: bytes, copying: bool, owned: bool, last: int | None) -> Stored:
        algorithm = ingest.algorithm or preferred_algorithm()
        known = None if last is None else Last(self.catalogue, last, algorithm)
        sealer = Sealer(self.space_key, algorithm=algorithm, capacity=ROOT_LIMIT)
        if copying:
            self.store.check_room(scan.size)
        with (
            Batch(self.store, self.catalogue, limited=copying) as batch,
            Line(self.space_key, algorithm, _threads(ingest, scan.size)) as line,
            Reader(self.store, self.catalogue, self.space_key) as reader,
        ):
            needed: list[bytes] = []  # shards of manifests that are taken over from last time

            def add(page: bytes) -> bytes:
                shard = sealer.seal(page)
                batch.add(shard)
                return shard.address + shard.key

            packed = Packer(
                scan, name, ingest, line, keep=batch.add if copying else None, add=add,
                seal_manifest=lambda manifest: seal_manifest(manifest, sealer, batch.add).pack(),
                last=known, references_of=lambda packed: _references(reader, unpack_capability(packed), needed),
            ).run()  # fmt: skip
            root = seal_manifest(packed.manifest, sealer, batch.add)
            old = set(needed) | (packed.reused if copying else set())

            def finish(connection: sqlite3.Connection) -> None:
                if any(connection.execute(MISSING_OF, (address,)).fetchone()[0] for address in old):
                    raise _Vanished
                number = enter_folder_at(connection, scan.base, digest, packed.listings, packed.pieces, owned=owned)
                add_file(connection, root, name, scan.size, copied=copying, folder=number, kind="folder")
                add_uses(connection, root, batch.addresses | old)

            batch.end(finish, keep=root.address)
        return Stored(root.text, name, scan.size, not copying, "folder")


def enter_folder_at(
    connection: sqlite3.Connection, base: str, digest: bytes, listings: Listings, pieces: Iterable[Piece], *, owned: bool
) -> int:  # fmt: skip
    """Enters a folder that lies in the plain at a path, and of which pieces its chunks are made; gives its number."""
    number = connection.execute(ADD_FOLDER, (os.fsencode(base), digest, owned)).lastrowid
    assert number is not None
    connection.executemany(ADD_PIECE, ((row[0], number, *row[1:]) for row in pieces))
    connection.executemany(ADD_LISTING, listings.rows(number))
    return number


def _is_whole(connection: sqlite3.Connection, address: bytes) -> bool:
    return not connection.execute(IS_INCOMPLETE, (address,)).fetchone()[0]


def _references(reader: Reader, root: Capability, needed: list[bytes]) -> bytes:
    gathering = gather_file(root, needed)
    try:
        chunk = next(gathering)
        while True:
            out = memoryview(bytearray(chunk.plain_size))
            reader.chunk(chunk, root.algorithm, out, "its manifest")
            chunk = gathering.send(out)
    except StopIteration as end:
        manifest: FileManifest = end.value
        return manifest.references


def _threads(ingest: Ingest, size: int) -> int:
    if ingest.threads is not None:
        return ingest.threads
    cores = os.cpu_count() or 1
    return min(MOST_THREADS, cores - 1) if size >= FEWEST_BYTES else 0
