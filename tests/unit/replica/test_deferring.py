"""What is deferred is durable at once, and nobody ever sees the rows without it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from p2pqueue import __version__
from p2pqueue.errors import ArgumentError
from p2pqueue.replica.deferring import MOST_DEFERRED
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from tests.unit.replica.kit import CLIPS, NOTES, Clock, Space, make_clip

Opener = Callable[[], Replica]


def carry_out(writer: Writer, changes: Sequence[bytes]) -> None:
    for change in changes:
        if change == b"odd":
            raise ArgumentError("an odd clip")
        writer.put("clips", writer.new_id(), "made", {"name": change.decode(), "length": 1})


@pytest.fixture
def options() -> dict[str, object]:
    device = Space().device("here")
    return {"tables": (CLIPS, NOTES), "identity": device, "wall": Clock(), "machine": "machine", "carry_out": carry_out}


@pytest.fixture
def open_it(tmp_path: Path, options: dict[str, object]) -> Iterator[Opener]:
    opened: list[Replica] = []

    def make() -> Replica:
        opened.append(Replica.open(tmp_path / "replica.sqlite", **options))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for replica in opened:
        replica.close()


def names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM clips ORDER BY name")]


def raw_names(tmp_path: Path) -> list[str]:
    connection = sqlite3.connect(tmp_path / "replica.sqlite")
    try:
        return names(connection)
    finally:
        connection.close()


def test_whoever_reads_sees_it(open_it: Opener, tmp_path: Path) -> None:
    replica = open_it()
    replica.defer(b"one")
    assert raw_names(tmp_path) == []  # it was deferred indeed
    assert replica.read(names) == ["one"]
    assert raw_names(tmp_path) == ["one"]


def test_another_program_sees_it_when_it_reads(open_it: Opener) -> None:
    here, there = open_it(), open_it()
    here.defer(b"one")
    assert there.read(names) == ["one"]
    assert here.read(names) == ["one"]


def test_a_transaction_finds_it_made(open_it: Opener) -> None:
    here, there = open_it(), open_it()
    there.write(lambda writer: make_clip(writer, "a"))  # so that it knows its numbers
    here.defer(b"one")
    assert here.write(lambda writer: names(writer.connection)) == ["a", "one"]
    here.defer(b"two")
    assert there.write(lambda writer: names(writer.connection)) == ["a", "one", "two"]


def test_it_is_there_after_the_program_died_at_once(open_it: Opener, tmp_path: Path) -> None:
    replica = open_it()
    replica.defer(b"one")
    replica.close()
    assert open_it().read(names) == ["one"]


def test_it_outlives_a_transaction_that_fails(open_it: Opener, tmp_path: Path) -> None:
    replica = open_it()
    replica.defer(b"one")

    def fail(writer: Writer) -> None:
        assert names(writer.connection) == ["one"]
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        replica.write(fail)
    assert raw_names(tmp_path) == []
    assert replica.read(names) == ["one"]


def test_it_keeps_its_order_and_is_carried_out_once(open_it: Opener) -> None:
    here, there = open_it(), open_it()
    wanted = [f"{number:03}" for number in range(MOST_DEFERRED + 30)]
    for number, name in enumerate(wanted):
        (here, there)[number % 2].defer(name.encode())
    query = "SELECT name FROM clips ORDER BY id"
    assert [name for (name,) in here.read(lambda connection: connection.execute(query).fetchall())] == wanted
    assert there.read(names) == wanted
    assert there.read(lambda connection: connection.execute("SELECT count(*) FROM deferred").fetchone()) == (0,)


def test_who_defers_much_carries_it_out_itself(open_it: Opener, tmp_path: Path) -> None:
    replica = open_it()
    for number in range(MOST_DEFERRED):
        replica.defer(b"%d" % number)
    replica.carry_out_many()
    assert len(raw_names(tmp_path)) == MOST_DEFERRED


def test_an_odd_one_is_kept_aside_and_keeps_nothing_up(open_it: Opener, caplog: pytest.LogCaptureFixture) -> None:
    replica = open_it()
    for change in (b"one", b"odd", b"two"):
        replica.defer(change)
    with caplog.at_level(logging.ERROR):
        assert replica.read(names) == ["one", "two"]
    assert "an odd clip" in caplog.text
    left = replica.read(lambda connection: connection.execute("SELECT change, problem FROM deferred").fetchall())
    assert left == [(b"odd", f"p2pqueue {__version__}: an odd clip")]
    replica.defer(b"three")
    assert replica.read(names) == ["one", "three", "two"]


def test_what_another_version_kept_aside_is_made_by_the_one_that_knows_it(
    open_it: Opener, tmp_path: Path, options: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    older = open_it()
    older.defer(b"odd")
    assert older.read(names) == []
    older.close()
    with closing(sqlite3.connect(tmp_path / "replica.sqlite")) as connection, connection:
        connection.execute("UPDATE deferred SET problem = replace(problem, ?, '0.0.9')", (__version__,))
    assert open_it().read(names) == []  # still not known: aside again, and told once
    assert open_it().read(names) == []
    assert caplog.text.count("an odd clip") == 2
    with closing(sqlite3.connect(tmp_path / "replica.sqlite")) as connection, connection:
        connection.execute("UPDATE deferred SET problem = replace(problem, ?, '0.0.9')", (__version__,))
    options["carry_out"] = lambda writer, changes: carry_out(writer, [change.replace(b"odd", b"known") for change in changes])
    newer = open_it()
    assert newer.read(names) == ["known"]
    assert newer.read(lambda connection: connection.execute("SELECT count(*) FROM deferred").fetchone()) == (0,)


@pytest.mark.parametrize("fault", [sqlite3.OperationalError("disk I/O error"), sqlite3.DatabaseError("malformed")], ids=["full", "damaged"])
def test_what_cannot_be_carried_out_now_is_carried_out_later(
    tmp_path: Path, options: dict[str, object], caplog: pytest.LogCaptureFixture, fault: sqlite3.Error
) -> None:
    full = True

    def on_a_full_disk(writer: Writer, changes: Sequence[bytes]) -> None:
        if full:
            raise fault
        carry_out(writer, changes)

    with Replica.open(tmp_path / "replica.sqlite", **{**options, "carry_out": on_a_full_disk}) as replica:  # type: ignore[arg-type]
        replica.defer(b"one")
        assert [replica.read(names) for _ in range(3)] == [[], [], []]
        assert caplog.text.count("can't be carried out yet") == 1  # a reader after the other doesn't try it again at once
        full = False
        assert replica.write(lambda writer: names(writer.connection)) == ["one"]
        replica.defer(b"two")
        assert replica.write(lambda writer: names(writer.connection)) == ["one", "two"]


def test_its_numbers_are_given_out_like_any_others(open_it: Opener) -> None:
    replica = open_it()
    before = replica.heads()[replica.author].seq
    replica.defer(b"one")
    replica.defer(b"two")
    assert replica.heads()[replica.author].seq == before + 2
    assert replica.counts("clips") == replica.read(
        lambda connection: dict(connection.execute("SELECT status, count(*) FROM clips WHERE live = 1 GROUP BY status"))
    )


async def test_a_node_carries_it_out_when_it_is_rung(tmp_path: Path, options: dict[str, object], open_it: Opener) -> None:
    store = await Store.open(tmp_path / "replica.sqlite", **options)
    try:
        async with store.subscribe() as heard:
            open_it().defer(b"one")
            store.ring()
            rows = await anext(heard)
        assert rows is not None
        assert {table for table, _ in rows} == {"clips"}
        assert raw_names(tmp_path) == ["one"]
    finally:
        await store.close()


async def test_a_node_that_was_not_rung_reads_it_all_the_same(tmp_path: Path, options: dict[str, object], open_it: Opener) -> None:
    store = await Store.open(tmp_path / "replica.sqlite", **options)
    try:
        open_it().defer(b"one")
        assert await store.read(names) == ["one"]
    finally:
        await store.close()
