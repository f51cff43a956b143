"""A store goes on while the disk is still busy, but nobody is answered before what he wrote is durable."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.errors import DiskFull, WorldError
from p2pqueue.replica.file import durability
from p2pqueue.replica.merging.merged import Done
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from tests.unit.replica.kit import CLIPS, NOTES, Clock, Space, make_clip


class SlowDisk:
    """A disk that takes as long for a sync as a test wants, or fails."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.begun = threading.Semaphore(0)
        self.ended = 0
        self.error: OSError | None = None

    def sync(self, descriptor: int) -> None:
        self.begun.release()
        assert self.goes_on.wait(20)
        if self.error is not None:
            raise self.error
        os.fsync(descriptor)
        self.ended += 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    slow = SlowDisk()
    monkeypatch.setattr(durability, "_sync", slow.sync)
    yield slow
    slow.goes_on.set()


@pytest.fixture
async def store(disk: SlowDisk, tmp_path: Path) -> AsyncIterator[Store]:
    options: dict[str, Any] = {"tables": (CLIPS, NOTES), "identity": Space().device("here"), "wall": Clock(), "machine": "machine"}
    opened = await Store.open(tmp_path / "a.sqlite", **options)
    yield opened
    disk.goes_on.set()
    await opened.close()


class Taker:
    """A companion that is told at once how many clips there are."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.told = asyncio.Event()

    def join(self, *, loud: bool) -> tuple[Callable[[Writer], Any], Callable[[Done], object]] | None:
        return (_count, self._take) if loud else None

    def news(self, rows: object, *, seen: bool) -> None:
        pass

    def _take(self, done: Done) -> None:
        self.found.append(done.result())
        self.told.set()


def _count(writer: Writer) -> int:
    (number,) = writer.connection.execute("SELECT count(*) FROM clips").fetchone()
    return int(number)


async def _begin(disk: SlowDisk) -> None:
    """Waits until the disk is asked."""
    assert await asyncio.to_thread(disk.begun.acquire, True, 10)


async def test_a_writer_is_answered_once_the_disk_has_it(store: Store, disk: SlowDisk) -> None:
    disk.goes_on.clear()
    writing = asyncio.ensure_future(store.write(make_clip))
    await _begin(disk)
    await asyncio.sleep(0.02)
    assert not writing.done()
    disk.goes_on.set()
    await writing
    assert disk.ended == 1


async def test_the_companion_goes_on_before_the_disk_has_it_and_writes_again(store: Store, disk: SlowDisk) -> None:
    taker = store.companion = Taker()
    disk.goes_on.clear()
    first = asyncio.ensure_future(store.write(make_clip))
    await _begin(disk)
    async with asyncio.timeout(10):
        await taker.told.wait()
        taker.told.clear()
        second = asyncio.ensure_future(store.write(lambda writer: make_clip(writer, "second")))
        await taker.told.wait()
    assert taker.found == [1, 2]
    assert not first.done()
    assert not second.done()
    disk.goes_on.set()
    await asyncio.gather(first, second)


async def test_nothing_is_read_that_is_not_durable(store: Store, disk: SlowDisk) -> None:
    taker = store.companion = Taker()
    disk.goes_on.clear()
    writing = asyncio.ensure_future(store.write(make_clip))
    async with asyncio.timeout(10):
        await taker.told.wait()
    reading = asyncio.ensure_future(store.read(lambda connection: connection.execute("SELECT count(*) FROM clips").fetchone()))
    asking = asyncio.ensure_future(store.call(lambda replica: replica.connection.execute("SELECT count(*) FROM clips").fetchone()))
    await asyncio.sleep(0.05)
    assert not reading.done()
    assert not asking.done()
    disk.goes_on.set()
    assert await reading == await asking == (1,)
    await writing


async def test_a_disk_that_takes_nothing_is_told_to_writers_and_the_store_goes_on(store: Store, disk: SlowDisk) -> None:
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFull):
        await store.write(make_clip)
    taker = store.companion = Taker()
    with pytest.raises(WorldError):
        await store.write(lambda writer: make_clip(writer, "second"))
    assert taker.found == [2]
    disk.error = None
    await store.write(lambda writer: make_clip(writer, "third"))
    assert taker.found == [2, 3]


async def test_what_only_reads_costs_no_sync(store: Store, disk: SlowDisk) -> None:
    await store.write(make_clip)
    before = disk.ended
    for _ in range(3):
        await store.call(lambda replica: replica.connection.execute("SELECT count(*) FROM clips").fetchone())
        await store.read(lambda connection: connection.execute("SELECT count(*) FROM clips").fetchone())
    assert disk.ended == before


async def test_all_are_answered_before_the_store_is_closed(disk: SlowDisk, store: Store) -> None:
    store.companion = Taker()
    disk.goes_on.clear()
    writing = asyncio.ensure_future(store.write(make_clip))
    await _begin(disk)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0.02)
    disk.goes_on.set()
    await closing
    assert writing.done()
    await writing


async def test_what_can_be_read_is_read_while_the_disk_takes_nothing(store: Store, disk: SlowDisk) -> None:
    disk.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(WorldError):
        await store.write(make_clip)
    assert await store.read(lambda connection: connection.execute("SELECT count(*) FROM clips").fetchone()) == (1,)
    with pytest.raises(WorldError):
        await store.settle()


async def test_after_a_failed_sync_the_next_one_counts_only_with_the_log_in_the_database(store: Store, disk: SlowDisk) -> None:
    disk.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(WorldError):
        await store.write(make_clip)
    disk.error = None
    await store.write(lambda writer: make_clip(writer, "second"))
    await store.settle()
    bare = Path(store.path).with_name("bare.sqlite")
    bare.write_bytes(Path(store.path).read_bytes())  # without its log
    with closing(sqlite3.connect(bare)) as connection:
        assert connection.execute("SELECT count(*) FROM clips").fetchone() == (2,)
