"""A backup is a sound, private copy, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from p2pqueue.errors import AlreadyInitialised, DamagedHome, MisuseError, NewerDatabase
from p2pqueue.replica.file import migrations
from p2pqueue.replica.file.backup import backup, restore
from tests.unit.replica.kit import Device, Space, clip, make_clip, open_replica


@pytest.fixture
def device() -> Device:
    return Space().device("here")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replica.sqlite"


def test_a_backup_of_an_open_database_holds_what_was_committed(device: Device, path: Path, tmp_path: Path) -> None:
    with open_replica(device, path=path) as replica:
        key = replica.write(make_clip)
        backup(path, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new.sqlite")
    with open_replica(device, path=tmp_path / "new.sqlite") as replica:
        assert clip(replica, key) is not None
        assert replica.fork_reason == "it was restored from a backup"


def test_a_backup_is_one_private_file(device: Device, path: Path, tmp_path: Path) -> None:
    open_replica(device, path=path).close()
    (tmp_path / "out").mkdir()
    before = os.umask(0)
    try:
        backup(path, tmp_path / "out" / "backup")
    finally:
        os.umask(before)
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["backup"]
    assert stat.S_IMODE((tmp_path / "out" / "backup").stat().st_mode) == 0o600


def test_the_original_goes_on_under_its_author(device: Device, path: Path, tmp_path: Path) -> None:
    with open_replica(device, path=path) as replica:
        author = replica.author
        backup(path, tmp_path / "backup")
    with open_replica(device, path=path) as replica:
        assert replica.author == author


def test_nothing_is_overwritten(device: Device, path: Path, tmp_path: Path) -> None:
    open_replica(device, path=path).close()
    backup(path, tmp_path / "backup")
    with pytest.raises(MisuseError, match="there already"):
        backup(path, tmp_path / "backup")
    with pytest.raises(AlreadyInitialised):
        restore(tmp_path / "backup", path)


def test_a_file_system_without_links_will_do(device: Device, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    open_replica(device, path=path).close()
    monkeypatch.setattr(os, "link", refuse)
    backup(path, tmp_path / "backup")
    with pytest.raises(MisuseError, match="there already"):
        backup(path, tmp_path / "backup")


@pytest.mark.parametrize("content", [b"", b"no database" * 1_000, None])
def test_what_is_no_sound_backup_is_refused_and_leaves_nothing(device: Device, path: Path, tmp_path: Path, content: bytes | None) -> None:
    with open_replica(device, path=path) as replica:
        replica.write(lambda writer: [make_clip(writer, "x" * 200) for _ in range(500)])
    backup(path, tmp_path / "backup")
    if content is None:
        whole = (tmp_path / "backup").read_bytes()
        content = whole[: len(whole) // 2] + b"\xff" * (len(whole) // 2)
    (tmp_path / "backup").write_bytes(content)
    with pytest.raises(DamagedHome):
        restore(tmp_path / "backup", tmp_path / "new.sqlite")
    assert not list(tmp_path.glob("*new.sqlite*"))


def test_a_backup_of_a_newer_version_is_refused(device: Device, path: Path, tmp_path: Path) -> None:
    open_replica(device, path=path).close()
    backup(path, tmp_path / "backup")
    with closing(sqlite3.connect(tmp_path / "backup")) as connection:
        connection.execute(f"PRAGMA user_version = {migrations.VERSION + 1}")
    with pytest.raises(NewerDatabase):
        restore(tmp_path / "backup", tmp_path / "new.sqlite")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedHome, match="missing"):
        backup(tmp_path / "none", tmp_path / "backup")
    with pytest.raises(MisuseError, match="no backup"):
        restore(tmp_path / "none", tmp_path / "new")
