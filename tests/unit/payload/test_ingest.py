"""A file of any size is taken in whole and given back byte by byte, or refused with the reason."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pqueue.errors import InputChanged, InputUnreadable
from p2pqueue.home import Home
from p2pqueue.payload.shelf import COPY_LIMIT, IngestStopped, Shelf, check_readable
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content

SIZES = [0, 1, 32 * 1024 - 32, 32 * 1024, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 7]
COPY = pytest.mark.parametrize("copy", [True, False], ids=["copied", "by reference"])


@COPY
@pytest.mark.parametrize("size", SIZES)
def test_a_file_of_any_size_comes_back_the_same(shelf: Shelf, make_file: MakeFile, size: int, copy: bool) -> None:
    path = make_file(size)
    stored = shelf.ingest(path, copy=copy)
    assert (stored.name, stored.size, stored.by_reference) == ("input.bin", size, not copy)
    assert shelf.holds(stored.capability)
    manifest = shelf.describe(stored.capability)
    assert manifest.chunk_count == -(-size // MIB)  # none for an empty file, no empty last one
    assert manifest.content == blake3(path.read_bytes()).digest()
    if copy:
        path.unlink()
    assert b"".join(shelf.open(stored.capability)) == content(size)


@pytest.mark.parametrize("size", [0, 1, MIB, 2 * MIB + 1])
def test_content_in_memory_is_taken_in_like_a_file(shelf: Shelf, make_file: MakeFile, size: int) -> None:
    stored = shelf.ingest_bytes(content(size), "input.bin")
    assert stored == shelf.ingest(make_file(size), copy=True)
    assert b"".join(shelf.open(stored.capability)) == content(size)


def test_the_same_content_gives_the_same_manifest_and_takes_room_once(shelf: Shelf, make_file: MakeFile) -> None:
    first = shelf.ingest(make_file(3 * MIB))
    before = shelf.usage()
    assert shelf.ingest(make_file(3 * MIB)) == first
    assert shelf.usage() == before
    other_name = shelf.ingest(make_file(3 * MIB, "other.bin"))
    assert other_name.capability != first.capability
    assert shelf.usage().stored - before.stored < 1000  # a manifest, no chunk


def test_what_is_left_where_it_lies_takes_no_room(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    path = make_file(4 * MIB)
    stored = shelf.ingest(path, copy=False)
    assert shelf.usage().stored < 2000
    assert list(home.shards_dir.iterdir()) == []
    assert shelf.locate(stored.capability) == path


def test_large_files_stay_where_they_lie_and_small_ones_are_copied(shelf: Shelf, tmp_path: Path) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    with open(large, "wb") as file:
        file.truncate(COPY_LIMIT)
    small.write_bytes(b"small")
    assert shelf.ingest(large).by_reference
    assert not shelf.ingest(small).by_reference
    assert not shelf.ingest(large, copy=True).by_reference


def test_a_large_file_is_sealed_in_threads_as_by_one(shelf: Shelf, tmp_path: Path, make_file: MakeFile) -> None:
    path = make_file(9 * MIB + 5)
    by_one = shelf.ingest(path, copy=False, threads=0)
    with_others = Shelf(Home(tmp_path / "second"), SPACE_KEY, reserve=0)
    assert with_others.ingest(path, copy=False, threads=3) == by_one
    assert with_others.ingest(path, copy=False, threads=1) == by_one
    assert b"".join(with_others.open(by_one.capability)) == content(9 * MIB + 5)
    with_others.close()


def test_an_unchanged_file_is_not_read_twice(shelf: Shelf, make_file: MakeFile) -> None:
    path = make_file(3 * MIB)
    told: list[int] = []
    first = shelf.ingest(path, copy=False)
    assert shelf.ingest(path, copy=False, on_progress=lambda done, _: told.append(done)) == first
    assert told == []
    os.utime(path, ns=(1, 1))
    assert shelf.ingest(path, copy=False, on_progress=lambda done, _: told.append(done)) == first
    assert told == [MIB, 2 * MIB, 3 * MIB]


@COPY
def test_progress_is_told_and_a_stop_obeyed(shelf: Shelf, make_file: MakeFile, home: Home, copy: bool) -> None:
    path = make_file(8 * MIB)
    told: list[tuple[int, int]] = []
    shelf.ingest(path, copy=copy, on_progress=lambda done, size: told.append((done, size)))
    assert told == [(n * MIB, 8 * MIB) for n in range(1, 9)]
    other = make_file(8 * MIB, "other", seed=1)
    before = shelf.usage().stored
    stop = threading.Event()
    with pytest.raises(IngestStopped, match="other"):
        shelf.ingest(other, copy=copy, stop=stop.is_set, on_progress=lambda done, _: stop.set() if done >= 3 * MIB else None)
    assert shelf.usage().stored == before
    assert not [entry for entry in home.shards_dir.iterdir() if entry.name.startswith(".")]


@COPY
@pytest.mark.parametrize("change", ["append", "truncate", "rewrite", "replace", "remove"])
def test_a_file_that_changes_while_it_is_read_is_not_published(shelf: Shelf, make_file: MakeFile, change: str, copy: bool) -> None:
    path = make_file(5 * MIB)

    def disturb(done: int, _: int) -> None:
        if done != 2 * MIB:
            return
        if change == "append":
            with open(path, "ab") as file:
                file.write(b"more")
        elif change == "truncate":
            os.truncate(path, 3 * MIB)
        elif change == "rewrite":
            with open(path, "r+b") as file:
                file.write(b"other")
        else:
            path.unlink()
            if change == "replace":
                path.write_bytes(content(5 * MIB))

    with pytest.raises(InputChanged, match=r"input\.bin"):
        shelf.ingest(path, copy=copy, on_progress=disturb, threads=0)
    assert shelf.usage().files == 0
    assert shelf.usage().stored == 0


@COPY
def test_a_manifest_of_a_file_that_never_rests_always_fits(shelf: Shelf, make_file: MakeFile, copy: bool) -> None:
    path = make_file(3 * MIB)
    done = threading.Event()

    def disturb() -> None:
        step = 0
        while not done.is_set():
            step += 1
            with open(path, "r+b") as file:
                if step % 3 == 0:
                    file.truncate(MIB + step)
                elif step % 3 == 1:
                    file.seek(0, os.SEEK_END)
                    file.write(content(MIB, step))
                else:
                    file.write(content(1000, step))
            done.wait(0.002)

    writer = threading.Thread(target=disturb)
    writer.start()
    try:
        for _ in range(20):
            try:
                stored = shelf.ingest(path, copy=copy)
                manifest = shelf.describe(stored.capability)
                read = b"".join(shelf.open(stored.capability))
            except InputChanged:
                continue
            assert len(read) == manifest.size == stored.size
            assert blake3(read).digest() == manifest.content
    finally:
        done.set()
        writer.join()


def test_an_input_that_changed_since_is_told_and_never_given_as_if_it_fitted(shelf: Shelf, make_file: MakeFile) -> None:
    path = make_file(3 * MIB)
    stored = shelf.ingest(path, copy=False)
    path.write_bytes(content(3 * MIB, seed=1))
    assert shelf.locate(stored.capability) is None
    assert not shelf.holds(stored.capability)
    with pytest.raises(InputChanged, match="changed since it was taken in"):
        list(shelf.open(stored.capability))
    with pytest.raises(InputChanged):
        shelf.shard(shelf.describe(stored.capability).chunk(1).address)


def test_a_change_that_leaves_no_mark_is_noticed_by_its_content(shelf: Shelf, make_file: MakeFile) -> None:
    path = make_file(3 * MIB)
    stored = shelf.ingest(path, copy=False)
    found = path.stat()
    with open(path, "r+b") as file:
        file.seek(MIB + 5)
        file.write(b"?")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    pieces = shelf.open(stored.capability)
    assert next(pieces) == content(MIB)
    with pytest.raises(InputChanged):
        next(pieces)
    with pytest.raises(InputChanged):
        shelf.shard(shelf.describe(stored.capability).chunk(1).address)


def test_another_source_goes_on_when_one_changed(shelf: Shelf, make_file: MakeFile, tmp_path: Path) -> None:
    path = make_file(3 * MIB)
    (tmp_path / "elsewhere").mkdir()
    second = make_file(3 * MIB, "elsewhere/input.bin")
    stored = shelf.ingest(path, copy=False)
    assert shelf.ingest(second, copy=False).capability == stored.capability
    path.write_bytes(b"gone")
    assert b"".join(shelf.open(stored.capability)) == content(3 * MIB)
    assert shelf.locate(stored.capability) == second


def test_shards_for_other_devices_are_sealed_on_demand(shelf: Shelf, make_file: MakeFile, tmp_path: Path) -> None:
    path = make_file(2 * MIB + 9)
    by_reference = shelf.ingest(path, copy=False)
    copying = Shelf(Home(tmp_path / "second"), SPACE_KEY, quota=100 * MIB, reserve=0)
    assert copying.ingest(path, copy=True).capability == by_reference.capability
    for chunk in shelf.describe(by_reference.capability).chunks():
        sealed = shelf.shard(chunk.address)
        assert blake3(sealed).digest() == chunk.address
        assert copying.shard(chunk.address) == sealed
    copying.close()


def test_a_later_space_key_still_reads_what_an_earlier_one_sealed(home: Home, make_file: MakeFile) -> None:
    path = make_file(2 * MIB)
    before, after = Shelf(home, SPACE_KEY, reserve=0, quota=100 * MIB), Shelf(home, bytes(32), reserve=0)
    stored = [before.ingest(path, copy=copy).capability for copy in (True, False)]
    for capability in stored:
        assert b"".join(after.open(capability)) == content(2 * MIB)
    before.close()
    after.close()


def test_several_files_are_listed_in_one_manifest(shelf: Shelf, make_file: MakeFile) -> None:
    one = shelf.ingest(make_file(10, "one"))
    two = shelf.ingest(make_file(MIB, "two"), copy=False)
    both = shelf.bundle({"video": one.capability, "sound": two.capability})
    listed = shelf.unbundle(both)
    assert {name: (entry.capability, entry.size) for name, entry in listed.items()} == {
        "sound": (two.capability, MIB),
        "video": (one.capability, 10),
    }
    assert shelf.holds(both)
    assert list(shelf.unbundle(one.capability)) == ["one"]
    make_file(MIB, "two", seed=1)
    assert not shelf.holds(both)


@COPY
def test_a_manifest_too_long_for_one_shard_comes_in_parts(
    shelf: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, copy: bool
) -> None:
    """As for a file of 40 GiB, whose references no longer fit."""
    monkeypatch.setattr("p2pqueue.payload.publish.INLINE_REFERENCES", 64)
    for module in ("publish", "manifest"):
        monkeypatch.setattr(f"p2pqueue.payload.{module}.PART_SIZE", 2 * 64)
    stored = shelf.ingest(make_file(5 * MIB), copy=copy)
    assert shelf.describe(stored.capability).chunk_count == 5
    assert shelf.holds(stored.capability)
    assert b"".join(shelf.open(stored.capability)) == content(5 * MIB)
    assert shelf.remove(stored.capability) > 0
    assert shelf.usage().stored == 0


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing", "No such file"),
        (".", "is a folder"),
        ("pipe", "is a pipe"),
        ("/dev/null", "is a device"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ("", "names no file"),
        ("x" * 300, "name too long"),
        ("loop", "symbolic links"),
        ("file/under", "Not a directory"),
    ],
)
def test_what_is_no_readable_file_is_refused_in_words(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    Path("file").write_bytes(b"")
    for refuse in (check_readable,) if path == "." else (check_readable, shelf.ingest):  # a folder is shared as a whole
        with pytest.raises(InputUnreadable, match=words):
            refuse(path)


def test_a_file_that_hides_its_size_is_refused(shelf: Shelf) -> None:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("needs /proc")
    with pytest.raises(InputUnreadable, match="size"):
        shelf.ingest("/proc/self/status")


def test_name_and_size_of_a_readable_file_are_told(make_file: MakeFile) -> None:
    assert check_readable(make_file(123, "clip.mov")) == ("clip.mov", 123)


@pytest.mark.parametrize(
    "name",
    ["👩‍💻.mov", "caf\u00e9", "cafe\u0301", "two\nlines", "-rf", "n" * 255, "end ", "end.", "con.txt", "a:b", os.fsdecode(b"\xff.bin")],
)
@COPY
def test_the_content_of_an_oddly_named_file_arrives(shelf: Shelf, make_file: MakeFile, tmp_path: Path, name: str, copy: bool) -> None:
    path = make_file(1000, name)
    stored = shelf.ingest(path, copy=copy)
    stored.name.encode()  # it can be carried
    (tmp_path / "saved").mkdir()
    saved = shelf.fetch_to(stored.capability, tmp_path / "saved")
    assert saved.parent == tmp_path / "saved"
    assert not set(saved.name) & set("\n\x1b")
    assert saved.read_bytes() == content(1000)
    if not copy:
        assert shelf.locate(stored.capability) == path


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3 * MIB), st.booleans())
def test_any_size_comes_back(tmp_path_factory: pytest.TempPathFactory, size: int, copy: bool) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "file").write_bytes(content(size))
    shelf = Shelf(Home(folder / "home"), SPACE_KEY, quota=100 * MIB, reserve=0)
    assert b"".join(shelf.open(shelf.ingest(folder / "file", copy=copy).capability)) == content(size)
    shelf.close()
