"""A folder is shared as a whole: every file of it arrives, and thousands of small ones cost little."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import filecmp
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.errors import ArgumentError, DiskFull, InputChanged, InputUnreadable, MisuseError, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload import handing, scan, tree
from p2pqueue.payload.capability import parse_capability
from p2pqueue.payload.fetching import transfer
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.source import ShardMissing
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, content
from tests.unit.payload.peers import Peer


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shelf]:
    """The shelf of another device."""
    made = Shelf(Home(tmp_path / "there"), SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One of everything: small and large files, equal ones, empty ones, empty folders, odd names."""
    base = tmp_path / "drawings"
    for number in range(120):
        put(base / f"set {number % 7}" / f"{number:03}.svg", content(2000 + 97 * number, number))
    put(base / "twin.svg", content(2000 + 97 * 5, 5))
    put(base / "empty.txt", b"")
    put(base / "set 1.txt", b"beside a folder whose name begins the same")
    put(base / "large.bin", content(3 * MIB + 5, 900))
    put(base / "packed to the brim.bin", content(tree.PACKED_LIMIT, 901))
    put(base / "just too large.bin", content(tree.PACKED_LIMIT + 1, 902))
    put(base / "grün" / "日本語 🎈.txt", b"names of all scripts")
    put(base / "grün" / "My%20File.pdf", b"a name as browsers write it")
    put(base / "run.sh", b"#!/bin/sh\n")
    (base / "run.sh").chmod(0o755)
    (base / "nothing" / "in here").mkdir(parents=True)
    return base


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def states(base: Path) -> dict[str, tuple[object, ...]]:
    """All that lies below a folder, and in which state."""
    found: dict[str, tuple[object, ...]] = {}
    for path in base.rglob("*"):
        told = path.stat()
        what = (path.read_bytes(), bool(told.st_mode & stat.S_IXUSR)) if path.is_file() else ()
        found[str(path.relative_to(base))] = what
    return found


@pytest.mark.parametrize("copy", [True, False])
def test_a_folder_comes_out_as_it_went_in(shelf: Shelf, folder: Path, tmp_path: Path, copy: bool) -> None:
    stored = shelf.ingest(folder, copy=copy)
    assert (stored.name, stored.kind, stored.by_reference) == ("drawings", "folder", not copy)
    out = shelf.fetch_to(stored.capability, tmp_path / "out")
    assert states(out) == states(folder)
    assert shelf.fetch_to(stored.capability, tmp_path / "out") == tmp_path / "out" / "drawings", "in a folder that is there, by its name"


def test_small_files_share_few_chunks_and_equal_ones_are_put_in_once(shelf: Shelf, folder: Path) -> None:
    stored = shelf.ingest(folder)
    small = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.stat().st_size <= tree.PACKED_LIMIT)
    own = 4 + 1  # chunks of `large.bin` and `just too large.bin`
    pages = 1
    assert len(shelf.addresses(stored.capability)) <= own + pages + 1 + 2 * small // tree.SHARED_LIMIT + 1
    put(folder / "copy of the large one.bin", content(3 * MIB + 5, 900))
    again = shelf.ingest(folder)
    assert set(shelf.addresses(again.capability)) - set(shelf.addresses(stored.capability)) <= set(shelf.addresses(again.capability)[-4:])


