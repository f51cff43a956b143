"""Who writes along with others pays no commit of his own, and hears of their rows before they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.replica.merging.alike import Alike
from p2pqueue.replica.merging.merged import Done
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.store import Store
from p2pqueue.replica.subscription import Rows
from p2pqueue.replica.writer import Writer
from tests.unit.replica.kit import CLIPS, NOTES, Clock, Device, Space, make_clip


class Reader:
    """A companion that counts the clips at the end of each transaction in which others write."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.told: list[tuple[str, Any]] = []
        self.news_came = asyncio.Event()

    def join(self, *, loud: bool) -> tuple[Callable[[Writer], Any], Callable[[Done], object]] | None:
        return (self.count, self.take) if loud else None

    def news(self, rows: Rows | None, *, seen: bool) -> None:
        if rows:
            self.told.append(("news", seen))
            self.news_came.set()

    def count(self, writer: Writer) -> int:
        (number,) = writer.connection.execute("SELECT count(*) FROM clips").fetchone()
        return int(number)

    def take(self, done: Done) -> None:
        self.found.append(done.result())
        self.news_came.set()


@pytest.fixture
def device() -> Device:
    return Space().device("here")


@pytest.fixture
async def store(device: Device, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "a.sqlite", tables=(CLIPS, NOTES), identity=device, wall=Clock(), machine="machine")
    yield opened
    await opened.close()


@pytest.fixture
def reader(store: Store) -> Reader:
    reader = store.companion = Reader()
    return reader


async def commits(store: Store) -> int:
    (number,) = await store.read(lambda connection: connection.execute("SELECT count(*) FROM commits").fetchone())
    return int(number)


async def test_a_companion_sees_what_it_joined_and_hears_of_it_before_the_answer(store: Store, reader: Reader) -> None:
    async def write() -> None:
        await store.write(make_clip)
        reader.told.append(("answer", None))

    await write()
    assert (reader.found, reader.told) == ([1], [("news", True), ("answer", None)])


async def test_what_fails_beside_a_companion_fails_alone(store: Store, reader: Reader) -> None:
    def fail(writer: Writer) -> None:
        make_clip(writer, "bad")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.write(fail)
    assert reader.found == [0]


async def test_a_companion_that_writes_shares_the_commit(store: Store) -> None:
    class Adding(Reader):
        def count(self, writer: Writer) -> int:
            make_clip(writer, "along")
            return super().count(writer)

    reader = store.companion = Adding()
    before = await commits(store)
    await store.write(make_clip)
    assert (reader.found, await commits(store)) == ([2], before + 1)


async def test_nobody_joins_a_quiet_write(store: Store, reader: Reader) -> None:
    await store.write(make_clip, quiet=True)
    assert (reader.found, reader.told) == ([], [])


async def test_a_companion_hears_of_another_process_and_whether_it_saw_its_rows(
    store: Store, reader: Reader, device: Device, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"tables": (CLIPS, NOTES), "identity": device, "wall": Clock(), "machine": "machine"}
    with Replica.open(tmp_path / "a.sqlite", **options) as other:
        other.write(make_clip)
        store.hand_in(reader.count, reader.take)
        async with asyncio.timeout(5):
            await reader.news_came.wait()
        assert (reader.found, reader.told) == ([1], [("news", True)])
        reader.news_came.clear()
        other.write(make_clip)
        store.ring()
        async with asyncio.timeout(5):
            await reader.news_came.wait()
        assert (reader.found, reader.told[1:]) == ([1, 2], [("news", True)])
        reader.news_came.clear()
        async with store.subscribe():  # looks by the clock as well
            other.write(make_clip)
            async with asyncio.timeout(5):
                await reader.news_came.wait()
        assert (reader.found, reader.told[2:]) == ([1, 2], [("news", False)])


async def test_changes_that_are_alike_are_made_together_and_one_at_fault_fails_alone(store: Store) -> None:
    batches: list[int] = []

    def make_all(writer: Writer, names: Sequence[str]) -> list[str]:
        batches.append(len(names))
        for name in names:
            if name == "bad":
                raise ZeroDivisionError
        return [make_clip(writer, name) for name in names]

    await asyncio.gather(*(store.write(Alike(name, make_all)) for name in "abc"))
    assert batches == [3]
    answers = await asyncio.gather(*(store.write(Alike(name, make_all)) for name in ("d", "bad", "e")), return_exceptions=True)
    assert [type(each) for each in answers] == [str, ZeroDivisionError, str]
    assert batches == [3, 3, 1, 1, 1]
