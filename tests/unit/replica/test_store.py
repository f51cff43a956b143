"""Many who write at once share a transaction, and each gets an answer of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import aiosqlite
import pytest

from p2pqueue.errors import DamagedHome, WorldError
from p2pqueue.replica.file.connection import WAL_LIMIT
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from tests.unit.replica.kit import CLIPS, NOTES, NOW, Clock, Device, Space, clip, everything, make_clip, open_replica


@pytest.fixture
def device() -> Device:
    return Space().device("here")


@pytest.fixture
async def store(device: Device, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "a.sqlite", tables=(CLIPS, NOTES), identity=device, wall=Clock(), machine="machine")
    yield opened
    await opened.close()


def count(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT count(*) FROM clips").fetchone()
    return int(number)


def fail(writer: Writer) -> None:
    make_clip(writer, "bad")
    raise ZeroDivisionError


async def test_what_was_written_is_read(store: Store) -> None:
    key = await store.write(make_clip)
    assert await store.read(lambda c: c.execute("SELECT id FROM clips").fetchall()) == [(key,)]


async def test_those_that_wait_together_commit_together(store: Store) -> None:
    before = len(await store.read(lambda c: c.execute("SELECT seq FROM commits").fetchall()))
    keys = await asyncio.gather(*(store.write(make_clip) for _ in range(64)))
    after = len(await store.read(lambda c: c.execute("SELECT seq FROM commits").fetchall()))
    assert len(set(keys)) == 64
    assert after - before <= 2


async def test_a_bad_one_among_many_fails_alone(store: Store) -> None:
    answers = await asyncio.gather(store.write(make_clip), store.write(fail), store.write(make_clip), return_exceptions=True)
    assert [type(each) for each in answers] == [str, ZeroDivisionError, str]
    assert await store.read(count) == 2


async def test_a_cancelled_await_harms_nobody(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(store.write(make_clip)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
    done = [task.result() for task in tasks if not task.cancelled()]
    assert len(done) == 10
    found = await store.read(lambda c: {key for (key,) in c.execute("SELECT id FROM clips")})
    assert set(done) <= found


async def test_changes_are_told_with_their_rows(store: Store) -> None:
    async with store.subscribe() as changes:
        key = await store.write(make_clip)
        async with asyncio.timeout(5):
            assert await anext(changes) == frozenset({("clips", key)})


async def test_quiet_changes_are_not_told(store: Store) -> None:
    async with store.subscribe() as changes:
        quiet, loud = await asyncio.gather(store.write(make_clip, quiet=True), store.write(make_clip))
        async with asyncio.timeout(5):
            assert await anext(changes) == frozenset({("clips", loud)})
        assert quiet != loud


async def test_what_comes_while_nobody_waits_is_gathered(store: Store) -> None:
    async with store.subscribe() as changes:
        keys = [await store.write(make_clip) for _ in range(3)]
        async with asyncio.timeout(5):
            assert await anext(changes) == frozenset(("clips", key) for key in keys)


@pytest.mark.parametrize("ring", [True, False])
async def test_a_commit_of_another_process_is_told_with_its_rows(store: Store, device: Device, ring: bool) -> None:
    def elsewhere() -> str:
        with open_replica(device, path=store.path) as replica:
            return replica.write(make_clip)

    async with store.subscribe() as changes:
        key = await asyncio.to_thread(elsewhere)
        if ring:
            store.ring()
        async with asyncio.timeout(5):
            assert await anext(changes) == frozenset({("clips", key)})


async def test_a_commit_of_another_process_just_before_an_own_one_is_told(store: Store, device: Device) -> None:
    def elsewhere() -> str:
        with open_replica(device, path=store.path) as replica:
            return replica.write(make_clip)

    async with store.subscribe() as changes:
        key = await asyncio.to_thread(elsewhere)
        own = await store.write(make_clip, quiet=True)
        async with asyncio.timeout(5):
            assert await anext(changes) == frozenset({("clips", key)})
        assert own != key


async def test_a_fork_elsewhere_is_told_as_a_change_of_everything(store: Store, device: Device) -> None:
    def elsewhere() -> None:
        with open_replica(device, path=store.path) as replica:
            replica.fork("restored")

    async with store.subscribe() as changes:
        await asyncio.to_thread(elsewhere)
        store.ring()
        async with asyncio.timeout(5):
            assert await anext(changes) is None


async def test_a_subscription_ends_with_the_store(device: Device, tmp_path: Path) -> None:
    opened = await Store.open(tmp_path / "b.sqlite", tables=(CLIPS,), identity=device)
    changes = opened.subscribe()
    await opened.close()
    assert [each async for each in changes] == []


async def test_merging_and_calls_take_their_turn(store: Store) -> None:
    with Space().replica("peer") as peer:
        peer.write(lambda writer: writer.put("notes", "k", "note", {"text": "hello"}))
        writes = [write for write in everything(peer) if write.table == "notes"]
    merged, key = await asyncio.gather(store.merge(writes), store.write(make_clip))
    assert merged.applied == 1
    assert await store.call(lambda replica: clip(replica, key)) is not None


async def test_a_closed_store_says_so(device: Device, tmp_path: Path) -> None:
    opened = await Store.open(tmp_path / "b.sqlite", tables=(CLIPS,), identity=device)
    waiting = asyncio.ensure_future(opened.write(make_clip))
    await asyncio.sleep(0)
    await opened.close()
    assert isinstance(await waiting, str)  # what was handed in before is committed
    with pytest.raises(WorldError, match="closed"):
        await opened.write(make_clip)
    with pytest.raises(WorldError, match="closed"):
        await opened.read(count)
    await opened.close()


async def test_reading_goes_on_while_a_long_transaction_writes(store: Store) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(writer: Writer) -> None:
        make_clip(writer)
        entered.set()
        leave.wait(20)

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(store.write(slow))
        await asyncio.to_thread(entered.wait, 20)
        assert await store.read(count) == 0
        leave.set()
    assert writing.done()
    assert await store.read(count) == 1


async def test_the_log_is_checkpointed_and_begins_anew_when_idle(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.replica.store.IDLE", 0.0)
    for _ in range(30):
        await store.write(lambda writer: [make_clip(writer, "x" * 1_000) for _ in range(100)])
    log = Path(f"{store.path}-wal")
    assert log.stat().st_size < 12 << 20
    first = _beginnings(log)
    async with asyncio.timeout(10):
        while _beginnings(log) == first:
            await asyncio.sleep(0.05)
            await store.write(make_clip)


async def test_the_log_has_its_size_from_the_start(store: Store) -> None:
    log = Path(f"{store.path}-wal")
    assert log.stat().st_size == WAL_LIMIT
    await store.write(make_clip)
    assert log.stat().st_size == WAL_LIMIT
    assert await store.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()) == ("ok",)


def _beginnings(log: Path) -> int:
    """How often SQLite has begun to write this log from its start: a number in its header."""
    return int.from_bytes(log.read_bytes()[12:16], "big")


async def test_pruning_runs_in_its_turn(store: Store) -> None:
    key = await store.write(make_clip)
    await store.write(lambda writer: writer.delete("clips", key))
    assert await store.prune(-1) == 1
    assert await store.read(count) == 0


async def test_two_stores_on_one_file_write_without_a_gap(store: Store, device: Device) -> None:
    other = await Store.open(store.path, tables=(CLIPS, NOTES), identity=device, wall=Clock(NOW), machine="machine")
    try:
        keys = await asyncio.gather(*(each.write(make_clip) for each in (store, other) * 20))
        assert len(set(keys)) == 40
        assert await store.read(count) == 40
    finally:
        await other.close()


async def test_no_thread_of_a_store_that_can_not_be_opened_outlives_the_attempt(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"no database" * 100)
    before = {thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name}
    with pytest.raises(DamagedHome):
        await Store.open(path, tables=(CLIPS, NOTES), identity=device, wall=Clock(), machine="machine")
    assert {thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name} == before


def test_the_protected_names_of_aiosqlite_are_there() -> None:
    connection = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), 64)
    assert hasattr(connection._tx, "put_nowait")
    assert hasattr(connection._thread, "join")
    assert hasattr(aiosqlite.Connection, "_connect")
