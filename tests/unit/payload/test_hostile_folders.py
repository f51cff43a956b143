"""Manifests of folders that no honest device makes: each is refused in words, in bounded memory, and nothing is written outside."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from p2pqueue import wire
from p2pqueue.errors import DiskFull, MalformedMessage, P2PQueueError
from p2pqueue.home import Home
from p2pqueue.payload import manifest as manifests
from p2pqueue.payload.capability import Capability, parse_capability
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.format import LARGEST_FILE, PART_SIZE, REFERENCE_SIZE, ROOT_LIMIT
from p2pqueue.payload.manifest import FileManifest, TreeManifest, decode, encode
from p2pqueue.payload.publish import seal_manifest
from p2pqueue.payload.seal import Sealer
from p2pqueue.payload.shelf import Shelf
from p2pqueue.payload.tree import EXECUTABLE, FILE, FOLDER, SHARED_LIMIT, components, decode_page, encode_page
from tests.unit.payload.conftest import MIB, SPACE_KEY
from tests.unit.payload.peers import Peer

HASH = bytes(32)
WORDS = b"ten bytes."


class Forger:
    """Makes shards of whatever is asked, on a shelf of its own."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.sealer = Sealer(SPACE_KEY, capacity=2 * MIB)

    def seal(self, data: bytes) -> bytes:
        """Address and key of a shard."""
        with self.shelf.batch() as batch:
            shard = self.sealer.seal(data)
            batch.add(shard)
            reference = shard.address + shard.key
            batch.end(lambda connection: None, keep=shard.address)
        return reference

    def tree(self, *pages: bytes, name: str = "folder", size: int | None = None, count: int | None = None) -> str:
        """The capability of a folder of these pages."""
        listed = [entry for page in pages for entry in msgpack.unpackb(page)[2]]
        whole = sum(entry[2] for entry in listed if len(entry) > 2) if size is None else size
        references = b"".join(self.seal(page) for page in pages)
        made = TreeManifest(
            name, whole, len(listed) if count is None else count, self.sealer.algorithm, tuple(map(len, pages)), references
        )  # fmt: skip
        return self.capability(encode(made)).text

    def capability(self, data: bytes) -> Capability:
        """That of a manifest of these bytes."""
        reference = self.seal(data)
        return Capability(self.sealer.algorithm, reference[:32], reference[32:], len(data))

    def page(self, *entries: list[Any]) -> bytes:
        """A page whose one shared chunk holds ten bytes."""
        return encode_page(self.seal(WORDS), [len(WORDS)], list(entries))


@pytest.fixture
def forger(tmp_path: Path) -> Iterator[Forger]:
    """A device that sends what it likes."""
    made = Shelf(Home(tmp_path / "there"), SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield Forger(made)
    made.close()


def file(path: str, kind: int = FILE) -> list[Any]:
    return [path, kind, len(WORDS), HASH, 0, 0]


async def fetch(shelf: Shelf, forger: Forger, capability: str) -> None:
    await Fetcher(shelf, lambda: [Peer(forger.shelf)]).fetch(capability)


@pytest.mark.parametrize("path", ["..", "a/../../b", "/etc/passwd", "a//b", "", ".", "a/.", "a\0b", "a/" * 300 + "b", "x" * 9000])
async def test_a_path_that_leads_elsewhere_is_refused(shelf: Shelf, forger: Forger, path: str, home: Home) -> None:
    with pytest.raises(MalformedMessage):
        components(path)
    with pytest.raises(MalformedMessage):
        await fetch(shelf, forger, forger.tree(forger.page(file(path))))
    assert not any(path.is_file() for path in home.path.rglob("*") if path.suffix == ".bin")


@pytest.mark.parametrize("name", ["..\\..\\evil", "con.txt", "a:b", "\u202etxt.exe", "tab\there"])
async def test_an_odd_name_is_mapped_and_stays_below(shelf: Shelf, forger: Forger, tmp_path: Path, name: str) -> None:
    capability = forger.tree(forger.page(file(name)), name="../../folder")
    await fetch(shelf, forger, capability)
    before = set(tmp_path.rglob("*"))
    (tmp_path / "out").mkdir()
    out = shelf.fetch_to(capability, tmp_path / "out")
    assert out.parent == tmp_path / "out"
    (written,) = out.iterdir()
    assert written.read_bytes() == WORDS
    assert {path for path in set(tmp_path.rglob("*")) - before if path.is_file()} == {written}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([file("a"), file("a")], "twice"),
        ([file("b"), file("a")], "out of order"),
        ([file("a"), file("a/b")], "below what is no folder"),
        ([["a", FOLDER], file("a/b")], "or empty"),
        ([["a", FOLDER], ["a", FOLDER]], "twice"),
        ([["a", 7]], "neither a file nor a folder"),
        ([["a"]], "no name, kind and content"),
        (["a"], "no name, kind and content"),
        ([[b"a", FOLDER]], "no name, kind and content"),
        ([["a", 2, 10, HASH, 0, 0]], "impossible kind"),
        ([["a", FILE, -1, HASH, 0, 0]], "impossible kind or size"),
        ([["a", FILE, LARGEST_FILE + 1, HASH, b"", 0]], "impossible kind or size"),
        ([["a", FILE, 10, b"short", 0, 0]], "proper hash"),
        ([["a", FILE, 10, HASH, 1, 0]], "no shared chunk has them"),
        ([["a", FILE, 10, HASH, 0, 1]], "no shared chunk has them"),
        ([["a", FILE, 10, HASH, 0, -1]], "no shared chunk has them"),
        ([["a", FILE, 0, HASH, 0, 0]], "no shared chunk has them"),
        ([["a", FILE, 10, HASH, None, 0]], "doesn't say where"),
        ([["a", FILE, 10, HASH, bytes(2 * REFERENCE_SIZE), 0]], "other chunks"),
        ([["a", FILE, 3 * MIB, HASH, bytes(2 * REFERENCE_SIZE), 0]], "other chunks"),
    ],
)
async def test_a_page_that_cannot_be_true_is_refused_in_words(shelf: Shelf, forger: Forger, entries: list[Any], words: str) -> None:
    page = encode_page(forger.seal(WORDS), [len(WORDS)], [*entries, file("z")])
    with pytest.raises(MalformedMessage, match=words):
        await fetch(shelf, forger, forger.tree(page, size=0, count=1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda told: {**told, "count": 10**9}, "'count'"),
        (lambda told: {**told, "size": 2**62}, "'size'"),
        (lambda told: {**told, "lengths": [ROOT_LIMIT + 1]}, "page that is empty or longer"),
        (lambda told: {**told, "lengths": [0]}, "page that is empty or longer"),
        (lambda told: {**told, "lengths": [1, 1]}, "list of pages"),
        (lambda told: {**told, "lengths": 5}, "list of pages"),
        (lambda told: {**told, "alg": 99}, "algorithm 99"),
        (lambda told: {**told, "lengths": [ROOT_LIMIT] * 2000, "pages": bytes(2000 * REFERENCE_SIZE)}, "at most"),
    ],
)
def test_a_manifest_of_a_folder_that_cannot_be_true_is_refused(make: Callable[[dict[str, Any]], dict[str, Any]], words: str) -> None:
    told = wire.unpack(encode(TreeManifest("a", 1, 1, 1, (10,), bytes(REFERENCE_SIZE))))
    assert decode(wire.pack(told)) == TreeManifest("a", 1, 1, 1, (10,), bytes(REFERENCE_SIZE))
    with pytest.raises(MalformedMessage, match=words):
        decode(wire.pack(make(told)))


