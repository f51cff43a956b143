"""Shards on their way out: from the catalogue, from their file, or sealed from a plain file, always the right bytes."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from p2pqueue.errors import InputChanged, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload import reading, supply
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.format import AEGIS_256, LARGEST_SHARD, TAG_SIZES, XCHACHA20_POLY1305
from p2pqueue.payload.seal import address_of, open_into, seal_into
from p2pqueue.payload.shelf import Shelf
from p2pqueue.payload.store import INLINE_LIMIT

MIB = 1024**2


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(Home(tmp_path / "home"), bytes(32), quota=100 * MIB, reserve=0)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("size", [1, 1000, INLINE_LIMIT, MIB - 1, MIB, MIB + 1, 3 * MIB + 7])
def test_every_shard_of_a_file_is_the_one_that_its_address_names(shelf: Shelf, tmp_path: Path, size: int, copy: bool) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(size))
    addresses = shelf.addresses(shelf.ingest(path, copy=copy).capability)
    buffer = memoryview(bytearray(LARGEST_SHARD))
    with shelf.supply() as supply:
        for address in addresses:
            held = supply.find(address)
            assert held is not None
            shard = supply.fill(held, buffer)
            assert address_of(shard) == address
            assert len(shard) == held.size
            assert bytes(shard) == shelf.shard(address)


def test_a_stored_file_may_be_sent_unread_only_after_it_was_read_once(shelf: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(MIB))
    address = shelf.addresses(shelf.ingest(path, copy=True).capability)[0]
    with shelf.supply() as supply:
        held = supply.find(address)
        assert held is not None
        assert supply.file(held) is None
        sealed = bytes(supply.fill(held, memoryview(bytearray(held.size))))
        file = supply.file(held)
        assert file is not None
        with file:
            assert file.read() == sealed
        stored = shelf.home.shards_dir / address.hex()
        stored.write_bytes(sealed[:-1] + b"?")  # rot that left a mark
        os.utime(stored, (1, 1))
        assert supply.file(held) is None
        with pytest.raises(PayloadUnavailable):
            supply.fill(held, memoryview(bytearray(held.size)))
        assert supply.find(address) is None  # it is not offered any more


def test_a_plain_file_that_changed_is_told_and_not_sent(shelf: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(2 * MIB))
    address = shelf.addresses(shelf.ingest(path, copy=False).capability)[0]
    with shelf.supply() as supply:
        held = supply.find(address)
        assert held is not None
        path.write_bytes(os.urandom(MIB))
        with pytest.raises(InputChanged, match="changed since it was taken in"):
            supply.fill(held, memoryview(bytearray(held.size)))


def sealed_of(shelf: Shelf, address: bytes) -> memoryview:
    with shelf.supply() as supply:
        held = supply.find(address)
        assert held is not None
        return supply.fill(held, memoryview(bytearray(held.size)))


def change_unseen(path: Path) -> None:
    """Changes one byte of a file, and nothing that its folder tells of it."""
    told = path.stat()
    with path.open("r+b") as file:
        file.seek(MIB + 5)
        byte = file.read(1)[0]
        file.seek(MIB + 5)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))


def test_a_shard_of_a_plain_file_is_checked_by_its_tag_and_not_hashed_again(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(2 * MIB + 9))
    addresses = shelf.addresses(shelf.ingest(path, copy=False).capability)[:-1]
    assert len(addresses) == 3

    def refuse(shard: memoryview) -> bytes:
        raise AssertionError(f"{len(shard)} bytes were hashed")

    for module in (reading, supply):
        monkeypatch.setattr(module, "address_of", refuse)
    assert [address_of(sealed_of(shelf, address)) for address in addresses] == addresses


@pytest.mark.parametrize("kept", [True, False], ids=["with its tag", "of an older version"])
@pytest.mark.parametrize("algorithm", [AEGIS_256, XCHACHA20_POLY1305])
def test_a_plain_file_that_changed_behind_its_marks_is_told_and_not_sent(tmp_path: Path, algorithm: int, kept: bool) -> None:
    shelf = Shelf(Home(tmp_path / "home"), bytes(32), quota=100 * MIB, reserve=0, algorithm=algorithm)
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(2 * MIB))
    sound, broken, _ = shelf.addresses(shelf.ingest(path, copy=False).capability)
    if not kept:
        with sqlite3.connect(shelf.home.shelf_file) as connection:
            connection.execute("UPDATE plain SET tag = NULL")
        connection.close()
    change_unseen(path)
    assert address_of(sealed_of(shelf, sound)) == sound
    for give in (sealed_of, Shelf.shard):
        with pytest.raises(InputChanged, match="changed since it was taken in"):
            give(shelf, broken)
    shelf.close()


def test_the_chunks_of_a_plain_file_are_looked_up_together(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(20 * MIB))
    addresses = shelf.addresses(shelf.ingest(path, copy=False).capability)[:-1]
    read, reads = Catalogue.read, [0]

    def count(catalogue: Catalogue, fn: Callable[[sqlite3.Connection], object]) -> object:
        reads[0] += 1
        return read(catalogue, fn)

    monkeypatch.setattr(Catalogue, "read", count)
    with shelf.supply() as given:
        found = [given.find(address) for address in addresses]
    assert [held.address for held in found if held is not None] == addresses
    assert reads[0] == 2


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"another")], ids=["went", "changed"])
def test_a_chunk_that_was_looked_up_in_a_file_that_is_spoilt_comes_from_another(
    shelf: Shelf, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    first, second = tmp_path / "first.bin", tmp_path / "second.bin"
    first.write_bytes(os.urandom(4 * MIB))
    addresses = shelf.addresses(shelf.ingest(first, copy=False).capability)[:-1]
    with shelf.supply() as given:
        assert all(given.find(address) is not None for address in addresses[:2])
        shutil.copyfile(first, second)
        shelf.ingest(second, copy=False)
        spoil(first)
        held = given.find(addresses[2])
        assert held is not None
        assert held.is_ahead
        assert address_of(given.fill(held, memoryview(bytearray(held.size)))) == held.address
        spoil(second)
        held = given.find(addresses[3])
        assert held is not None
        with pytest.raises(InputChanged, match="since it was taken in"):
            given.fill(held, memoryview(bytearray(held.size)))


def test_a_file_that_is_forgotten_is_not_found_for_long(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply, "AHEAD_FOR", 0.0)
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(3 * MIB))
    capability = shelf.ingest(path, copy=False).capability
    addresses = shelf.addresses(capability)
    with shelf.supply() as given:
        assert all(given.find(address) is not None for address in addresses[:2])
        shelf.remove(capability)
        assert given.find(addresses[2]) is None


def test_what_was_never_here_is_not_found(shelf: Shelf) -> None:
    with shelf.supply() as supply:
        assert supply.find(bytes(32)) is None


@pytest.mark.parametrize("algorithm", [AEGIS_256, XCHACHA20_POLY1305])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 4096, 65_537, MIB + 5])
def test_sealing_in_place_gives_what_sealing_elsewhere_gives(algorithm: int, size: int) -> None:
    key, chunk, whole = os.urandom(32), os.urandom(size), size + TAG_SIZES[algorithm]
    apart, here = memoryview(bytearray(whole)), memoryview(bytearray(whole))
    seal_into(algorithm, key, chunk, apart)
    here[:size] = chunk
    seal_into(algorithm, key, here[:size], here)
    assert here == apart
    assert open_into(algorithm, key, here, here[:size]) == size
    assert here[:size] == chunk
