"""How do we get a file's content back, and know that it is right?

Each chunk comes from a stored shard, or from a plain file that holds it, and is checked either way before it is
given out: a shard by its address and its seal, a chunk of a plain file by its key, which depends on its content.
"""

from __future__ import annotations

import io
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgpack

from p2pqueue.errors import BadShard, InputChanged, InputUnreadable, PayloadUnavailable
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.format import LARGEST_SHARD, TAG_SIZES
from p2pqueue.payload.layout import Layout, gather
from p2pqueue.payload.manifest import Chunk, FileManifest, FolderManifest, PartedManifest, TreeManifest, decode
from p2pqueue.payload.memory import pages
from p2pqueue.payload.plain import FileIdentity, identify_open, open_plain, shown
from p2pqueue.payload.seal import address_of, chunk_key, open_into, seal_into
from p2pqueue.payload.steady import read_piece
from p2pqueue.payload.store import ShardStore, read_whole

PIECE: Final = 1024**2  # bytes that are given out at once
MOVED_WITHIN: Final = 0.05  # seconds in which a file that is moved elsewhere is entered there

PLACES: Final = """
SELECT s.path, s.marks, min(p.offset), p.length, p.algorithm, p.key, x'', p.tag, p.source
FROM plain p JOIN sources s ON s.id = p.source
WHERE p.address = ?  -- primary key
GROUP BY p.source  -- a file full of zeros has one chunk thousands of times
"""


PIECED: Final = """
SELECT d.path, p.length, p.algorithm, p.key, p.made_of
FROM pieces p JOIN folders d ON d.id = p.folder
WHERE p.address = ?  -- primary key
"""


@dataclass(frozen=True)
class Place:
    """A part of a plain file that holds a chunk, or of several files that make it up, by what the catalogue says."""

    path: str  # of the file, or of the folder in which the files lie
    marks: str
    offset: int
    length: int
    algorithm: int
    key: bytes
    pieces: bytes = b""  # of several: path below, marks, offset and length of each, as MessagePack
    tag: bytes | None = None  # of the sealed chunk, where it was kept
    source: int = 0  # the number of the file in the catalogue

    def fits(self, sealed: memoryview, address: bytes) -> bool:
        """Says whether what was sealed from here is the shard of that address: by its tag (`seal`), else by the address itself."""
        if self.tag is None:
            return address_of(sealed) == address
        return sealed[self.length :] == self.tag


