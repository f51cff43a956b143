"""What does a manifest say, and which manifests are refused?

A manifest lists what a file is made of: its size, the BLAKE3 hash of its content, its name, its media type, the size
of its chunks, and address and key of each (together a *reference*). Several files at once are a manifest that lists
manifests. A folder with all that lies below it is a *tree*, which lists the manifests of its files on *pages* (see
`tree`). Where a file has too many references for the manifest's first shard, they go into further shards, its
*parts*. Everything here was perhaps made by somebody else, so each claim is checked before anything is allocated for
it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from p2pqueue import wire
from p2pqueue.errors import ArgumentError, MalformedMessage
from p2pqueue.payload.capability import Capability, unpack_capability
from p2pqueue.payload.format import (
    ADDRESS_SIZE,
    CHUNK_SIZES,
    LARGEST_CHUNK,
    LARGEST_FILE,
    MIB,
    PART_SIZE,
    REFERENCE_SIZE,
    ROOT_LIMIT,
    TAG_SIZES,
    VERSION,
)

NAME_LIMIT: Final = 4096  # bytes of a name in UTF-8
ENTRIES_LIMIT: Final = 1_000_000  # files and folders in one folder, those below it counted in
LARGEST_TREE: Final = 2**60  # bytes of all files in it
LARGEST_LISTING: Final = 256 * MIB  # bytes of all its pages


@dataclass(frozen=True)
class Chunk:
    """Where one part of a file comes from. `skip` bytes of the chunk's plaintext come before it."""

    address: bytes
    key: bytes = field(repr=False)
    plain_size: int  # of the whole chunk
    offset: int  # of the part in the file
    skip: int
    size: int  # of the part


