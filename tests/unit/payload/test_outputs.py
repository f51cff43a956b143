"""The output of a job outlives the folder it was made in, and takes room once."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from p2pqueue.errors import DiskFull, InputUnreadable
from p2pqueue.home import Home
from p2pqueue.payload import shelf as shelf_module
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content


@pytest.fixture(autouse=True)
def _large_is_a_megabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "COPY_LIMIT", MIB)


@pytest.fixture
def workdir(home: Home) -> Path:
    """The working folder of an attempt."""
    folder = home.work_dir / "job-1"
    folder.mkdir(parents=True)
    return folder


def make(path: Path, size: int = 2 * MIB) -> Path:
    path.write_bytes(content(size))
    return path


@pytest.mark.parametrize("size", [0, 10, MIB - 1, MIB, 3 * MIB])
def test_an_output_of_any_size_outlives_its_folder(shelf: Shelf, workdir: Path, size: int) -> None:
    stored = shelf.adopt(make(workdir / "out.mp4", size))
    shutil.rmtree(workdir)
    assert (stored.name, stored.size) == ("out.mp4", size)
    assert shelf.holds(stored.capability)
    assert b"".join(shelf.open(stored.capability)) == content(size)


def test_a_large_output_is_moved_and_takes_room_once(shelf: Shelf, workdir: Path, home: Home) -> None:
    output = make(workdir / "out.mp4")
    inode = output.stat().st_ino
    stored = shelf.adopt(output, "result.mp4")
    path = shelf.locate(stored.capability)
    assert path is not None
    assert path.is_relative_to(home.path / "outputs")
    assert path.name == "result.mp4"
    assert path.stat().st_ino == inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not output.exists()
    assert list(home.shards_dir.iterdir()) == []
    assert shelf.usage().outputs == 2 * MIB


def test_an_output_goes_with_its_last_manifest(shelf: Shelf, workdir: Path, home: Home) -> None:
    stored = shelf.adopt(make(workdir / "out.mp4"))
    assert shelf.remove(stored.capability) > 2 * MIB
    assert list((home.path / "outputs").iterdir()) == []
    assert shelf.usage().outputs == 0


def test_a_file_outside_the_working_folder_is_not_ours_to_move(shelf: Shelf, workdir: Path, tmp_path: Path) -> None:
    library = make(tmp_path / "film.mp4")
    os.chmod(library, 0o644)
    os.symlink(library, workdir / "link.mp4")
    for path in (library, workdir / "link.mp4"):
        stored = shelf.adopt(path)
        assert shelf.locate(stored.capability) == library
    assert stat.S_IMODE(library.stat().st_mode) == 0o644


def test_a_file_with_another_name_elsewhere_is_copied(shelf: Shelf, workdir: Path, tmp_path: Path) -> None:
    original = make(tmp_path / "input.mp4")
    os.link(original, workdir / "out.mp4")
    stored = shelf.adopt(workdir / "out.mp4")
    path = shelf.locate(stored.capability)
    assert path is not None
    assert path.stat().st_ino != original.stat().st_ino
    original.write_bytes(b"changed")
    assert b"".join(shelf.open(stored.capability)) == content(2 * MIB)


def test_a_copy_that_does_not_fit_is_refused_and_leaves_nothing(home: Home, workdir: Path, tmp_path: Path) -> None:
    shelf = Shelf(home, SPACE_KEY, quota=MIB, reserve=0)
    os.link(make(tmp_path / "input.mp4"), workdir / "out.mp4")
    with pytest.raises(DiskFull, match="quota"):
        shelf.adopt(workdir / "out.mp4")
    assert list((home.path / "outputs").iterdir()) == []
    shelf.close()


def test_an_output_that_can_not_be_sealed_is_where_it_was(shelf: Shelf, workdir: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DiskFull("no room")

    output = make(workdir / "out.mp4")
    monkeypatch.setattr(shelf_module, "seal_file", fail)
    with pytest.raises(DiskFull):
        shelf.adopt(output)
    assert output.read_bytes() == content(2 * MIB)
    assert list((home.path / "outputs").iterdir()) == []


def test_a_small_output_is_moved_when_a_copy_would_pass_the_quota(home: Home, workdir: Path) -> None:
    shelf = Shelf(home, SPACE_KEY, quota=1000, reserve=0)
    stored = shelf.adopt(make(workdir / "out.txt", 5000))
    assert stored.by_reference
    shutil.rmtree(workdir)
    assert b"".join(shelf.open(stored.capability)) == content(5000)
    shelf.close()


@pytest.mark.parametrize("name", ["../../escape", "/etc/escape", "a\nb", "..", "x" * 400])
def test_the_name_of_an_output_is_no_path(shelf: Shelf, workdir: Path, home: Home, name: str) -> None:
    stored = shelf.adopt(make(workdir / "out"), name)
    path = shelf.locate(stored.capability)
    assert path is not None
    assert path.parent.parent == home.path / "outputs"
    assert stored.name == name


def test_what_is_no_file_is_refused_in_words(shelf: Shelf, workdir: Path) -> None:
    if hasattr(os, "mkfifo"):
        os.mkfifo(workdir / "pipe")
        with pytest.raises(InputUnreadable, match="pipe"):
            shelf.adopt(workdir / "pipe")
    with pytest.raises(InputUnreadable, match="No such file"):
        shelf.adopt(workdir / "missing")


def make_folder(path: Path, size: int) -> Path:
    (path / "deep").mkdir(parents=True)
    make(path / "deep" / "one.bin", size)
    (path / "two.txt").write_text("two")
    return path


@pytest.mark.parametrize("size", [10, 2 * MIB])
def test_a_folder_of_any_size_outlives_the_one_it_was_made_in(shelf: Shelf, workdir: Path, home: Home, tmp_path: Path, size: int) -> None:
    stored = shelf.adopt(make_folder(workdir / "frames", size))
    shutil.rmtree(workdir)
    assert (stored.name, stored.size, stored.kind) == ("frames", size + 3, "folder")
    assert shelf.holds(stored.capability)
    saved = shelf.fetch_to(stored.capability, tmp_path / "saved")
    assert (saved / "deep" / "one.bin").read_bytes() == content(size)
    assert (saved / "two.txt").read_text() == "two"
    moved = list((home.path / "outputs").glob("*/frames"))
    assert len(moved) == (size > MIB)
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o700 for each in moved)
    shelf.remove(stored.capability)
    assert list((home.path / "outputs").glob("*")) == []
    assert shelf.usage().stored == 0


def test_a_small_folder_is_kept_beyond_the_quota_as_a_file_is(home: Home, workdir: Path) -> None:
    small = Shelf(home, SPACE_KEY, quota=400_000, reserve=0)
    stored = small.adopt(make_folder(workdir / "frames", 500_000))
    assert small.holds(stored.capability)
    assert [each.name for each in (home.path / "outputs").glob("*/*")] == ["frames"]
    small.close()


def test_a_folder_that_can_not_be_kept_stays_where_it_was_made(
    shelf: Shelf, workdir: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_folder(workdir / "frames", 2 * MIB)

    def fail(*_: object, **__: object) -> None:
        raise DiskFull("No space left")

    monkeypatch.setattr("p2pqueue.payload.folders.add_file", fail)
    with pytest.raises(DiskFull):
        shelf.adopt(made)
    assert (made / "deep" / "one.bin").read_bytes() == content(2 * MIB)
    assert list((home.path / "outputs").iterdir()) == []


def test_a_folder_with_links_is_copied_with_what_they_lead_to(shelf: Shelf, workdir: Path, home: Home, tmp_path: Path) -> None:
    made = make_folder(workdir / "frames", 10)
    (made / "link.bin").symlink_to(make(tmp_path / "elsewhere.bin", 2 * MIB))
    stored = shelf.adopt(made)
    (tmp_path / "elsewhere.bin").unlink()
    shutil.rmtree(workdir)
    saved = shelf.fetch_to(stored.capability, tmp_path / "saved")
    assert (saved / "link.bin").read_bytes() == content(2 * MIB)
    assert not (saved / "link.bin").is_symlink()


def test_two_equal_outputs_are_both_kept_until_both_go(shelf: Shelf, home: Home, make_file: MakeFile) -> None:
    capabilities = []
    for attempt in range(2):
        folder = home.work_dir / f"{attempt}"
        folder.mkdir(parents=True)
        capabilities.append(shelf.adopt(make(folder / "out.mp4")).capability)
        shutil.rmtree(folder)
    assert capabilities[0] == capabilities[1]
    assert b"".join(shelf.open(capabilities[0])) == content(2 * MIB)
    shelf.remove(capabilities[0])
    assert list((home.path / "outputs").iterdir()) == []
