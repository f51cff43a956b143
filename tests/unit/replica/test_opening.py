"""What is no sound database of this version is refused in words, and left as it is."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from p2pqueue.errors import DamagedHome, NewerDatabase, ReadOnlyHome
from p2pqueue.replica.file import migrations
from p2pqueue.replica.tables import Column, Derived, Register
from tests.unit.replica.kit import CLIPS, NOTES, Device, Space, clip, make_clip, open_replica


@pytest.fixture
def device() -> Device:
    return Space().device("here")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replica.sqlite"


def test_a_database_of_a_newer_version_is_refused_and_unchanged(device: Device, path: Path) -> None:
    with open_replica(device, path=path) as replica:
        key = replica.write(make_clip)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {migrations.VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(NewerDatabase, match="upgrade p2pqueue"):
        open_replica(device, path=path)
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {migrations.VERSION}")
    with open_replica(device, path=path) as replica:
        assert clip(replica, key) is not None


def test_missing_steps_run_in_one_transaction(device: Device, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_replica(device, path=path) as replica:
        key = replica.write(make_clip)
    monkeypatch.setattr(migrations, "VERSION", migrations.VERSION + 1)
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, ("CREATE TABLE added (x)", "CREATE TABLE added (x)")))
    with pytest.raises(sqlite3.OperationalError):
        open_replica(device, path=path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (migrations.VERSION - 1,)
        assert connection.execute("SELECT name FROM sqlite_schema WHERE name = 'added'").fetchone() is None
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS[:-1], ("CREATE TABLE added (x)",)))
    with open_replica(device, path=path) as replica:
        assert clip(replica, key) is not None
        assert replica.read(lambda c: c.execute("SELECT count(*) FROM added").fetchone()) == (0,)
        assert replica.fork_reason is None


@pytest.mark.parametrize("damage", ["text", "head", "middle", "cut"])
def test_a_damaged_file_is_named_as_such(device: Device, path: Path, damage: str) -> None:
    with open_replica(device, path=path) as replica:
        replica.write(lambda writer: [make_clip(writer, "x" * 100) for _ in range(200)])
    whole = path.read_bytes()
    broken = {
        "text": b"this is no database at all\n" * 500,
        "head": b"\0" * 100 + whole[100:],
        "middle": whole[:4096] + os.urandom(len(whole) - 4096),
        "cut": whole[:5000],
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(DamagedHome, match="replica.sqlite"):
        use(device, path)


def use(device: Device, path: Path) -> None:
    with open_replica(device, path=path) as replica:
        replica.write(make_clip)
        replica.read(lambda c: c.execute("SELECT * FROM clips").fetchall())


def test_a_database_of_another_program_is_left_alone(device: Device, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(DamagedHome, match="some other program"):
        open_replica(device, path=path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


def test_a_missing_database_is_not_made_unless_asked(device: Device, path: Path) -> None:
    from p2pqueue.replica.replica import Replica

    with pytest.raises(DamagedHome, match="missing"):
        Replica.open(path, tables=(CLIPS,), identity=device, create=False)
    assert not path.exists()


def test_a_file_that_can_not_be_written_is_named(device: Device, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_replica(device, path=path).close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root, as whom this may run, writes everywhere
    with pytest.raises(ReadOnlyHome, match="replica.sqlite"):
        open_replica(device, path=path)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_every_file_is_private_from_its_first_moment(device: Device, path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with open_replica(device, path=path) as replica:
            replica.write(make_clip)
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert {"replica.sqlite", "replica.sqlite-wal", "replica.sqlite-shm", "replica.lock"} <= modes.keys()
    assert {mode & 0o077 for mode in modes.values()} == {0}
    if umask != 0o277:
        assert set(modes.values()) == {0o600}


def test_a_new_register_and_a_new_derived_column_are_added_to_what_stands(device: Device, path: Path) -> None:
    with open_replica(device, path=path) as replica:
        key = replica.write(make_clip)
    rating = Register("rating", (Column("rating", "INTEGER"),))
    derived = (
        Derived("status", "TEXT", "CASE WHEN rating > 3 THEN 'good' ELSE coalesce(stage, 'new') END", stored=True),
        *CLIPS.derived[1:],
        Derived("loud", "TEXT", "upper(name)"),
    )
    newer = replace(CLIPS, registers=(*CLIPS.registers, rating), derived=derived, indexes=("CREATE INDEX by_rating ON clips(rating)",))
    with open_replica(device, path=path, tables=(newer, NOTES)) as replica:
        replica.write(lambda writer: writer.put("clips", key, "rating", {"rating": 5}))
        assert replica.read(lambda c: c.execute("SELECT loud, rating, status FROM clips").fetchall()) == [("CLIP", 5, "good")]
        assert replica.counts("clips") == {"good": 1}
    with open_replica(device, path=path) as replica:  # an older program on the same file
        other = replica.write(make_clip)
        assert clip(replica, other) is not None
        assert {write.register for write in replica.live_writes(above={}) if write.key == key} == {"made", "rating"}


def test_an_index_that_is_gone_from_the_declaration_is_gone(device: Device, path: Path) -> None:
    indexed = replace(CLIPS, indexes=("CREATE INDEX by_name ON clips(name)",))
    open_replica(device, path=path, tables=(indexed,)).close()
    with open_replica(device, path=path, tables=(CLIPS,)) as replica:
        names = replica.read(lambda c: {name for (name,) in c.execute("SELECT name FROM sqlite_schema")})
    assert "by_name" not in names


def test_opening_a_second_time_writes_nothing(device: Device, path: Path) -> None:
    with open_replica(device, path=path) as replica:
        before = (replica.heads(), replica.hlc)
    content = path.read_bytes()
    with open_replica(device, path=path) as replica:
        assert (replica.heads(), replica.hlc) == before
    assert path.read_bytes() == content


def test_a_file_whose_mode_was_loosened_is_warned_about(device: Device, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_replica(device, path=path).close()
    path.chmod(0o644)
    open_replica(device, path=path).close()
    assert "may be read by other users" in caplog.text
