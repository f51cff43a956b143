"""A `File` gives its content whole or not at all, whatever it was made from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from p2pqueue.errors import ArgumentError, InputChanged, InputUnreadable, MalformedMessage, MisuseError, PayloadUnavailable, WorldError
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from p2pqueue.payload.file import File
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, MakeFile, content

SIZE = 2 * MIB + 5
Make = Callable[[], File]


@pytest.fixture(params=["path", "granted path", "granted path and manifest", "granted manifest", "by reference"])
def file(request: pytest.FixtureRequest, shelf: Shelf, make_file: MakeFile, tmp_path: Path) -> File:
    """A file of 2 MiB and some, made in every way there is."""
    path = make_file(SIZE)
    if request.param == "path":
        return File(path)
    stored = shelf.ingest(path, copy=request.param != "by reference")
    (tmp_path / "work").mkdir()
    if request.param == "granted manifest":
        path.unlink()
    return File.granted(
        None if request.param in ("granted manifest", "by reference") else path,
        None if request.param == "granted path" else stored.capability,
        name="input.bin",
        size=SIZE,
        shelf=lambda: shelf,
        scratch=tmp_path / "work",
    )


def test_a_file_tells_what_it_is(file: File) -> None:
    assert (file.name, file.size) == ("input.bin", SIZE)
    assert repr(file) == "File('input.bin')"


def test_its_content_comes_in_pieces(file: File) -> None:
    assert b"".join(file.chunks()) == content(SIZE)
    pieces = list(file.chunks(300_000))
    assert b"".join(pieces) == content(SIZE)
    assert max(map(len, pieces)) == 300_000


async def test_its_content_comes_in_pieces_to_async_code(file: File) -> None:
    assert b"".join([piece async for piece in file.achunks()]) == content(SIZE)
    async for piece in file.achunks(1000):
        assert len(piece) == 1000
        break


def test_its_content_comes_at_once_within_a_limit(file: File) -> None:
    assert file.bytes() == content(SIZE)
    assert file.bytes(limit=SIZE) == content(SIZE)
    with pytest.raises(ArgumentError, match=r"input\.bin.*limit"):
        file.bytes(limit=SIZE - 1)


def test_it_has_a_path_of_its_own_name(file: File) -> None:
    assert file.path.name == "input.bin"
    assert file.path.read_bytes() == content(SIZE)
    assert file.path == file.path


def test_it_is_saved_to_a_path_or_into_a_folder(file: File, tmp_path: Path) -> None:
    target = tmp_path / "saved" / "out.bin"
    target.parent.mkdir()
    target.write_bytes(b"old")
    assert file.save(target) == target
    assert file.save(str(target.parent)) == target.parent / "input.bin"
    assert {path.name: path.read_bytes() for path in target.parent.iterdir()} == {"out.bin": content(SIZE), "input.bin": content(SIZE)}


def test_what_is_not_to_be_had_is_not_saved_in_part(shelf: Shelf, make_file: MakeFile, home: Home, tmp_path: Path) -> None:
    stored = shelf.ingest(make_file(SIZE))
    (home.shards_dir / shelf.describe(stored.capability).chunk(1).address.hex()).unlink()
    file = File.granted(None, stored.capability, name="input.bin", size=SIZE, shelf=shelf, scratch=tmp_path)
    (tmp_path / "saved").mkdir()
    for read in (lambda: file.save(tmp_path / "saved"), file.bytes, lambda: file.path):
        with pytest.raises(PayloadUnavailable, match=r"input\.bin"):
            read()
    assert list((tmp_path / "saved").iterdir()) == []


def test_a_granted_path_that_is_not_what_it_was_is_refused(make_file: MakeFile) -> None:
    path = make_file(100)
    file = File.granted(path, None, name="input.bin", size=99)
    for read in (file.bytes, lambda: list(file.chunks())):
        with pytest.raises(InputChanged, match=r"input\.bin"):
            read()


def test_a_vanished_original_is_replaced_by_what_was_stored(shelf: Shelf, make_file: MakeFile, tmp_path: Path) -> None:
    path = make_file(100)
    stored = shelf.ingest(path)
    path.unlink()
    file = File.granted(path, stored.capability, name="input.bin", size=100, shelf=shelf, scratch=tmp_path)
    assert file.path != path
    assert file.path.read_bytes() == content(100)


def test_a_file_that_changes_under_its_reader_is_told(make_file: MakeFile) -> None:
    path = make_file(3 * MIB)
    for disturb in (lambda: os.truncate(path, 10), lambda: path.write_bytes(content(3 * MIB, seed=1))):
        pieces = File(path).chunks()
        next(pieces)
        disturb()
        with pytest.raises(InputChanged):
            list(pieces)
        make_file(3 * MIB)


@pytest.mark.parametrize("size", [0, -1, MIB + 1])
def test_pieces_have_a_size_in_bounds(make_file: MakeFile, size: int) -> None:
    with pytest.raises(ArgumentError, match="piece"):
        next(File(make_file(10)).chunks(size))


def test_an_empty_file_has_no_pieces(shelf: Shelf, make_file: MakeFile, tmp_path: Path) -> None:
    path = make_file(0)
    stored = shelf.ingest(path)
    for file in (File(path), File.granted(None, stored.capability, name="empty", size=0, shelf=shelf, scratch=tmp_path)):
        assert list(file.chunks()) == []
        assert file.bytes() == b""
        assert file.path.read_bytes() == b""


def test_a_shared_file_is_read_by_its_manifest_alone(
    home: Home, identity: Identity, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("P2PQUEUE_HOME", str(home.path))
    shelf = Shelf(home, identity.space_key, quota=10 * MIB, reserve=0)
    stored = shelf.ingest(make_file(1000, "clip.mov"))
    shelf.close()
    file = File(stored.capability)
    assert file.manifest == stored.capability
    assert repr(file) == "File(shared)"
    assert (file.name, file.size, file.bytes()) == ("clip.mov", 1000, content(1000))
    unpacked = file.path
    assert unpacked.read_bytes() == content(1000)
    del file
    assert not unpacked.exists()


def test_two_files_are_equal_when_they_name_the_same(make_file: MakeFile) -> None:
    path = make_file(10)
    assert File(path) == File(str(path))
    assert len({File(path), File(path), File(path, copy=True)}) == 2
    assert File(path) != str(path)


def test_a_relative_path_is_the_one_it_was_at_first(make_file: MakeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_file(10)
    monkeypatch.chdir(tmp_path)
    file = File("input.bin")
    monkeypatch.chdir("/")
    assert file.bytes() == content(10)
    assert file.manifest is None


@pytest.mark.parametrize(
    ("source", "error"), [("p2pq1-abc", MalformedMessage), ("a\0b", InputUnreadable), ("\ud800", InputUnreadable), ("", InputUnreadable)]
)
def test_what_can_be_no_file_is_refused_at_once(source: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        File(source)


def test_a_pipe_or_folder_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "missing"):
        with pytest.raises(InputUnreadable, match=path.name):
            File(path).bytes()


@pytest.mark.parametrize("name", ["../../escape", "/tmp/escape", "a/../../escape", "..\\escape", "a\0b", "\x1b[2Kx", "..", ""])
def test_the_name_in_a_manifest_never_leaves_the_folder(shelf: Shelf, tmp_path: Path, name: str) -> None:
    stored = shelf.ingest_bytes(b"content", name)
    folder, work = tmp_path / "target", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    file = File.granted(None, stored.capability, name=name, size=7, shelf=shelf, scratch=work)
    assert file.save(folder).parent == folder
    assert file.path.is_relative_to(work)
    assert "\x1b" not in repr(file)
    assert [len(list(each.rglob("*"))) for each in (folder, work)] == [1, 2]


def test_a_link_in_the_folder_is_not_written_through(make_file: MakeFile, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_bytes(b"precious")
    (folder / "input.bin").symlink_to(elsewhere)
    with pytest.raises(MisuseError, match="link"):
        File(make_file(10)).save(folder)
    assert elsewhere.read_bytes() == b"precious"


def test_a_link_that_was_named_itself_is_followed(make_file: MakeFile, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    File(make_file(10)).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == content(10)


def test_a_device_is_never_replaced_by_a_file(make_file: MakeFile, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for target in (Path("/dev/null"), tmp_path / "pipe"):
        with pytest.raises(MisuseError, match="no regular file"):
            File(make_file(10)).save(target)
        assert not target.is_file()


def test_a_folder_that_is_not_there_is_told_in_words(make_file: MakeFile, tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="No such file"):
        File(make_file(10)).save(tmp_path / "missing" / "out.bin")


def test_a_name_that_the_folder_takes_for_another_does_not_overwrite_it(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that ignores letter case or normal forms, where `cafe\u0301` opens `caf\u00e9`."""
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "caf\u00e9").write_bytes(b"first")
    monkeypatch.setattr("p2pqueue.payload.saving.os.path.lexists", lambda path: True)
    stored = shelf.ingest_bytes(b"second", "cafe\u0301")
    saved = shelf.fetch_to(stored.capability, folder)
    assert saved.name not in ("caf\u00e9", "cafe\u0301")
    assert (folder / "caf\u00e9").read_bytes() == b"first"
    assert saved.read_bytes() == b"second"


def test_importing_it_costs_a_child_little() -> None:
    script = "import sys; import p2pqueue.payload.file; print(sorted({'asyncio', 'sqlite3', 'nacl', 'blake3'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "[]\n"