class Reader:
    """Reads chunks into kept buffers. A context that closes the files it opened; not for two threads at once."""

    def __init__(self, store: ShardStore, catalogue: Catalogue, space_key: bytes) -> None:
        self._store = store
        self._catalogue = catalogue
        self._space_key = space_key
        self._sealed = memoryview(b"")
        self._source: tuple[str, io.FileIO, FileIdentity] | None = None
        self._culprit: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_source()

    def manifest(self, capability: Capability) -> FileManifest | FolderManifest | TreeManifest:
        """The manifest that a capability stands for. Raises `PayloadUnavailable`, `BadShard` and `MalformedMessage`."""
        out = memoryview(bytearray(capability.size))
        root = Chunk(capability.address, capability.key, capability.size, 0, 0, capability.size)
        self.chunk(root, capability.algorithm, out, "its manifest")
        manifest = decode(out)
        return self._complete(manifest) if isinstance(manifest, PartedManifest) else manifest

    def addresses(self, capability: Capability, seen: set[bytes] | None = None) -> Iterator[bytes]:
        """The shards that a file, or all files of a manifest, need: those of a manifest after what it names, its first the last.

        Manifests in `seen` are passed over: many may list the same ones.
        """
        seen = set() if seen is None else seen
        if capability.address in seen:
            return
        seen.add(capability.address)
        out = memoryview(bytearray(capability.size))
        root = Chunk(capability.address, capability.key, capability.size, 0, 0, capability.size)
        self.chunk(root, capability.algorithm, out, "its manifest")
        manifest = decode(out)
        if isinstance(manifest, FolderManifest):
            for entry in manifest.entries:
                yield from self.addresses(entry.capability, seen)
        elif isinstance(manifest, TreeManifest):
            layout = self.layout(manifest)
            yield from (chunk.address for chunk in layout.chunks())
            yield from layout.shards
        else:
            whole = self._complete(manifest) if isinstance(manifest, PartedManifest) else manifest
            yield from (chunk.address for chunk in whole.chunks())
            if isinstance(manifest, PartedManifest):
                yield from (part.address for part in manifest.chunks())
        yield capability.address

    def layout(self, manifest: TreeManifest) -> Layout:
        """Which files a folder has, and of which chunks they are made. Raises as `manifest` does."""
        gathering = gather(manifest)
        try:
            chunk = next(gathering)
            while True:
                out = memoryview(bytearray(chunk.plain_size))
                self.chunk(chunk, manifest.algorithm, out, "its manifest")
                chunk = gathering.send(out)
        except StopIteration as end:
            layout: Layout = end.value
            return layout

    def pieces(self, manifest: FileManifest, name: str) -> Iterator[memoryview]:
        """The content in pieces of up to 1 MiB; each is valid until the next is asked for."""
        out = pages(manifest.shared or min(manifest.chunk_size, manifest.size))
        for chunk in manifest.chunks():
            self.chunk(chunk, manifest.algorithm, out, name)
            for start in range(chunk.skip, chunk.skip + chunk.size, PIECE):
                yield out[start : min(start + PIECE, chunk.skip + chunk.size)]

    def chunk(self, chunk: Chunk, algorithm: int, out: memoryview, name: str) -> None:
        """Reads the plaintext of a chunk into the beginning of `out`.

        Raises `PayloadUnavailable` naming the shard, `InputChanged` when the file that held it is another now.
        """
        if self._read_stored(chunk, algorithm, out, name):
            return
        changed = None
        for place in self._look_twice(chunk.address):
            if self._read_plain(place, out, chunk):
                return
            changed = self.changed_in(place)
        raise missing(chunk.address, name, changed)

    def sealed(self, address: bytes) -> bytes:
        """A shard for somebody else: stored, or sealed now from a plain file, checked in either case."""
        size = self._store.size_of(address)  # no memory for what isn't here: anybody of the space may ask for anything
        stored = None if size is None else self._store.load(address, self._sealed_buffer(min(size, LARGEST_SHARD))[:size])
        if stored is not None:
            return bytes(stored)
        changed = None
        for place in self._look_twice(address):
            made = pages(place.length + TAG_SIZES[place.algorithm])
            if self._read_range(place, made[: place.length]):
                seal_into(place.algorithm, place.key, made[: place.length], made)  # in place
                if place.fits(made, address):
                    return bytes(made)
            changed = self.changed_in(place)
        raise missing(address, "a file", changed)

    def _complete(self, manifest: PartedManifest) -> FileManifest:
        references = memoryview(bytearray())
        gathered = bytearray()
        for part in manifest.chunks():
            if len(references) < part.size:
                references = memoryview(bytearray(part.size))
            self.chunk(part, manifest.head.algorithm, references, "its manifest")
            gathered += references[: part.size]
        return manifest.complete(bytes(gathered))

    def _read_stored(self, chunk: Chunk, algorithm: int, out: memoryview, name: str) -> bool:
        size = chunk.plain_size + TAG_SIZES.get(algorithm, 0)
        shard = self._store.peek(chunk.address, self._sealed_buffer(size)[:size])
        if shard is None:
            return False
        try:
            opened = open_into(algorithm, chunk.key, shard, out)
        except BadShard:
            if self._store.load(chunk.address, self._sealed_buffer(size)[:size]) is None:
                return False  # rotten, and dropped
            raise
        if opened != chunk.plain_size:
            raise BadShard(f"Shard {chunk.address.hex()} of {name} has another length than its manifest says")
        return True

    def _sealed_buffer(self, size: int) -> memoryview:
        if len(self._sealed) < size:
            self._sealed = pages(size)
        return self._sealed

    def _places(self, address: bytes) -> list[Place]:
        return self._catalogue.read(lambda connection: places_of(connection, address))

    def _look_twice(self, address: bytes, places: Sequence[Place] = ()) -> Iterator[Place]:
        """Where a chunk lies in plain files; once more where one of them is gone that is just being moved."""
        first = [*(places or self._places(address))]
        yield from first
        if any(not os.path.lexists(place.path) for place in first):
            time.sleep(MOVED_WITHIN)
            yield from [place for place in self._places(address) if place not in first]

    def _read_plain(self, place: Place, out: memoryview, chunk: Chunk) -> bool:
        if place.length != chunk.plain_size or not self._read_range(place, out[: place.length]):
            return False
        if chunk_key(self._space_key, out[: place.length]) == chunk.key:
            return True
        # The space key may have changed since: then the seal itself, under the key of the manifest, is compared.
        return place.fits(self._seal_again(place, out[: place.length]), chunk.address)

    def _seal_again(self, place: Place, plain: memoryview) -> memoryview:
        size = place.length + TAG_SIZES[place.algorithm]
        shard = self._sealed_buffer(size)[:size]
        seal_into(place.algorithm, place.key, plain, shard)
        return shard

    def _read_range(self, place: Place, out: memoryview) -> bool:
        """Reads from a plain file, or from several; False when one is gone or is another by its marks."""
        if not place.pieces:
            return self._read_part(place.path, place.marks, place.offset, out)
        base, start = os.fsencode(os.path.join(place.path, "")), 0
        for path, marks, offset, length in msgpack.unpackb(place.pieces):
            if not read_piece(base + path, marks, offset, out[start : start + length]):
                self._culprit = os.fsdecode(base + path)
                return False
            start += length
        return start == len(out)

    def changed_in(self, place: Place) -> str:
        """The file that is not what it was, where a place could not be read."""
        return self._culprit if place.pieces and self._culprit is not None else place.path

    def _read_part(self, path: str, marks: str, offset: int, out: memoryview) -> bool:
        try:
            file, identity = self._open_source(path)
            if identity.marks != marks:
                return False
            file.seek(offset)
            read = read_whole(file.readinto, out)
            return read == len(out) and identify_open(file, path).marks == marks
        except (OSError, InputUnreadable):
            return False

    def _open_source(self, path: str) -> tuple[io.FileIO, FileIdentity]:
        if self._source is None or self._source[0] != path:
            self._close_source()
            self._source = (path, *open_plain(path))
        return self._source[1], self._source[2]

    def _close_source(self) -> None:
        if self._source is not None:
            self._source[1].close()
            self._source = None


def places_of(connection: sqlite3.Connection, address: bytes) -> list[Place]:
    """Where in plain files a chunk lies."""
    places = [Place(os.fsdecode(row[0]), *row[1:]) for row in connection.execute(PLACES, (address,))]
    return places + [Place(os.fsdecode(row[0]), "", 0, *row[1:]) for row in connection.execute(PIECED, (address,))]


def _became(path: str) -> str:
    """What became of an original that can't be served any more."""
    if not os.path.lexists(path):
        return "is gone since it was taken in"
    return "changed since it was taken in" if os.access(path, os.R_OK) else "can't be read any more"


def missing(address: bytes, name: str, changed: str | None) -> PayloadUnavailable | InputChanged:
    """The error of the house for a shard that isn't to be had here; `changed` is the file that held it."""
    if changed is not None:
        words = f"{shown(changed)} {_became(changed)}, and nothing else on its device holds its content; share or enqueue it again"
        return InputChanged(words)
    return PayloadUnavailable(f"Shard {address.hex()} of {name} is not on this device, or was damaged here, and no other source has it now")
