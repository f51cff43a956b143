"""A full disk, a read-only one: a clear word, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.errors import DiskFull, ReadOnlyHome
from p2pqueue.replica.file.backup import backup
from p2pqueue.replica.replica import Replica, Writer
from tests.integration.replica.hands import one
from tests.integration.replica.stage import check
from tests.unit.replica.kit import Device, Space, open_replica

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root may mount")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def device() -> Device:
    return Space().device("here")


def large(writer: Writer) -> list[str]:
    keys = one(writer)
    writer.put("clips", keys[0], "cover", {"cover": os.urandom(60_000), "for_made": None})
    return keys


def fill(replica: Replica, acknowledged: set[str]) -> None:
    for _ in range(1_000):
        acknowledged.update(replica.write(large))


def test_a_full_disk_is_named_and_loses_nothing(disk: Path, device: Device) -> None:
    path = disk / "replica.sqlite"
    acknowledged: set[str] = set()
    with open_replica(device, path=path) as replica:
        for _ in range(2):
            with pytest.raises(DiskFull, match="No space left"):
                fill(replica, acknowledged)
        assert acknowledged
        found = replica.read(lambda c: {key for (key,) in c.execute("SELECT id FROM clips WHERE live = 1")})
        assert acknowledged <= found
    subprocess.run(["mount", "-o", "remount,size=32m", disk], check=True)
    with open_replica(device, path=path) as replica:
        assert replica.fork_reason is None
        acknowledged.update(replica.write(one))
    check(path, acknowledged)


def test_a_backup_onto_a_full_disk_leaves_nothing_there(disk: Path, device: Device, tmp_path: Path) -> None:
    with open_replica(device, path=tmp_path / "replica.sqlite") as replica:
        for _ in range(200):
            replica.write(large)
        with pytest.raises(DiskFull):
            backup(tmp_path / "replica.sqlite", disk / "backup")
        assert list(disk.iterdir()) == []
        replica.write(one)


def test_a_home_on_a_full_disk_can_not_be_made(disk: Path, device: Device) -> None:
    (disk / "filler").write_bytes(b"x" * (8 << 20))
    with pytest.raises(DiskFull):
        open_replica(device, path=disk / "replica.sqlite")
    (disk / "filler").unlink()
    with open_replica(device, path=disk / "replica.sqlite") as replica:
        replica.write(one)


def test_a_read_only_disk_is_named(disk: Path, device: Device) -> None:
    path = disk / "replica.sqlite"
    with open_replica(device, path=path) as replica:
        acknowledged = set(replica.write(one))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(ReadOnlyHome, match="can't be written"):
        open_replica(device, path=path)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    check(path, acknowledged)
