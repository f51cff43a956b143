"""How do the files of a folder become pages, and thousands of small ones few chunks?

Files up to 256 KiB are put one behind the other into shared chunks, in the order of their paths. A shared chunk is full
when the next file doesn't fit, and, once it is half full, after one file in thirty-two, chosen by the hash of its
content: where a file is added, removed or changed, the chunks after the next such place are the same again. Files of
one content are put in once. Larger files have chunks of their own.

What is known from the last time isn't read: neither a file in a chunk of its own that is unchanged, nor a shared chunk
all of whose files are.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
from blake3 import blake3

from p2pqueue.payload.format import ADDRESS_SIZE, REFERENCE_SIZE
from p2pqueue.payload.ingest import Ingest, Lane, Line, check_going
from p2pqueue.payload.listing import Known, Last, Listings
from p2pqueue.payload.manifest import FileManifest, TreeManifest, chunk_size_of
from p2pqueue.payload.plain import changed
from p2pqueue.payload.scan import Item, Scan, Stretch, encoded, local_name, marks_of
from p2pqueue.payload.seal import Shard
from p2pqueue.payload.steady import Steady, folder_at, read_small
from p2pqueue.payload.tree import EXECUTABLE, FILE, FOLDER, MOST_REFERENCES, PACKED_LIMIT, PAGE_SIZE, SHARED_LIMIT, encode_page

HALF: Final = SHARED_LIMIT // 2
ONE_IN: Final = 32  # files after which a shared chunk may end early
REMEMBERED: Final = 100_000  # contents among which equal ones are found
_ENTRY: Final = 64  # bytes of an entry on a page, beside its path and its references


Piece = tuple[bytes, int, bytes, int, bytes, bytes]  # of a chunk: address, algorithm, key, length, made of, contents


@dataclass
class Packed:
    """What came of a folder's files: its manifest, and what the catalogue keeps of it."""

    manifest: TreeManifest
    listings: Listings
    pieces: list[Piece]
    reused: set[bytes]  # addresses of chunks that were not read


@dataclass
class _Shared:
    """A shared chunk that is being filled, or is sealed."""

    size: int = 0
    files: list[tuple[str, Item, int, bool]] = field(default_factory=list)  # its folder, item, where it begins, whether it is read
    contents: bytearray = field(default_factory=bytearray)  # the hashes of the files
    reference: bytes = b""
    page: int = -1  # the last one on which it is listed, and its number there
    number: int = 0


