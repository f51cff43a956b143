"""A transaction writes rows, stamps and numbers together, or nothing."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path

import pytest

from p2pqueue.errors import ArgumentError
from p2pqueue.replica.replica import Put, Writer
from tests.unit.replica.kit import NOW, Clock, Space, clip, hlc, make_clip, open_replica


def test_a_written_row_is_read_with_its_columns() -> None:
    with Space().replica() as replica:
        key = replica.write(lambda writer: make_clip(writer, "birds"))
        replica.write(lambda writer: writer.put("clips", key, "title", {"title": "Birds"}))
        row = clip(replica, key)
    assert row is not None
    assert (row["name"], row["length"], row["title"], row["status"]) == ("birds", 2.0, "Birds", "new")
    assert row["updated_at"] == NOW


def test_a_function_that_raises_leaves_nothing_behind() -> None:
    def fail(writer: Writer) -> None:
        make_clip(writer)
        raise ZeroDivisionError

    with Space().replica() as replica:
        before = (replica.heads(), replica.hlc)
        with pytest.raises(ZeroDivisionError):
            replica.write(fail)
        assert (replica.heads(), replica.hlc) == before
        assert replica.counts("clips") == {}


def test_one_bad_function_among_many_fails_alone() -> None:
    def fail(writer: Writer) -> None:
        make_clip(writer, "bad")
        raise ZeroDivisionError

    with Space().replica() as replica:
        seq = replica.heads()[replica.author].seq
        done = replica.write_many([make_clip, fail, make_clip])
        assert [type(each.error) for each in done] == [type(None), ZeroDivisionError, type(None)]
        assert clip(replica, done[0].result()) is not None
        assert clip(replica, done[2].result()) is not None
        assert replica.counts("clips") == {"new": 2}
        assert replica.heads()[replica.author].seq == seq + 2


def test_a_single_function_that_raises_is_answered_like_many() -> None:
    with Space().replica() as replica:
        (done,) = replica.write_many([lambda writer: 1 // 0])
        with pytest.raises(ZeroDivisionError):
            done.result()


def test_every_write_gets_the_next_number_and_every_commit_a_tag() -> None:
    with Space().replica() as replica:
        first = replica.heads()[replica.author]
        replica.write(lambda writer: [make_clip(writer) for _ in range(3)])
        second = replica.heads()[replica.author]
        assert second.seq == first.seq + 3
        assert second.tag != first.tag
        kept = replica.read(lambda connection: connection.execute("SELECT seq, tag FROM commits WHERE seq > ?", (first.seq,)).fetchall())
        assert kept == [(second.seq, second.tag)]


def test_a_reading_transaction_takes_no_number() -> None:
    with Space().replica() as replica:
        before = replica.heads()
        replica.write(lambda writer: writer.connection.execute("SELECT count(*) FROM clips").fetchone())
        assert replica.heads() == before


def test_time_never_goes_back_though_the_clock_does(tmp_path: Path) -> None:
    clock, device = Clock(), Space().device("here")
    with open_replica(device, path=tmp_path / "a.sqlite", clock=clock) as replica:
        first = replica.write(lambda writer: writer.put("notes", "k", "note", {"text": "first"}))
    clock.now -= 3_600_000
    with open_replica(device, path=tmp_path / "a.sqlite", clock=clock) as replica:
        second = replica.write(lambda writer: writer.put("notes", "k", "note", {"text": "second"}))
        text = replica.read(lambda connection: connection.execute("SELECT text FROM notes").fetchone())
    assert second.hlc == first.hlc + 1
    assert text == ("second",)


def test_a_wall_clock_beyond_2100_is_not_read() -> None:
    clock = Clock()
    with Space().replica(clock=clock) as replica:
        before = replica.hlc
        clock.now = 5_000_000_000_000
        stamp = replica.write(lambda writer: writer.put("notes", "k", "note", {"text": "x"}))
    assert stamp.hlc == before + 1


def test_two_hands_on_one_file_share_author_numbers_and_clock(tmp_path: Path) -> None:
    device = Space().device("here")
    with open_replica(device, path=tmp_path / "a.sqlite") as one, open_replica(device, path=tmp_path / "a.sqlite") as two:
        start = one.heads()[one.author].seq
        stamps = []
        for index in range(6):
            hand = (one, two)[index % 2]
            stamps.append(hand.write(lambda writer, index=index: writer.put("notes", f"k{index}", "note", {"text": "x"})))  # type: ignore[misc]
        assert one.author == two.author
        assert one.heads()[one.author].seq == start + 6
        assert [stamp.hlc for stamp in stamps] == sorted({stamp.hlc for stamp in stamps})


def test_ids_are_uuids_of_version_7_in_the_order_of_their_making() -> None:
    with Space().replica() as replica:
        ids = replica.write(lambda writer: [writer.new_id() for _ in range(1_000)])
    assert ids == sorted(set(ids))
    assert {uuid.UUID(each).version for each in ids} == {7}
    assert {uuid.UUID(each).variant for each in ids} == {uuid.RFC_4122}
    assert int(uuid.UUID(ids[0]).hex[:12], 16) == NOW


def test_a_local_write_below_what_stands_changes_nothing_and_takes_no_number() -> None:
    with Space().replica() as replica:
        replica.write(lambda writer: writer.put("clips", "k", "stage", {"stage": "done"}, rank=2))
        seq = replica.heads()[replica.author].seq
        replica.write(lambda writer: writer.put("clips", "k", "stage", {"stage": "failed"}, rank=1))
        assert replica.heads()[replica.author].seq == seq


def test_the_first_writer_of_a_first_register_wins() -> None:
    with Space().replica() as replica:
        key = replica.write(lambda writer: make_clip(writer, "first"))
        replica.write(lambda writer: make_clip(writer, "second", key=key))
        row = clip(replica, key)
    assert row is not None
    assert row["name"] == "first"


def test_among_equals_the_earliest_wins_where_asked() -> None:
    with Space().replica() as replica:
        key = replica.write(make_clip)
        replica.write(lambda writer: writer.put("clips", key, "stage", {"stage": "done"}, rank=2, earliest=True))
        replica.write(lambda writer: writer.put("clips", key, "stage", {"stage": "late"}, rank=2, earliest=True))
        row = clip(replica, key)
    assert row is not None
    assert row["stage"] == "done"


def test_many_puts_of_one_row_share_its_statement_and_keep_their_order() -> None:
    def put(writer: Writer) -> str:
        key = writer.new_id()
        puts = [Put(key, "made", ("a", 1.0)), Put(key, "title", ("old",)), Put(key, "title", ("new",)), Put(key, "stage", ("on", None))]
        writer.put_many("clips", puts)
        return key

    with Space().replica() as replica:
        key = replica.write(put)
        row = clip(replica, key)
        assert row is not None
        assert (row["title"], row["stage"]) == ("new", "on")
        assert replica.counts("clips") == {"on": 1}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"text": "x", "star": 1}, "no column 'star'"),
        (("x",), "has 2 columns, not 1"),
    ],
)
def test_values_that_fit_no_register_are_refused(values: object, words: str) -> None:
    with Space().replica() as replica, pytest.raises(ArgumentError, match=words):
        replica.write(lambda writer: writer.put("notes", "k", "note", values))  # type: ignore[arg-type]


@pytest.mark.parametrize(("table", "register"), [("notes", "nothing"), ("nothing", "note")])
def test_what_is_not_declared_is_not_written(table: str, register: str) -> None:
    with Space().replica() as replica, pytest.raises(ArgumentError):
        replica.write(lambda writer: writer.put(table, "k", register, {}))


def test_numbers_enter_in_the_form_in_which_they_are_read() -> None:
    with Space().replica() as replica:
        replica.write(lambda writer: writer.put("clips", "k", "made", {"name": "x", "length": True}))
        replica.write(lambda writer: writer.put("notes", "k", "note", {"text": "x", "stars": True}))
        sent = {(write.table, write.register): write.values for write in replica.live_writes(above={})}
    assert sent["clips", "made"] == ("x", 1.0)
    assert isinstance(sent["clips", "made"][1], float)
    assert sent["notes", "note"] == ("x", 1)


def test_touched_rows_are_named() -> None:
    with Space().replica() as replica:
        key = replica.write(make_clip)
        assert replica.touched == {("clips", key)}


def test_a_stamp_is_above_everything_that_was_merged() -> None:
    space = Space()
    ahead = Clock(NOW + 9 * 60_000)
    with space.replica("ahead", clock=ahead) as fast, space.replica("here") as slow:
        fast.write(lambda writer: writer.put("notes", "k", "note", {"text": "from the future"}))
        slow.merge(fast.live_writes(above={}))
        stamp = slow.write(lambda writer: writer.put("notes", "k", "note", {"text": "after seeing"}))
        assert stamp.hlc > hlc(ahead.now)
        fast.merge(slow.live_writes(above={}))
        assert fast.read(lambda c: c.execute("SELECT text FROM notes").fetchone()) == ("after seeing",)


def read_then_make(writer: Writer) -> tuple[int, str, int]:
    first = make_clip(writer)
    (seen,) = writer.connection.execute("SELECT count(*) FROM clips").fetchone()
    second = make_clip(writer)
    (after,) = writer.connection.execute("SELECT count(*) FROM clips").fetchone()
    return seen, second or first, after


def test_a_function_sees_what_it_and_those_before_it_put() -> None:
    with Space().replica() as replica:
        done = replica.write_many([make_clip, read_then_make, make_clip, read_then_make])
        assert [each.result()[::2] for each in done[1::2]] == [(2, 3), (5, 6)]
        assert replica.counts("clips") == {"new": 6}


def test_a_function_that_fails_after_it_looked_is_undone_alone() -> None:
    def fail(writer: Writer) -> None:
        read_then_make(writer)
        make_clip(writer)
        raise ZeroDivisionError

    with Space().replica() as replica:
        seq = replica.heads()[replica.author].seq
        done = replica.write_many([make_clip, fail, make_clip, fail, read_then_make])
        assert [each.error is None for each in done] == [True, False, True, False, True]
        assert replica.counts("clips") == {"new": 4}
        assert replica.heads()[replica.author].seq == seq + 4


def test_values_that_sqlite_refuses_fail_their_function_alone() -> None:
    def bad(writer: Writer) -> None:
        key = make_clip(writer)
        writer.put("clips", key, "stage", {"stage": b"bytes where text is declared"})

    with Space().replica() as replica:
        done = replica.write_many([make_clip, bad, make_clip, read_then_make, bad, make_clip])
        assert [type(each.error) for each in done] == [type(None), sqlite3.IntegrityError] + [type(None)] * 2 + [
            sqlite3.IntegrityError,
            type(None),
        ]
        assert replica.counts("clips") == {"new": 5}
        with pytest.raises(sqlite3.IntegrityError):
            replica.write(bad)
        assert replica.counts("clips") == {"new": 5}


def test_one_function_may_write_to_a_row_that_another_made_in_the_same_transaction() -> None:
    made: list[str] = []

    def make(writer: Writer) -> None:
        made.append(make_clip(writer, "made"))

    def title(writer: Writer) -> None:
        writer.put("clips", made[0], "title", {"title": "by another"})

    with Space().replica() as replica:
        for done in replica.write_many([make, title]):
            done.result()
        row = clip(replica, made[0])
    assert row is not None
    assert (row["name"], row["title"]) == ("made", "by another")


def test_of_two_puts_into_a_new_register_the_greater_stays() -> None:
    def put(writer: Writer) -> str:
        key = writer.new_id()
        writer.put("clips", key, "stage", {"stage": "done"}, rank=2)
        writer.put("clips", key, "stage", {"stage": "on"})
        make_clip(writer, "first", key=key)
        make_clip(writer, "second", key=key)
        return key

    with Space().replica() as replica:
        row = clip(replica, replica.write(put))
    assert row is not None
    assert (row["stage"], row["name"]) == ("done", "first")
