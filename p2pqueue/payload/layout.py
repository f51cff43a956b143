"""Which chunks does a folder need, and where does each of them go?

This is what a fetch of a whole folder works with, as it works with the manifest of a single file: so many distinct
chunks, by number, in the order in which they are best fetched. It is put together from the pages by a generator that
asks for the chunks of the manifest which it needs and is sent their plaintext, so that whoever reads decides how::

    gathering = gather(manifest)
    chunk = next(gathering)
    while True:
        try:
            chunk = gathering.send(<the plaintext of chunk>)
        except StopIteration as end:
            layout = end.value

Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from p2pqueue.errors import MalformedMessage
from p2pqueue.payload.capability import PACKED_SIZE, Capability, unpack_capability
from p2pqueue.payload.format import ADDRESS_SIZE, REFERENCE_SIZE
from p2pqueue.payload.manifest import Chunk, FileManifest, PartedManifest, TreeManifest, chunk_size_of, decode
from p2pqueue.payload.tree import EXECUTABLE, FOLDER, Entry, Page, components, decode_page

_PLACE: Final = 4  # values of a place

Gathering = Generator[Chunk, bytes | memoryview, "Layout"]


Place = tuple[int, int, int, int]  # where a part of a chunk goes: number of the file, offset in it, bytes to skip of the chunk, size


@dataclass
class Layout:
    """The files of a folder, and of which chunks they are made. Some 150 bytes for each file."""

    name: str
    algorithm: int
    size: int = 0  # bytes of all distinct chunks: what is fetched
    content_size: int = 0  # bytes of all files: what is written
    chunk_size: int = 0  # bytes of the largest chunk
    paths: list[str] = field(default_factory=list)  # of the files
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    executable: bytearray = field(default_factory=bytearray)
    folders: list[str] = field(default_factory=list)  # paths of those that are empty
    shards: list[bytes] = field(default_factory=list)  # addresses of the manifest's own shards but its first
    _references: bytearray = field(default_factory=bytearray)
    _plain_sizes: array[int] = field(default_factory=lambda: array("L"))
    _offsets: array[int] = field(default_factory=lambda: array("Q"))  # of the chunks, one after the other
    _places: list[array[int]] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)  # of the chunks by their addresses

    @property
    def chunk_count(self) -> int:
        """How many distinct chunks there are."""
        return len(self._places)

    def chunk(self, number: int) -> Chunk:
        """The chunk of that number. Its offset is that in the sequence of all chunks."""
        start, size = number * REFERENCE_SIZE, self._plain_sizes[number]
        middle = start + ADDRESS_SIZE
        address, key = self._references[start:middle], self._references[middle : start + REFERENCE_SIZE]
        return Chunk(bytes(address), bytes(key), size, self._offsets[number], 0, size)

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, by their numbers."""
        return (self.chunk(number) for number in range(self.chunk_count))

    def number_of(self, address: bytes) -> int:
        """The number of the chunk of that address."""
        return self._numbers[address]

    def places(self, number: int) -> Iterator[Place]:
        """Where the bytes of a chunk go."""
        values = iter(self._places[number])
        return zip(values, values, values, values, strict=True)

    def is_shared(self, number: int) -> bool:
        """Says whether parts of a chunk go to several places."""
        return len(self._places[number]) > _PLACE

    def _add_chunk(self, reference: bytes, size: int) -> int:
        address = reference[:ADDRESS_SIZE]
        number = self._numbers.setdefault(address, len(self._places))
        if number == len(self._places):
            self._references += reference
            self._plain_sizes.append(size)
            self._offsets.append(self.size)
            self._places.append(array("Q"))
            self.size += size
            self.chunk_size = max(self.chunk_size, size)
        elif self._plain_sizes[number] != size or self._key(number) != reference[ADDRESS_SIZE:]:
            raise MalformedMessage(f"A folder has two keys or sizes for shard {address.hex()}")
        return number

    def _key(self, number: int) -> bytearray:
        start = number * REFERENCE_SIZE
        return self._references[start + ADDRESS_SIZE : start + REFERENCE_SIZE]

    def _add_file(self, entry: Entry) -> int:
        self.paths.append(entry.path)
        self.sizes.append(entry.size)
        self.executable.append(entry.kind == EXECUTABLE)
        self.content_size += entry.size
        return len(self.paths) - 1

    def _add_own(self, file: int, size: int, references: bytes) -> None:
        chunk_size = chunk_size_of(size)
        for offset in range(0, size, chunk_size):
            start = offset // chunk_size * REFERENCE_SIZE
            part = min(chunk_size, size - offset)
            number = self._add_chunk(references[start : start + REFERENCE_SIZE], part)
            self._places[number].extend((file, offset, 0, part))


