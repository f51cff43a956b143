"""A full disk is told in words, leaves no partial file and no broken database, and things go on when there is room."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.errors import DiskFull
from p2pqueue.home import Home
from p2pqueue.payload.file import File
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)  # at once, though a failed test may hold a file open


def enlarge(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def check(home: Home) -> None:
    """The database is sound, and no temporary file is left."""
    with sqlite3.connect(home.shelf_file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert not [entry for entry in home.shards_dir.iterdir() if entry.name.startswith(".")]


@pytest.mark.root
def test_a_file_that_does_not_fit_leaves_nothing_and_fits_when_there_is_room(small_disk: Path, make_file: MakeFile) -> None:
    home = Home(small_disk / "home")
    shelf = Shelf(home, SPACE_KEY, quota=100 * MIB, reserve=0)
    small, large = make_file(MIB), make_file(20 * MIB, "large", seed=1)
    kept = shelf.ingest(small)
    for _ in range(3):
        with pytest.raises(DiskFull, match="No space left"):
            shelf.ingest(large)
        check(home)
    assert shelf.usage().files == 1
    assert b"".join(shelf.open(kept.capability)) == content(MIB)
    enlarge(small_disk, "64m")
    stored = shelf.ingest(large)
    assert b"".join(shelf.open(stored.capability)) == content(20 * MIB, seed=1)
    shelf.close()


@pytest.mark.root
def test_a_disk_that_fills_up_while_writing_leaves_nothing(small_disk: Path, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else takes the room that was there at the beginning: the error comes from the disk itself."""
    home = Home(small_disk / "home")
    shelf = Shelf(home, SPACE_KEY, quota=100 * MIB, reserve=0)
    monkeypatch.setattr("p2pqueue.payload.store.ShardStore.check_room", lambda *_, **__: None)
    with pytest.raises(DiskFull):
        shelf.ingest(make_file(20 * MIB))
    check(home)
    assert list(home.shards_dir.iterdir()) == []
    assert b"".join(shelf.open(shelf.ingest(make_file(MIB)).capability)) == content(MIB)
    shelf.close()


@pytest.mark.root
@pytest.mark.parametrize("size", [2 * MIB, 20_000], ids=["files", "rows"])
def test_freeing_works_on_a_disk_without_a_byte_left(
    small_disk: Path, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    home = Home(small_disk / "home")
    shelf = Shelf(home, SPACE_KEY, quota=100 * MIB, reserve=0)
    stored = [shelf.ingest(make_file(size, f"file{n}", seed=n)) for n in range(3)]
    hog = small_disk / "hog"
    with pytest.raises(OSError, match="No space left"):
        hog.write_bytes(bytes(9 * MIB))
    assert shutil.disk_usage(small_disk).free == 0
    assert shelf.remove(stored[0].capability) > size
    hour = time.time() + 4000
    monkeypatch.setattr("p2pqueue.payload.sweep.time.time", lambda: hour)
    assert shelf.sweep([stored[1].capability]) > size
    assert b"".join(shelf.open(stored[1].capability)) == content(size, seed=1)
    assert not shelf.holds(stored[2].capability)
    check(home)
    shelf.close()


@pytest.mark.root
def test_a_result_that_does_not_fit_is_not_saved_in_part(shelf: Shelf, small_disk: Path, make_file: MakeFile) -> None:
    stored = shelf.ingest(make_file(20 * MIB))
    file = File.granted(None, stored.capability, name="out.bin", size=stored.size, shelf=shelf)
    for target in (small_disk, small_disk / "other"):
        with pytest.raises(DiskFull, match="No space left"):
            file.save(target)
        assert list(small_disk.iterdir()) == []
    enlarge(small_disk, "64m")
    assert file.save(small_disk).read_bytes() == content(20 * MIB)


@pytest.mark.root
def test_a_plain_input_is_served_from_where_it_lies_though_the_disk_is_full(small_disk: Path, make_file: MakeFile) -> None:
    shelf = Shelf(Home(small_disk / "home"), SPACE_KEY, quota=1, reserve=8 * MIB)
    stored = shelf.ingest(make_file(20 * MIB), copy=False)
    assert b"".join(shelf.open(stored.capability)) == content(20 * MIB)
    shelf.close()


def test_the_quota_is_told_in_words_and_kept(home: Home, make_file: MakeFile) -> None:
    shelf = Shelf(home, SPACE_KEY, quota=5 * MIB, reserve=0)
    first = shelf.ingest(make_file(3 * MIB))
    with pytest.raises(DiskFull, match="quota"):
        shelf.ingest(make_file(3 * MIB, "second", seed=1))
    with pytest.raises(DiskFull, match="quota"):
        shelf.ingest_bytes(content(3 * MIB, seed=2), "third")
    assert shelf.usage().files == 1
    shelf.remove(first.capability)
    shelf.ingest(make_file(3 * MIB, "second", seed=1))
    shelf.close()


def test_a_reserve_is_left_on_the_disk(home: Home, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage(home.path)
    shelf = Shelf(home, SPACE_KEY, quota=100 * MIB, reserve=10 * MIB)
    nearly_full = real._replace(total=1000 * MIB, free=12 * MIB)
    monkeypatch.setattr("p2pqueue.payload.store.shutil.disk_usage", lambda _: nearly_full)
    shelf.ingest(make_file(MIB))
    with pytest.raises(DiskFull, match="reserved"):
        shelf.ingest(make_file(3 * MIB, "second", seed=1))
    shelf.close()


def test_the_quota_follows_the_disk_unless_it_is_set(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage(home.path)
    monkeypatch.setattr("p2pqueue.payload.store.shutil.disk_usage", lambda _: real._replace(total=50 * 10**9))
    assert Shelf(home, SPACE_KEY).usage().quota == 5 * 10**9
    monkeypatch.setattr("p2pqueue.payload.store.shutil.disk_usage", lambda _: real._replace(total=10**13))
    assert Shelf(home, SPACE_KEY).usage().quota == 20 * 1024**3