def test_an_unchanged_folder_is_not_read_again(shelf: Shelf, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = shelf.ingest(folder, copy=False)
    opened = opened_below(folder, monkeypatch)
    assert shelf.ingest(folder, copy=False) == stored
    assert opened == []


def test_of_a_changed_folder_only_what_changed_and_its_neighbours_are_read(
    shelf: Shelf, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.ingest(folder, copy=False)
    put(folder / "run.sh", b"#!/bin/sh\nexit 1\n")
    opened = opened_below(folder, monkeypatch)
    changed = shelf.ingest(folder, copy=False)
    assert "run.sh" in opened
    assert "large.bin" not in opened
    monkeypatch.undo()
    assert states(shelf.fetch_to(changed.capability, tmp_path / "out")) == states(folder)


def opened_below(base: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files below a folder that are opened from now on."""
    opened: list[str] = []
    really = os.open

    def watching(path: str | os.PathLike[str], flags: int, mode: int = 0o777, **more: int) -> int:
        if str(path).startswith(f"{base}{os.sep}"):
            opened.append(os.path.basename(path))
        return really(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watching)
    return opened


def test_a_change_of_content_mode_or_name_is_seen(shelf: Shelf, folder: Path) -> None:
    seen = {shelf.ingest(folder, copy=False).capability}
    for change in (
        lambda: put(folder / "twin.svg", content(2000 + 97 * 5, 6)),
        lambda: (folder / "twin.svg").chmod(0o700),
        lambda: (folder / "twin.svg").rename(folder / "triplet.svg"),
        lambda: (folder / "nothing" / "in here").rmdir(),
        lambda: (folder / "empty.txt").unlink(),
    ):
        change()
        seen.add(shelf.ingest(folder, copy=False).capability)
    assert len(seen) == 6


async def test_a_folder_is_fetched_whole_and_served_on(shelf: Shelf, there: Shelf, folder: Path, tmp_path: Path) -> None:
    stored = there.ingest(folder, copy=False)
    steps: list[tuple[int, int]] = []
    await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability, on_progress=lambda *step: steps.append(step))
    assert steps[-1][0] == steps[-1][1]
    assert shelf.holds(stored.capability)
    landed = shelf.locate(stored.capability)
    assert landed is not None
    assert states(landed) == states(folder)
    third = Shelf(Home(tmp_path / "third"), SPACE_KEY, quota=1024 * MIB, reserve=0)
    await Fetcher(third, lambda: [Peer(shelf)]).fetch(stored.capability)
    assert states(third.fetch_to(stored.capability, tmp_path / "third-out")) == states(folder)
    third.close()


async def test_a_fetch_that_was_cut_goes_on_with_what_is_missing(
    shelf: Shelf, there: Shelf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(transfer, "PATIENCE", 0.5)
    stored = there.ingest(folder, copy=False)
    first, second = Noting(there, gives=5), Noting(there)
    with pytest.raises(PayloadUnavailable):
        await Fetcher(shelf, lambda: [first]).fetch(stored.capability)
    assert not shelf.holds(stored.capability)
    await Fetcher(shelf, lambda: [second]).fetch(stored.capability)
    assert set(second.given) & set(first.given) <= set(first.given[:2]), "the pages and the manifest alone"
    assert states(shelf.locate(stored.capability) or Path()) == states(folder)


class Noting(Peer):
    """Notes what it gives, of which there may be an end."""

    def __init__(self, shelf: Shelf, *, gives: int = 1000) -> None:
        super().__init__(shelf)
        self._gives = gives
        self.given: list[bytes] = []

    async def shard(self, address: bytes, size: int) -> bytes:
        if len(self.given) == self._gives:
            raise ShardMissing
        self.given.append(address)
        return await super().shard(address, size)


def test_symbolic_links_are_followed_and_what_leads_nowhere_is_left_out_and_told(shelf: Shelf, folder: Path, tmp_path: Path) -> None:
    os.symlink("large.bin", folder / "link to a file")
    os.symlink("set 3", folder / "link to a folder")
    os.symlink("gone", folder / "dangling")
    os.symlink("..", folder / "nothing" / "loop")
    os.mkfifo(folder / "pipe")
    stored = shelf.ingest(folder)
    assert sorted(words.split(" is ")[1] for words in stored.left_out) == [
        "a link that leads nowhere",
        "a link to a folder in which it lies",
        "a pipe",
    ]
    out = shelf.fetch_to(stored.capability, tmp_path / "out")
    assert (out / "link to a file").read_bytes() == content(3 * MIB + 5, 900)
    assert filecmp.cmpfiles(folder / "set 3", out / "link to a folder", os.listdir(folder / "set 3"), shallow=False)[1:] == ([], [])
    assert not os.path.lexists(out / "dangling")


def test_an_unreadable_file_in_it_is_an_error_that_names_it(shelf: Shelf, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: str | bytes, *arguments: Any, **options: Any) -> int:  # root may read everything
        if os.fsdecode(path).endswith("twin.svg"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputUnreadable, match=r"twin\.svg"):
        shelf.ingest(folder)


def test_more_files_than_a_manifest_lists_are_refused(shelf: Shelf, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "ENTRIES_LIMIT", 50)
    with pytest.raises(ArgumentError, match="more than 50 files"):
        shelf.ingest(folder)


def test_names_that_differ_in_form_alone_stay_apart(shelf: Shelf, tmp_path: Path) -> None:
    base = tmp_path / "names"
    names = ["\u00e9.txt", "e\u0301.txt", "README", "readme", " spaced ", "ends with a dot.", "-rf", "a%41", "x" * 255, "two\nlines"]
    for number, name in enumerate(names):
        put(base / name, f"{number}".encode())
    put(base / os.fsdecode(b"\xff.bin"), b"no UTF-8")
    out = shelf.fetch_to(shelf.ingest(base).capability, tmp_path / "out")
    assert sorted(path.read_bytes() for path in out.iterdir()) == sorted([*(f"{n}".encode() for n in range(len(names))), b"no UTF-8"])
    kept = {"\u00e9.txt", "e\u0301.txt", "README", "readme", "-rf", "a%41", "x" * 255}
    assert kept | {"%20spaced%20", "ends with a dot%2E", "two%0Alines", "%FF.bin"} == set(os.listdir(out))


def test_a_folder_is_never_mixed_with_one_that_is_there(shelf: Shelf, folder: Path, tmp_path: Path) -> None:
    stored = shelf.ingest(folder)
    put(tmp_path / "elsewhere" / "drawings" / "mine.txt", b"mine")
    with pytest.raises(MisuseError, match="is there already"):
        shelf.fetch_to(stored.capability, tmp_path / "elsewhere")
    assert os.listdir(tmp_path / "elsewhere" / "drawings") == ["mine.txt"]


def test_a_file_that_changed_since_is_told_and_nothing_is_written(shelf: Shelf, folder: Path, tmp_path: Path) -> None:
    stored = shelf.ingest(folder, copy=False)
    put(folder / "set 2" / "002.svg", b"another")
    assert not shelf.holds(stored.capability)
    with pytest.raises(Exception, match="changed since"):
        shelf.fetch_to(stored.capability, tmp_path / "out")
    assert not os.path.lexists(tmp_path / "out")
    assert [name for name in os.listdir(tmp_path) if name.endswith(".part")] == []


async def test_what_nobody_needs_of_a_fetched_folder_is_removed(shelf: Shelf, there: Shelf, folder: Path, home: Home) -> None:
    stored = there.ingest(folder, copy=False)
    await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability)
    assert shelf.remove(stored.capability) >= 4 * MIB
    assert not shelf.holds(stored.capability)
    assert list((home.path / "outputs").iterdir()) == []
    assert folder.exists()
    assert there.remove(stored.capability) > 0
    assert (folder / "large.bin").exists(), "what lies outside of the home is never ours to remove"


def test_one_capability_stands_for_equal_folders_wherever_they_lie(shelf: Shelf, there: Shelf, folder: Path, tmp_path: Path) -> None:
    out = shelf.fetch_to(shelf.ingest(folder).capability, tmp_path / "b" / "drawings")
    assert there.ingest(out).capability == shelf.ingest(folder).capability
    assert parse_capability(shelf.ingest(folder).capability).size < 1000


async def test_concurrent_fetches_of_one_folder_share_the_work(shelf: Shelf, there: Shelf, folder: Path) -> None:
    stored = there.ingest(folder)
    fetcher = Fetcher(shelf, lambda: [Peer(there)])
    await asyncio.gather(fetcher.fetch(stored.capability), fetcher.fetch(stored.capability))
    assert shelf.holds(stored.capability)


def test_files_that_change_while_they_are_read_are_told_and_never_mixed(shelf: Shelf, tmp_path: Path) -> None:
    base, stop = tmp_path / "busy", threading.Event()
    paths = [put(base / f"{number}.log", b"a" * 200_000) for number in range(8)]

    def write() -> None:
        letter = 0
        while not stop.is_set():
            letter = (letter + 1) % 26
            for path in paths:
                with path.open("r+b") as file:
                    file.write(bytes([97 + letter]) * (150_000 + 2000 * letter))
                    file.truncate()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        taken = []
        for _ in range(20):
            with contextlib.suppress(InputChanged):
                taken.append(shelf.ingest(base, copy=True))
    finally:
        stop.set()
        writer.join()
    taken.append(shelf.ingest(base, copy=True))
    for number, stored in enumerate(taken):
        out = shelf.fetch_to(stored.capability, tmp_path / f"out {number}")
        assert all(_was_so(path.read_bytes()) for path in out.iterdir())


def _was_so(data: bytes) -> bool:
    """Says whether a file was ever like that: of one letter, or, where its writer stood still in the middle, the next one before it."""
    first, last = data[0], data[-1]
    return data == bytes([first]) * data.count(first) + bytes([last]) * (len(data) - data.count(first)) and (first - last) % 26 in (0, 1)


async def test_a_full_disk_is_told_and_what_came_is_used_when_there_is_room(
    shelf: Shelf, there: Shelf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    stored = there.ingest(folder, copy=False)
    left, really = [2_500_000], os.write

    def filling(descriptor: int, data: memoryview) -> int:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really(descriptor, data)

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(DiskFull):
        await Fetcher(shelf, lambda: [Peer(there, parallel=1)]).fetch(stored.capability)
    monkeypatch.undo()
    assert not shelf.holds(stored.capability)
    second = Noting(there)
    await Fetcher(shelf, lambda: [second]).fetch(stored.capability)
    assert len(second.given) < len(there.addresses(stored.capability)) - 1
    assert states(shelf.locate(stored.capability) or Path()) == states(folder)


def test_a_pinned_or_shared_folder_outlives_a_sweep_and_others_go(shelf: Shelf, folder: Path, home: Home) -> None:
    stored, other = shelf.ingest(folder, copy=True), shelf.ingest(folder / "set 1", copy=True)
    expire(home)
    assert shelf.sweep([stored.capability]) > 0
    assert shelf.holds(stored.capability)
    assert not shelf.holds(other.capability)
    assert shelf.sweep([]) > 3 * MIB
    assert not shelf.holds(stored.capability)
    assert folder.is_dir()


def expire(home: Home) -> None:
    """Lets the temporary roots be old."""
    with sqlite3.connect(home.shelf_file) as connection:
        connection.execute("UPDATE roots SET touched_at = touched_at - 7200")
    connection.close()


def test_a_copy_beyond_the_quota_is_refused_and_serving_it_from_where_it_lies_is_not(home: Home, folder: Path) -> None:
    small = Shelf(home, SPACE_KEY, quota=2 * MIB, reserve=0)
    with pytest.raises(DiskFull, match="quota"):
        small.ingest(folder, copy=True)
    assert small.usage().stored == 0
    assert small.holds(small.ingest(folder, copy=False).capability)
    small.close()


def test_few_files_are_open_at_once(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "many"
    for number in range(600):
        put(base / f"{number}", b"%d" % number)
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40 if os.path.isdir("/proc/self/fd") else 256, limits[1])
    )
    try:
        stored = shelf.ingest(base, copy=False)
        out = shelf.fetch_to(stored.capability, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert states(out) == states(base)


@pytest.mark.parametrize("other_disk", [False, True])
async def test_what_was_fetched_is_handed_over_and_served_on(
    shelf: Shelf, there: Shelf, folder: Path, tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, other_disk: bool
) -> None:  # fmt: skip
    if other_disk:
        monkeypatch.setattr(handing, "move", lambda *_: False)
    for source in (folder, folder / "large.bin"):
        stored = there.ingest(source, copy=False)
        await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability)
        target = shelf.hand_over(stored.capability, tmp_path / f"mine {source.name}")
        assert target == tmp_path / f"mine {source.name}"
        assert list((home.path / "outputs").iterdir()) == []
        assert shelf.locate(stored.capability) == target
        assert all(shelf.shard(address) for address in shelf.addresses(stored.capability))
        assert shelf.hand_over(stored.capability, tmp_path / "again") is None
        shelf.remove(stored.capability)
        assert target.exists()
    assert states(tmp_path / "mine drawings") == states(folder)


@pytest.mark.parametrize("name", ["large.bin", ""])
async def test_of_several_who_want_what_was_fetched_each_gets_it(
    shelf: Shelf, there: Shelf, folder: Path, tmp_path: Path, home: Home, name: str
) -> None:
    for number in range(5):
        stored = there.ingest(put(folder / name, content(3 * MIB, number)) if name else folder, copy=False)
        await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability)

        def take(place: int, capability: str = stored.capability, number: int = number) -> Path:
            target = tmp_path / f"taken {number} {place}"
            own = Shelf(home, SPACE_KEY)  # as another process has it
            try:
                return own.hand_over(capability, target) or own.fetch_to(capability, target)
            finally:
                own.close()

        taken = await asyncio.gather(*(asyncio.to_thread(take, place) for place in range(5)))
        addresses = shelf.addresses(stored.capability)
        assert all(shelf.shard(address) for address in addresses)
        for path in taken:
            assert states(path) == states(folder) if path.is_dir() else path.read_bytes() == content(3 * MIB, number)
        shelf.remove(stored.capability)


async def test_a_folder_without_content_arrives_too(shelf: Shelf, there: Shelf, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    put(tmp_path / "hollow" / "empty.txt", b"")
    (tmp_path / "nested" / "a" / "b").mkdir(parents=True)
    for name in ("empty", "hollow", "nested"):
        for copy in (True, False):
            stored = there.ingest(tmp_path / name, copy=copy)
            assert states(there.fetch_to(stored.capability, tmp_path / f"{name} {copy}")) == states(tmp_path / name)
        await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability)
        assert states(shelf.fetch_to(stored.capability, tmp_path / f"fetched {name}")) == states(tmp_path / name)