class Packer:
    """Packs one folder. `seal_manifest` gives the capability of a file's manifest that is too long for a page."""

    def __init__(
        self, scan: Scan, name: str, ingest: Ingest, line: Line, *,
        keep: Callable[[Shard], None] | None, add: Callable[[bytes], bytes], seal_manifest: Callable[[FileManifest], bytes],
        last: Last | None = None, references_of: Callable[[bytes], bytes] | None = None,
    ) -> None:  # fmt: skip
        """`keep` takes the shards of contents, `add` a page, of which it gives the reference.

        `references_of` gives the references of a file by the capability of its manifest, as they are known from last time.
        """
        self._scan, self._name, self._ingest, self._line = scan, name, ingest, line
        self._keep, self._add, self._seal_manifest = keep, add, seal_manifest
        self._last, self._references_of = last, references_of
        self._shared = _Shared()
        self._lane: Lane | None = None
        self._by_content: dict[bytes, tuple[_Shared, int]] = {}
        self._entries: list[list[Any]] = []  # of the page
        self._chunks: list[_Shared] = []  # that are listed on it
        self._estimate = 0
        self._pages = bytearray()
        self._lengths: list[int] = []
        self._done = 0
        self._base = os.path.join(scan.base, "")
        self._listings = Listings()
        self._pieces: list[Piece] = []
        self._reused: set[bytes] = set()

    def run(self) -> Packed:
        """Reads everything. Raises `InputUnreadable` and `InputChanged`, naming the file, and `IngestStopped`."""
        for stretch in self._scan.walk():
            if not stretch.files:
                self._enter([stretch.path.removesuffix("/"), FOLDER], len(stretch.path))
            else:
                with folder_at(self._base + stretch.local) as at:
                    self._take_stretch(stretch, at)
        self._end_page()
        scan = self._scan
        manifest = TreeManifest(self._name, scan.size, scan.count, self._line.algorithm, tuple(self._lengths), bytes(self._pages))
        return Packed(manifest, self._listings, self._pieces, self._reused)

    # -- small files ------------------------------------------------------------------------------------------

    def _take_stretch(self, stretch: Stretch, at: int | None) -> None:
        path, local, files = stretch
        last, rows = self._last, self._listings.of(local)
        for item in files:
            known = None if last is None else last.find(local, item)
            size: int = item[2]
            if not 0 < size <= PACKED_LIMIT:
                self._take_alone(path, local, item, known)
                continue
            if self._shared.size + size > SHARED_LIMIT:
                self._end_shared()
            content = self._read(at, local, item) if known is None else known.content
            rows.append((item[1] or encoded(item[0]), *item[2:], content, b""))
            self._put_in(path, local, item, content, known is None)

    def _read(self, at: int | None, local: str, item: Item) -> bytes:
        """Reads a small file behind what is in the shared chunk, and gives its hash."""
        lane = self._lane
        if lane is None:
            lane = self._lane = self._line.lane(SHARED_LIMIT)
        start = self._shared.size
        piece = lane.plain[start : start + item[2]]
        read_small(at, self._base + local, item, piece)
        return blake3(piece).digest()

    def _put_in(self, path: str, local: str, item: Item, content: bytes, is_read: bool) -> None:
        shared, start, size = self._shared, self._shared.size, item[2]
        told = path + item[0]
        found = self._by_content.get(content)
        if found is None:
            if len(self._by_content) >= REMEMBERED:
                self._by_content.clear()
            self._by_content[content] = found = (shared, start)
            shared.files.append((local, item, start, is_read))
            shared.contents += content
            shared.size = start + size
        listed, start = found
        if listed.page != len(self._lengths):
            listed.page, listed.number = len(self._lengths), len(self._chunks)
            self._chunks.append(listed)
        self._enter([told, EXECUTABLE if item[6] else FILE, size, content, listed.number, start], len(told))
        if content[0] < 256 // ONE_IN and shared.size >= HALF:
            self._end_shared()

    def _end_shared(self) -> None:
        shared, lane = self._shared, self._lane
        self._shared, self._lane = _Shared(), None
        if not shared.size:
            self._shared, self._lane = shared, lane
            return
        check_going(self._ingest, self._scan.base)
        contents = blake3(shared.contents).digest(16)
        reference = None if self._last is None else self._last.chunks.get(contents)
        if reference is not None and not any(is_read for *_, is_read in shared.files):
            self._lane = lane
            self._reused.add(reference[:ADDRESS_SIZE])
            self._name_shared(shared, contents, reference)
            return
        if lane is None:
            lane = self._line.lane(SHARED_LIMIT)
        for number, (local, item, start, is_read) in enumerate(shared.files):
            if not is_read:  # known, but another file of the chunk is new
                piece = lane.plain[start : start + item[2]]
                read_small(None, self._base + local, item, piece)
                if blake3(piece).digest() != shared.contents[number * ADDRESS_SIZE : (number + 1) * ADDRESS_SIZE]:
                    raise changed(self._base + local + local_name(item))
        lane.size = shared.size
        self._line.send(lane, functools.partial(self._take_shared, shared, contents))

    def _take_shared(self, shared: _Shared, contents: bytes, shard: Shard) -> None:
        if self._keep is not None:
            self._keep(shard)
        self._name_shared(shared, contents, shard.address + shard.key)

    def _name_shared(self, shared: _Shared, contents: bytes, reference: bytes) -> None:
        shared.reference = reference
        pieces = [(encoded(local + local_name(item)), marks_of(item), 0, item[2]) for local, item, *_ in shared.files]
        self._piece(reference, shared.size, pieces, contents)
        shared.files.clear()  # what is known by its content is kept for long
        shared.contents.clear()
        self._tell(shared.size)

    # -- large ones -------------------------------------------------------------------------------------------

    def _take_alone(self, path: str, local: str, item: Item, known: Known | None) -> None:
        size, here = item[2], local + local_name(item)
        if known is not None and self._references_of is not None:
            references = self._references_of(known.own) if len(known.own) % REFERENCE_SIZE else known.own
            self._reused.update(references[at : at + ADDRESS_SIZE] for at in range(0, len(references), REFERENCE_SIZE))
            content, own = known.content, known.own
        else:
            content, references = self._read_alone(self._base + here, item)
            own = references
            if len(references) > MOST_REFERENCES * REFERENCE_SIZE:
                own = self._seal_manifest(FileManifest(item[0], "", size, content, self._line.algorithm, references))
        self._listings.of(local).append((item[1] or encoded(item[0]), *item[2:], content, own))
        name, marks, chunk_size = encoded(here), marks_of(item), chunk_size_of(size)
        for number, offset in enumerate(range(0, size, chunk_size)):
            length = min(chunk_size, size - offset)
            reference = references[number * REFERENCE_SIZE : (number + 1) * REFERENCE_SIZE]
            self._piece(reference, length, [(name, marks, offset, length)], b"")
        self._enter([path + item[0], EXECUTABLE if item[6] else FILE, size, content, own, 0], len(path) + len(item[0]) + len(own))

    def _read_alone(self, path: str, item: Item) -> tuple[bytes, bytes]:
        whole, references, size = blake3(), bytearray(), item[2]
        chunk_size = chunk_size_of(size)
        with Steady(path, item[2:5]) as opened:
            for offset in range(0, size, chunk_size):
                check_going(self._ingest, path)
                lane = self._line.lane(min(chunk_size, size))
                lane.size = min(chunk_size, size - offset)
                content = lane.plain[: lane.size]
                opened.fill(content)
                self._line.send(lane, functools.partial(self._take_own, references, lane.size))
                whole.update(content)
        self._line.drain()
        return whole.digest(), bytes(references)

    def _take_own(self, references: bytearray, size: int, shard: Shard) -> None:
        references += shard.address + shard.key
        if self._keep is not None:
            self._keep(shard)
        self._tell(size)

    # -- pages ------------------------------------------------------------------------------------------------

    def _enter(self, entry: list[Any], length: int) -> None:
        """Adds an entry, whose path and references have so many characters."""
        self._entries.append(entry)
        self._estimate += length + _ENTRY if entry[0].isascii() else len(entry[0].encode()) + length + _ENTRY
        if self._estimate >= PAGE_SIZE:
            self._end_page()

    def _end_page(self) -> None:
        self._end_shared()
        self._line.drain()
        if not self._entries:
            return
        chunks = self._chunks
        page = encode_page(b"".join(each.reference for each in chunks), [each.size for each in chunks], self._entries)
        self._pages += self._add(page)
        self._lengths.append(len(page))
        self._entries, self._chunks = [], []
        self._estimate = 0

    def _piece(self, reference: bytes, length: int, pieces: list[tuple[bytes, str, int, int]], contents: bytes) -> None:
        address, key = reference[:ADDRESS_SIZE], reference[ADDRESS_SIZE:]
        self._pieces.append((address, self._line.algorithm, key, length, msgpack.packb(pieces), contents))

    def _tell(self, size: int) -> None:
        self._done += size
        if self._ingest.on_progress is not None:
            self._ingest.on_progress(min(self._done, self._scan.size), self._scan.size)
