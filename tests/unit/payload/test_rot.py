"""A shard that went bad on the disk is noticed, dropped, and never given on."""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

import pytest

from p2pqueue.errors import BadShard, MalformedMessage, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload.capability import Capability, parse_capability
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content


def spoil(path: Path, offset: int = 1000) -> None:
    """Flips one bit."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def spoil_row(home: Home, address: bytes) -> None:
    """Flips one bit of a shard that lies in the database, as a bad disk would."""
    with sqlite3.connect(home.shelf_file) as connection:
        (body,) = connection.execute("SELECT body FROM stored WHERE address = ?", (address,)).fetchone()
        connection.execute("UPDATE stored SET body = ? WHERE address = ?", (body[:5] + bytes([body[5] ^ 1]) + body[6:], address))
    connection.close()


def shard_file(home: Home, shelf: Shelf, capability: str, number: int) -> Path:
    return home.shards_dir / shelf.describe(capability).chunk(number).address.hex()


def test_a_rotten_shard_is_named_and_dropped(shelf: Shelf, make_file: MakeFile, home: Home, caplog: pytest.LogCaptureFixture) -> None:
    stored = shelf.ingest(make_file(3 * MIB))
    rotten = shard_file(home, shelf, stored.capability, 1)
    spoil(rotten)
    pieces = shelf.open(stored.capability)
    assert next(pieces) == content(MIB)
    with caplog.at_level(logging.WARNING), pytest.raises(PayloadUnavailable, match=rotten.name):
        next(pieces)
    assert rotten.name in caplog.text
    assert not rotten.exists()
    assert not shelf.holds(stored.capability)
    with pytest.raises(PayloadUnavailable):
        shelf.shard(bytes.fromhex(rotten.name))


@pytest.mark.parametrize("damage", ["removed", "cut", "emptied", "longer"])
def test_a_shard_that_is_not_whole_is_dropped(shelf: Shelf, make_file: MakeFile, home: Home, damage: str) -> None:
    stored = shelf.ingest(make_file(2 * MIB))
    path = shard_file(home, shelf, stored.capability, 0)
    if damage == "removed":
        path.unlink()
    else:
        os.truncate(path, {"cut": 500_000, "emptied": 0, "longer": 9 * MIB}[damage])
    if damage == "longer":  # its beginning is what it should be, and that is all that is read
        assert b"".join(shelf.open(stored.capability)) == content(2 * MIB)
        assert shelf.verify() == [bytes.fromhex(path.name)]
        return
    with pytest.raises(PayloadUnavailable):
        list(shelf.open(stored.capability))
    assert not shelf.holds(stored.capability)


def test_a_rotten_manifest_is_dropped(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    stored = shelf.ingest(make_file(100))
    spoil_row(home, parse_capability(stored.capability).address)
    with pytest.raises(PayloadUnavailable, match="manifest"):
        shelf.describe(stored.capability)
    assert not shelf.holds(stored.capability)


def test_taking_the_file_in_again_mends_it(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    path = make_file(2 * MIB)
    stored = shelf.ingest(path)
    spoil(shard_file(home, shelf, stored.capability, 0))
    assert shelf.ingest(path) == stored
    assert b"".join(shelf.open(stored.capability)) == content(2 * MIB)


def test_a_small_file_that_rotted_is_mended_too(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    path = make_file(100)
    stored = shelf.ingest(path)
    spoil_row(home, shelf.describe(stored.capability).chunk(0).address)
    assert shelf.ingest(path) == stored
    assert b"".join(shelf.open(stored.capability)) == content(100)


def test_a_rotten_manifest_of_an_unchanged_file_is_made_anew(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    path = make_file(2 * MIB)
    stored = shelf.ingest(path, copy=False)
    spoil_row(home, parse_capability(stored.capability).address)
    assert shelf.ingest(path, copy=False) == stored
    assert b"".join(shelf.open(stored.capability)) == content(2 * MIB)


def test_a_plain_copy_takes_over_for_a_rotten_shard(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    path = make_file(2 * MIB)
    stored = shelf.ingest(path, copy=True)
    shelf.ingest(path, copy=False)
    spoil(shard_file(home, shelf, stored.capability, 0))
    assert b"".join(shelf.open(stored.capability)) == content(2 * MIB)
    assert shelf.holds(stored.capability)
    path.unlink()
    assert not shelf.holds(stored.capability)


def test_verifying_finds_and_drops_what_is_rotten(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    good, bad = shelf.ingest(make_file(2 * MIB)), shelf.ingest(make_file(2 * MIB, "bad", seed=1))
    assert shelf.verify() == []
    path = shard_file(home, shelf, bad.capability, 1)
    spoil(path)
    assert shelf.verify() == [bytes.fromhex(path.name)]
    assert shelf.verify() == []
    assert shelf.holds(good.capability)
    assert not shelf.holds(bad.capability)


def test_a_manifest_that_lies_about_a_shard_spoils_nothing(shelf: Shelf, make_file: MakeFile) -> None:
    """The shard is good: it is the manifest, or its key, that somebody made up."""
    stored = shelf.ingest(make_file(2 * MIB))
    root = parse_capability(stored.capability)
    for key, size in ((bytes(32), root.size), (root.key, root.size - 1)):
        with pytest.raises((BadShard, PayloadUnavailable, MalformedMessage)):
            shelf.describe(Capability(root.algorithm, root.address, key, size).text)
    with pytest.raises((BadShard, PayloadUnavailable)):
        shelf.describe(Capability(9, root.address, root.key, root.size).text)
    assert shelf.verify() == []
    assert b"".join(shelf.open(stored.capability)) == content(2 * MIB)


def test_what_nobody_here_has_is_told_as_missing(shelf: Shelf, tmp_path: Path, make_file: MakeFile) -> None:
    elsewhere = Shelf(Home(tmp_path / "elsewhere"), SPACE_KEY, quota=100 * MIB, reserve=0)
    stored = elsewhere.ingest(make_file(10))
    elsewhere.close()
    assert not shelf.holds(stored.capability)
    assert shelf.locate(stored.capability) is None
    with pytest.raises(PayloadUnavailable, match="not on this device"):
        list(shelf.open(stored.capability))