def gather(manifest: TreeManifest) -> Gathering:
    """Yields the chunks of a folder's manifest that are needed next, and returns the layout. Raises `MalformedMessage`."""
    layout, order = Layout(manifest.name, manifest.algorithm), _Order()
    large: list[tuple[int, Entry]] = []
    for chunk in manifest.pages():
        page = decode_page((yield chunk))
        layout.shards.append(chunk.address)
        _take_page(layout, page, order, large)
        if len(layout.paths) + len(layout.folders) > manifest.count or layout.content_size > manifest.size:
            break
    if len(layout.paths) + len(layout.folders) != manifest.count or layout.content_size != manifest.size:
        raise MalformedMessage("A folder lists other files than its manifest tells of")
    for file, entry in large:
        assert isinstance(entry.where, bytes)
        whole = yield from gather_file(unpack_capability(entry.where), layout.shards)
        if (whole.size, whole.content, whole.algorithm, whole.shared) != (entry.size, entry.content, manifest.algorithm, 0):
            raise MalformedMessage(f"A folder lists {entry.path[:80]!r} with the manifest of another file")
        layout._add_own(file, whole.size, whole.references)
    return layout


def gather_file(root: Capability, shards: list[bytes] | None = None) -> Generator[Chunk, bytes | memoryview, FileManifest]:
    """Yields the shards of a single file's manifest as chunks, and returns it; their addresses are added to `shards`."""
    first = Chunk(root.address, root.key, root.size, 0, 0, root.size)
    manifest = decode((yield first))
    noted = [] if shards is None else shards
    noted.append(first.address)
    if isinstance(manifest, FileManifest):
        return manifest
    if not isinstance(manifest, PartedManifest):
        raise MalformedMessage("A folder lists a folder where it says that there is a file")
    gathered = bytearray()
    for part in manifest.chunks():
        gathered += yield part
        noted.append(part.address)
    return manifest.complete(bytes(gathered))


def _take_page(layout: Layout, page: Page, order: _Order, large: list[tuple[int, Entry]]) -> None:
    numbers = [
        layout._add_chunk(page.references[at * REFERENCE_SIZE : (at + 1) * REFERENCE_SIZE], size) for at, size in enumerate(page.sizes)
    ]
    places = layout._places
    for entry in page.entries:
        order.check(entry)
        if entry.kind == FOLDER:
            layout.folders.append(entry.path)
            continue
        file, where = layout._add_file(entry), entry.where
        if type(where) is int:
            places[numbers[where]].extend((file, 0, entry.skip, entry.size))
        elif len(where) == PACKED_SIZE:  # type: ignore[arg-type]
            large.append((file, entry))
        else:
            layout._add_own(file, entry.size, where)  # type: ignore[arg-type]


class _Order:
    """Sees to it that entries come in the order of their paths, none twice and none within a file."""

    def __init__(self) -> None:
        self._last: list[str] = []

    def check(self, entry: Entry) -> None:
        names = components(entry.path)
        last, self._last = self._last, names
        if names <= last:
            raise MalformedMessage(f"A folder lists {entry.path[:80]!r} twice, or out of order")
        if last and names[: len(last)] == last:
            raise MalformedMessage(f"A folder lists {entry.path[:80]!r} below what is no folder, or empty")