@dataclass(frozen=True)
class FileManifest:
    """What one file is made of. `references` holds address and key of each chunk, one after the other.

    A small file may share one chunk of `shared` bytes with others, in which `skip` bytes come before it.
    """

    name: str
    media_type: str
    size: int
    content: bytes  # BLAKE3 of the whole
    algorithm: int
    references: bytes = field(repr=False)
    shared: int = 0
    skip: int = 0

    @property
    def chunk_size(self) -> int:
        """How large its chunks are, the last one apart."""
        return self.shared or chunk_size_of(self.size)

    @property
    def chunk_count(self) -> int:
        """How many chunks there are: none in an empty file."""
        return -(-self.size // self.chunk_size)

    def chunk(self, number: int) -> Chunk:
        """The chunk of that number, from 0."""
        offset = number * self.chunk_size
        size = min(self.chunk_size, self.size - offset)
        address, key = _reference(self.references, number)
        return Chunk(address, key, self.shared or size, offset, self.skip, size)

    def chunks(self) -> Iterator[Chunk]:
        """All chunks in the order of the file."""
        return (self.chunk(number) for number in range(self.chunk_count))


@dataclass(frozen=True)
class PartedManifest:
    """A file's manifest whose references lie in shards of their own. `head` has none."""

    head: FileManifest
    parts: bytes = field(repr=False)

    def chunks(self) -> Iterator[Chunk]:
        """The parts in their order, as chunks of the references."""
        length = self.head.chunk_count * REFERENCE_SIZE
        for number, offset in enumerate(range(0, length, PART_SIZE)):
            size = min(PART_SIZE, length - offset)
            yield Chunk(*_reference(self.parts, number), size, offset, 0, size)

    def complete(self, references: bytes) -> FileManifest:
        """The whole manifest, once its parts are read. Raises `MalformedMessage`."""
        _check_count(self.head.size, self.head.chunk_count, references)
        return replace(self.head, references=references)


@dataclass(frozen=True)
class Entry:
    """A file or folder in a folder, by the name that the folder gives it."""

    name: str
    capability: Capability
    size: int  # of the content, in bytes


@dataclass(frozen=True)
class FolderManifest:
    """Manifests by their names."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """The bytes of all files in it; what lists more than the largest number counts as that."""
        return min(2**63 - 1, sum(entry.size for entry in self.entries))


@dataclass(frozen=True)
class TreeManifest:
    """A folder with all that lies below it. What it lists stands on pages, each of them a shard."""

    name: str
    size: int  # bytes of all files
    count: int  # files, and folders that are empty
    algorithm: int
    lengths: tuple[int, ...]  # bytes of each page
    references: bytes = field(repr=False)  # of the pages

    def pages(self) -> Iterator[Chunk]:
        """The pages in their order."""
        for number, length in enumerate(self.lengths):
            yield Chunk(*_reference(self.references, number), length, 0, 0, length)


Manifest = FileManifest | PartedManifest | FolderManifest | TreeManifest


def chunk_size_of(size: int) -> int:
    """How large the chunks of a file of that size are. Raises `ArgumentError` beyond 16 TiB."""
    for limit, chunk_size in CHUNK_SIZES:
        if size <= limit:
            return chunk_size
    raise ArgumentError(f"A file may have 16 TiB at most; this one has {size} bytes")


def encode(manifest: Manifest) -> bytes:
    """The canonical bytes of a manifest, which are sealed in their turn. Raises `ArgumentError` where they are too long."""
    if isinstance(manifest, FolderManifest):
        entries = [[entry.name, entry.capability.pack(), entry.size] for entry in manifest.entries]
        told: dict[str, Any] = {"kind": "folder", "name": manifest.name, "entries": entries}
    elif isinstance(manifest, TreeManifest):
        told = {"kind": "tree", "name": manifest.name, "size": manifest.size, "count": manifest.count, "alg": manifest.algorithm}
        told |= {"lengths": list(manifest.lengths), "pages": manifest.references}
    elif isinstance(manifest, PartedManifest):
        told = {**_head(manifest.head), "parts": manifest.parts}
    else:
        told = {**_head(manifest), "shards": manifest.references}
    data = wire.pack({"v": VERSION, **told})
    if len(data) > ROOT_LIMIT:
        raise ArgumentError(f"A manifest of {len(data)} bytes is too long for one shard; put fewer files into a folder")
    return data


def decode(data: bytes | memoryview) -> Manifest:
    """The manifest of these bytes, which are its first shard's. Raises `MalformedMessage` for any claim that can't be true."""
    told = _Told(wire.unpack(data, limit=ROOT_LIMIT))
    version = told.number("v", most=2**31)
    if version != VERSION:
        raise MalformedMessage(f"A manifest of format {version}, which this version doesn't know; upgrade p2pqueue")
    kind = told.text("kind", 16)
    if kind == "file":
        return _file(told)
    if kind == "folder":
        return _folder(told)
    if kind == "tree":
        return _tree(told)
    raise MalformedMessage(f"A manifest of kind {kind!r}, which this version doesn't know; upgrade p2pqueue")


def _reference(references: bytes, number: int) -> tuple[bytes, bytes]:
    start = number * REFERENCE_SIZE
    middle = start + ADDRESS_SIZE
    return references[start:middle], references[middle : start + REFERENCE_SIZE]


def _head(manifest: FileManifest) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": "file", "name": manifest.name, "type": manifest.media_type, "size": manifest.size}
    told |= {"hash": manifest.content, "alg": manifest.algorithm, "chunk": manifest.chunk_size}
    return told | ({"shared": True, "skip": manifest.skip} if manifest.shared else {})


def _file(told: _Told) -> FileManifest | PartedManifest:
    size, chunk_size = told.number("size", most=LARGEST_FILE), told.number("chunk", most=LARGEST_CHUNK)
    shared, skip = (chunk_size, told.number("skip", most=MIB)) if told.value.get("shared") is True else (0, 0)
    _check_cut(size, chunk_size, shared, skip)
    algorithm, content = _algorithm(told), told.data("hash")
    if len(content) != ADDRESS_SIZE:
        raise MalformedMessage("A manifest has no proper hash of its content")
    head = FileManifest(told.text("name"), told.text("type", 255), size, content, algorithm, b"", shared, skip)
    if "parts" in told.value:
        parts = PartedManifest(head, told.data("parts"))
        _check_count(size, -(-head.chunk_count * REFERENCE_SIZE // PART_SIZE), parts.parts)
        return parts
    _check_count(size, head.chunk_count, told.data("shards"))
    return replace(head, references=told.data("shards"))


def _algorithm(told: _Told) -> int:
    algorithm = told.number("alg", most=255)
    if algorithm not in TAG_SIZES:
        raise MalformedMessage(f"A manifest is sealed by algorithm {algorithm}, which this version doesn't know; upgrade p2pqueue")
    return algorithm


def _tree(told: _Told) -> TreeManifest:
    lengths, references = told.value.get("lengths"), told.data("pages")
    if not isinstance(lengths, list) or len(references) != len(lengths) * REFERENCE_SIZE:
        raise MalformedMessage("A manifest of a folder has no proper list of pages")
    if not all(type(length) is int and 0 < length <= ROOT_LIMIT for length in lengths):
        raise MalformedMessage(f"A manifest of a folder has a page that is empty or longer than {ROOT_LIMIT} bytes")
    if sum(lengths) > LARGEST_LISTING:
        raise MalformedMessage(f"A manifest of a folder has pages of {sum(lengths)} bytes; at most {LARGEST_LISTING} are accepted")
    size, count = told.number("size", most=LARGEST_TREE), told.number("count", most=ENTRIES_LIMIT)
    return TreeManifest(told.text("name"), size, count, _algorithm(told), tuple(lengths), references)


def _check_cut(size: int, chunk_size: int, shared: int, skip: int) -> None:
    if shared and not 0 < skip + size <= shared <= MIB:
        raise MalformedMessage(f"A manifest finds {size} bytes after {skip} in a shared chunk of {shared}")
    if shared and not size:
        raise MalformedMessage("A manifest of an empty file names a chunk")
    if not shared and chunk_size != chunk_size_of(size):
        raise MalformedMessage(f"A manifest cuts {size} bytes into chunks of {chunk_size}; {chunk_size_of(size)} is the rule")


def _folder(told: _Told) -> FolderManifest:
    listed = told.value.get("entries")
    if not isinstance(listed, list) or len(listed) > ENTRIES_LIMIT:
        raise MalformedMessage("A manifest of a folder has no proper list of entries")
    entries = []
    for item in listed:
        if not (isinstance(item, list) and len(item) == 3 and isinstance(item[1], bytes)):
            raise MalformedMessage("An entry of a folder is no name, manifest and size")
        entry = _Told({"name": item[0], "size": item[2]})
        entries.append(Entry(entry.text("name"), unpack_capability(item[1]), entry.number("size", most=2**63 - 1)))
    if len({entry.name for entry in entries}) != len(entries):
        raise MalformedMessage("A folder lists one name twice")
    return FolderManifest(told.text("name"), tuple(entries))


def _check_count(size: int, count: int, references: bytes) -> None:
    if len(references) != count * REFERENCE_SIZE:
        listed = len(references) / REFERENCE_SIZE
        raise MalformedMessage(f"A manifest lists {listed:g} shards where {size} bytes have {count}")


@dataclass(frozen=True)
class _Told:
    """A map that somebody sent, read value by value."""

    value: Any

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise MalformedMessage("A manifest is a map; this is none")

    def number(self, key: str, *, most: int, missing: int | None = None) -> int:
        number = self.value.get(key, missing)
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise MalformedMessage(f"A manifest has no proper {key!r}")
        if number > most:
            raise MalformedMessage(f"A manifest claims {key!r} of {number}; at most {most} are accepted")
        return number

    def text(self, key: str, limit: int = NAME_LIMIT) -> str:
        text = self.value.get(key)
        if not isinstance(text, str) or len(text) > limit or len(text.encode()) > limit:
            raise MalformedMessage(f"A manifest has no proper {key!r}")
        return text

    def data(self, key: str) -> bytes:
        data = self.value.get(key)
        if not isinstance(data, bytes):
            raise MalformedMessage(f"A manifest has no proper {key!r}")
        return data
