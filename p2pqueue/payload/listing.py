"""What did this device know of a folder when it was shared last, so that what is unchanged isn't read again?

For each folder in it one row of the catalogue: its files, by their names here, with what tells one state of a file
from another, the hash of the content, and, where a file has chunks of its own, their references or the capability of
its manifest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgpack

from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.scan import Item, Scan, State, encoded, local_name, marks_of

LAST_FOLDER: Final = """
SELECT d.id, d.digest, f.address, f.capability, f.name, f.size, f.copied
FROM folders d JOIN files f ON f.folder = d.id
WHERE d.path = ?  -- folders_path, files_folder
ORDER BY d.id DESC LIMIT 1
"""
SHARED_CHUNKS: Final = "SELECT contents, address, key FROM pieces WHERE folder = ? AND contents <> x'' AND algorithm = ?"  # pieces_folder
FILES_IN: Final = "SELECT files FROM listings WHERE folder = ? AND path = ?"  # primary key


class Known(NamedTuple):
    """What is known of a file: its state, the hash of its content, and where that is, as an `Entry` has it."""

    state: State
    content: bytes
    own: bytes  # references or a capability; empty where it shares a chunk


class Listings:
    """The rows as they are made. A file is a tuple: name, the values of its state, hash and `own`, as in `Known`."""

    def __init__(self) -> None:
        self._files: list[tuple[Any, ...]] = []
        self._folder: str | None = None
        self._packed: dict[str, bytearray] = {}

    def of(self, local: str) -> list[tuple[Any, ...]]:
        """The list to which the files of a folder are added from now on; its path has a separator at its end."""
        if local != self._folder:
            self._pack()
            self._folder = local
        return self._files

    def rows(self, number: int) -> Iterator[tuple[int, bytes, bytes]]:
        """The rows of the folder of that number."""
        self._pack()
        return ((number, os.fsencode(folder.removesuffix(os.sep)), bytes(packed)) for folder, packed in self._packed.items())

    def _pack(self) -> None:
        if self._files and self._folder is not None:
            self._packed.setdefault(self._folder, bytearray()).extend(msgpack.packb(self._files))
            self._files = []


def listed(found: Scan) -> tuple[Listings, dict[str, str]]:
    """The rows of a folder whose contents' hashes aren't known, and the marks of its files by their paths below it."""
    listings, marks = Listings(), {}
    for local, items in found.folders():
        prefix = f"{local}{os.sep}" if local else ""
        for item in items:
            listings.of(prefix).append((item[1] or encoded(item[0]), *item[2:], b"", b""))
            marks[prefix + local_name(item)] = marks_of(item)
    return listings, marks


class Last:
    """What was known of a folder. Only one folder of it is held in memory at a time."""

    def __init__(self, catalogue: Catalogue, number: int, algorithm: int) -> None:
        self._catalogue = catalogue
        self._number = number
        self._folder: str | None = None
        self._files: dict[str, Known] = {}
        rows = catalogue.read(lambda c: c.execute(SHARED_CHUNKS, (number, algorithm)).fetchall())
        self.chunks = {contents: address + key for contents, address, key in rows}

    def find(self, local: str, item: Item) -> Known | None:
        """What is known of a file of the folder `local`, if it is in the same state."""
        if local != self._folder:
            path = os.fsencode(local.removesuffix(os.sep))
            row = self._catalogue.read(lambda c: c.execute(FILES_IN, (self._number, path)).fetchone())
            self._folder, self._files = local, {} if row is None else dict(unpack_files(row[0]))
        known = self._files.get(local_name(item))
        return known if known is not None and known.content and known.state == tuple(item[2:]) else None


def unpack_files(packed: bytes) -> Iterator[tuple[str, Known]]:
    """The files of a row, by their names."""
    unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=0)
    unpacker.feed(packed)
    for files in unpacker:  # a folder between them, in the order of names, parts them
        for name, size, mtime_ns, inode, device, executable, content, own in files:
            yield os.fsdecode(name), Known(State(size, mtime_ns, inode, device, executable), content, own)