async def test_a_folder_of_other_files_than_its_manifest_tells_is_refused(shelf: Shelf, forger: Forger) -> None:
    page = forger.page(file("a"), file("b"))
    for size, count in ((20, 1), (20, 3), (19, 2), (21, 2)):
        with pytest.raises(MalformedMessage, match="other files"):
            await fetch(shelf, forger, forger.tree(page, size=size, count=count))
    with pytest.raises(MalformedMessage, match="in which nothing lies"):
        decode_page(encode_page(bytes(2 * REFERENCE_SIZE), [10, 10], [file("a")]))
    with pytest.raises(MalformedMessage, match="larger than"):
        decode_page(encode_page(bytes(REFERENCE_SIZE), [SHARED_LIMIT + 1], [file("a")]))


async def test_a_folder_of_a_quadrillion_bytes_finds_no_room_before_it_takes_memory(shelf: Shelf, forger: Forger) -> None:
    huge = LARGEST_FILE
    parts = manifests.PartedManifest(
        FileManifest("huge", "", huge, HASH, forger.sealer.algorithm, b""),
        forger.seal(bytes(PART_SIZE)) * -(-(huge // (8 * MIB)) * REFERENCE_SIZE // PART_SIZE),
    )  # fmt: skip
    root = forger.capability(encode(parts)).pack()
    page = encode_page(b"", [], [[f"{number:03}", FILE, huge, HASH, root, 0] for number in range(60)])
    capability = forger.tree(page)
    tracemalloc.start()
    with pytest.raises(DiskFull):
        await fetch(shelf, forger, capability)
    assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    tracemalloc.stop()


async def test_a_folder_in_the_place_of_a_file_is_refused(shelf: Shelf, forger: Forger) -> None:
    inner = forger.tree(forger.page(file("a")))
    page = encode_page(b"", [], [["loop", EXECUTABLE, 10, HASH, packed(inner), 0]])
    with pytest.raises(MalformedMessage, match="a folder where it says"):
        await fetch(shelf, forger, forger.tree(page))


async def test_another_file_s_manifest_is_refused(shelf: Shelf, forger: Forger) -> None:
    with forger.shelf.batch() as batch:
        other = FileManifest("other", "", 10, HASH, forger.sealer.algorithm, bytes(REFERENCE_SIZE))
        root = seal_manifest(other, Sealer(SPACE_KEY, capacity=ROOT_LIMIT), batch.add)
        batch.end(lambda connection: None, keep=root.address)
    page = encode_page(b"", [], [["file", FILE, 11, HASH, root.pack(), 0]])
    with pytest.raises(MalformedMessage, match="manifest of another file"):
        await fetch(shelf, forger, forger.tree(page))


def test_sets_that_list_one_another_many_times_are_looked_through_once(shelf: Shelf) -> None:
    inner = shelf.ingest_bytes(b"x" * 100, "x").capability
    for depth in range(40):
        other = shelf.ingest_bytes(b"y", f"{depth}").capability
        inner = shelf.bundle({f"{depth}-{number}": inner if number else other for number in range(3)})
    assert shelf.holds(inner)
    assert len(shelf.addresses(inner)) < 500


async def test_what_was_refused_leaves_nothing_behind(shelf: Shelf, forger: Forger, home: Home) -> None:
    with pytest.raises(P2PQueueError):
        await fetch(shelf, forger, forger.tree(forger.page(file("../evil"))))
    for folder in ("outputs", "landings"):
        assert not (home.path / folder).exists() or not os.listdir(home.path / folder)


def packed(text: str) -> bytes:
    return parse_capability(text).pack()
