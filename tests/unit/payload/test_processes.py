"""Threads and processes share one shelf."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from p2pqueue.errors import DamagedHome, HomeBusy, NewerDatabase, ReadOnlyHome
from p2pqueue.home import Home
from p2pqueue.payload.catalogue import SCHEMA, Catalogue
from p2pqueue.payload.seal import address_of
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, content

WORK = """
import sys
from pathlib import Path
from p2pqueue.home import Home
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, content

shelf = Shelf(Home(Path(sys.argv[1])), SPACE_KEY, quota=1024 * MIB, reserve=0)
for step in range(12):
    own, shared = content(40_000, f"{sys.argv[2]}-{step}"), content(MIB, step)
    capabilities = [shelf.ingest_bytes(data, "data").capability for data in (own, shared)]
    assert [b"".join(shelf.open(each)) for each in capabilities] == [own, shared]
    if step % 4 == 3:
        shelf.sweep(capabilities)
        shelf.remove(capabilities[0])
print("done")
"""


def test_processes_take_in_read_and_free_at_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-c", WORK, str(home)]
    workers = [subprocess.Popen([*command, f"{number}"], stdout=subprocess.PIPE, text=True) for number in range(4)]
    assert [worker.communicate(timeout=50)[0] for worker in workers] == ["done\n"] * 4
    with sqlite3.connect(home / "shelf.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("SELECT bytes = (SELECT sum(size) FROM stored) FROM total").fetchone() == (1,)
    connection.close()
    shelf = Shelf(Home(home), SPACE_KEY)
    assert shelf.verify() == []
    shelf.close()


def test_threads_share_one_shelf(shelf: Shelf) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(5):
                data = content(100_000, number * 100 + step)
                assert b"".join(shelf.open(shelf.ingest_bytes(data, f"{number}").capability)) == data
        except BaseException as error:  # noqa: BLE001 - told to the main thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert shelf.usage().files == 30


def test_a_database_of_a_newer_version_is_refused(home: Home) -> None:
    with sqlite3.connect(home.shelf_file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NewerDatabase, match="upgrade"):
        Shelf(home, SPACE_KEY).usage()


def test_a_damaged_database_is_told_in_words_and_left_alone(home: Home) -> None:
    home.shelf_file.write_bytes(b"this is no database" * 100)
    with pytest.raises(DamagedHome, match=r"shelf\.sqlite"):
        Shelf(home, SPACE_KEY).usage()
    assert home.shelf_file.read_bytes().startswith(b"this is no database")


def test_a_database_that_another_program_holds_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.payload.catalogue.BUSY_TIMEOUT", 0.05)
    shelf = Shelf(home, SPACE_KEY, quota=MIB, reserve=0)
    shelf.ingest_bytes(b"first", "first")
    other = sqlite3.connect(home.shelf_file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HomeBusy, match="Another program"):
        shelf.ingest_bytes(b"second", "second")
    other.execute("ROLLBACK")
    other.close()
    shelf.ingest_bytes(b"second", "second")
    shelf.close()


def test_a_home_that_can_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    sealed_off = OSError(30, "Read-only file system", str(folder))

    def refuse(*_: object) -> int:
        raise sealed_off

    monkeypatch.setattr("p2pqueue.payload.catalogue.os.open", refuse)
    with pytest.raises(ReadOnlyHome, match="Read-only"):
        Shelf(Home(folder), SPACE_KEY).usage()


def test_a_shelf_of_the_first_version_goes_on_with_all_its_files(home: Home) -> None:
    home.ensure()
    first = Catalogue(home.shelf_file)
    with sqlite3.connect(home.shelf_file, isolation_level=None) as connection:
        connection.executescript(SCHEMA)
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "INSERT INTO files (address, capability, name, size, source, copied) VALUES (x'01', 'p2pq1-x', 'old', 7, NULL, 1)"
        )
    connection.close()
    assert first.read(lambda c: c.execute("SELECT name, kind, fetched, folder FROM files").fetchall()) == [("old", "file", 0, None)]
    first.close()
    shelf = Shelf(home, SPACE_KEY)
    assert shelf.ingest_bytes(b"new", "new").name == "new"
    assert [held.name for held in shelf.inventory()] == ["old", "new"]
    shelf.close()


def test_a_shelf_of_the_second_version_serves_its_plain_files_on(home: Home, tmp_path: Path) -> None:
    """Given a catalogue that keeps no tags, I expect its files to be served as before, and new ones beside them."""
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old, new):
        path.write_bytes(os.urandom(MIB))
    shelf = Shelf(home, SPACE_KEY)
    address = shelf.addresses(shelf.ingest(old, copy=False).capability)[0]
    shelf.close()
    with sqlite3.connect(home.shelf_file, isolation_level=None) as connection:
        connection.execute("ALTER TABLE plain DROP COLUMN tag")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert address_of(shelf.shard(address)) == address
    shelf.ingest(new, copy=False)
    tags = Catalogue(home.shelf_file).read(lambda c: c.execute("SELECT tag IS NULL FROM plain ORDER BY source").fetchall())
    assert tags == [(1,), (0,)]
    shelf.close()
