"""Merging takes in a peer's writes in any order, and names what it can't take."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from p2pqueue.clock import LATEST_STAMP
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.tables import Column, Register, Table
from p2pqueue.replica.write import Head, Write
from tests.unit.replica.kit import CLIPS, NOTES, NOW, Space, clip, everything, make_clip, open_replica, state, sync, write_of

A, B = b"a" * 16, b"b" * 16


def note(replica: Replica, key: str = "k") -> tuple[Any, ...] | None:
    return replica.read(lambda connection: connection.execute("SELECT text, stars FROM notes WHERE id = ?", (key,)).fetchone())  # type: ignore[no-any-return]


def test_three_concurrent_writes_settle_alike_in_every_order() -> None:
    writes = [
        write_of(A, 1, "note", ("a", 1), time=NOW),
        write_of(B, 1, "note", ("b", 2), time=NOW),
        write_of(A, 2, "note", ("c", 3), time=NOW - 1),
    ]
    for order in itertools.permutations(writes):
        with Space().replica() as replica:
            for write in order:
                replica.merge([write])
            assert note(replica) == ("b", 2)


def test_the_same_batch_again_changes_nothing() -> None:
    space = Space()
    with space.replica() as sender, space.replica("other") as receiver:
        sender.write(make_clip)
        sync(sender, receiver)
        before = state(receiver)
        merged = receiver.merge(everything(sender) * 2, repair=True)
        assert merged.applied == 0
        assert state(receiver) == before


def test_a_batch_that_names_one_register_twice_takes_the_greater() -> None:
    with Space().replica() as replica:
        replica.merge([write_of(A, 2, "note", ("new", 0), time=NOW + 1), write_of(A, 1, "note", ("old", 0), time=NOW)])
        assert note(replica) == ("new", 0)


def test_equal_heads_mean_equal_tables() -> None:
    space = Space()
    with space.replica() as one, space.replica("other") as two, space.replica("third") as three:
        keys = [each.write(make_clip) for each in (one, two, three)]
        for _ in range(2):
            for sender, receiver in itertools.permutations((one, two, three), 2):
                sync(sender, receiver)
        for index, each in enumerate((one, two, three)):
            each.write(lambda writer, index=index: writer.put("clips", keys[0], "title", {"title": f"by {index}"}))  # type: ignore[misc]
        for _ in range(2):
            for sender, receiver in itertools.permutations((one, two, three), 2):
                sync(sender, receiver)
        assert one.heads() == two.heads() == three.heads()
        assert state(one) == state(two) == state(three)


def test_a_relayed_write_keeps_its_author() -> None:
    space = Space()
    with space.replica("a") as first, space.replica("b") as relay, space.replica("c") as last:
        first.write(lambda writer: writer.put("notes", "k", "note", {"text": "by a"}))
        last.write(lambda writer: writer.put("notes", "k", "note", {"text": "by c"}))
        sync(first, relay)
        sync(relay, last)
        sync(last, relay)
        sync(relay, first)
        assert note(first) == note(relay) == note(last)
        assert {w.stamp.author for w in everything(relay)} >= {w.stamp.author for w in everything(first)}


def test_a_write_at_or_below_the_head_is_ignored_but_in_a_repair() -> None:
    with Space().replica() as replica:
        replica.move_heads({A: Head(5, b"tag")})
        write = write_of(A, 5, "note", ("late", 0))
        assert replica.merge([write]).ignored == 1
        assert note(replica) is None
        assert replica.merge([write_of(A, 6, "note", ("new", 0), key="other")]).applied == 1


def test_a_repair_inserts_no_row_that_ended_here() -> None:
    with Space().replica() as replica:
        replica.move_heads({A: Head(5, b"tag")})
        assert replica.merge([write_of(A, 5, "note", ("ended", 0))], repair=True).ignored == 1
        assert note(replica) is None


def test_a_repair_mends_a_register_of_a_row_that_is_here() -> None:
    with Space().replica() as replica:
        replica.merge([write_of(A, 1, "note", ("old", 0))])
        replica.move_heads({A: Head(5, b"tag")})
        assert replica.merge([write_of(A, 2, "note", ("new", 0), time=NOW + 1)], repair=True).applied == 1
        assert note(replica) == ("new", 0)


def test_merging_moves_no_head_and_holds_what_came() -> None:
    with Space().replica() as replica:
        replica.merge([write_of(A, seq, "note", ("x", 0), key=f"k{seq}") for seq in (1, 2, 4)])
        assert A not in replica.heads()
        assert list(replica.held()[A]) == [(1, 2), (4, 4)]
        replica.move_heads({A: Head(2, b"tag")})
        assert list(replica.held()[A]) == [(4, 4)]


@pytest.mark.parametrize("numbers", [range(1, 41), [1, 2, *range(30, 61)], range(3, 90, 2), [7]], ids=["one run", "two", "many", "one"])
def test_what_is_held_is_told_in_whatever_runs_it_came(numbers: Sequence[int]) -> None:
    with Space().replica() as replica:
        replica.merge([write_of(A, seq, "note", ("x", 0), key=f"k{seq}") for seq in numbers])
        replica.move_heads({A: Head(2, b"tag")})
        assert replica.held() == {A: Spans.of_sorted(seq for seq in numbers if seq > 2)}


def test_a_number_that_an_author_gave_twice_fills_no_hole() -> None:
    with Space().replica() as replica:
        replica.merge([write_of(A, seq, "note", ("x", 0), key=key) for key, seq in (("k1", 1), ("k2", 1), ("k3", 3))])
        assert list(replica.held()[A]) == [(1, 1), (3, 3)]


def test_heads_never_fall_by_a_done() -> None:
    with Space().replica() as replica:
        replica.move_heads({A: Head(5, b"five")})
        replica.move_heads({A: Head(3, b"three")})
        assert replica.heads()[A] == Head(5, b"five")


def test_one_stamp_with_two_contents_settles_by_the_bytes() -> None:
    one, two = write_of(A, 1, "note", ("one", 0)), write_of(A, 1, "note", ("two", 0))
    found = []
    for order in ((one, two), (two, one)):
        with Space().replica() as replica:
            for write in order:
                replica.merge([write])
            found.append(note(replica))
    assert found[0] == found[1]


def stamp(**parts: Any) -> Stamp:
    return Stamp(**{"generation": 0, "rank": 0, "claim": 0, "hlc": NOW << 16, "author": A, **parts})


@pytest.mark.parametrize(
    ("parts", "rest"),
    [
        ({"hlc": LATEST_STAMP + 1}, {}),
        ({"hlc": -LATEST_STAMP - 1}, {}),
        ({"hlc": 0}, {}),
        ({"hlc": 1 << 80}, {}),
        ({"hlc": 1.5}, {}),
        ({"generation": -1}, {}),
        ({"generation": 1 << 60}, {}),
        ({"rank": 4}, {}),
        ({"claim": -1}, {}),
        ({"claim": True}, {}),
        ({"author": b"short"}, {}),
        ({"author": "a" * 16}, {}),
        ({}, {"seq": 0}),
        ({}, {"seq": -5}),
        ({}, {"seq": 1 << 70}),
        ({}, {"seq": "1"}),
        ({}, {"key": ""}),
        ({}, {"key": "k" * 5_000}),
        ({}, {"key": 7}),
        ({}, {"table": ""}),
        ({}, {"register": None}),
    ],
)
def test_a_malformed_write_is_refused_with_a_reason_and_stops_nothing(parts: dict[str, Any], rest: dict[str, Any]) -> None:
    fields = {"table": "notes", "key": "k", "register": "note", "stamp": stamp(**parts), "seq": 1, "values": ("bad", 0), **rest}
    with Space().replica() as replica:
        hlc = replica.hlc
        merged = replica.merge([Write(**fields), write_of(B, 1, "note", ("good", 0), key="other")])
        assert [each.reason for each in merged.refused] != []
        assert merged.applied == 1
        assert note(replica, "other") == ("good", 0)
        assert note(replica) is None
        assert replica.hlc in (hlc, NOW << 16)


def test_a_stamp_up_to_2200_is_taken_and_the_clock_follows() -> None:
    with Space().replica() as replica:
        replica.merge([write_of(A, 1, "note", ("far", 0), time=7_000_000_000_000)])
        mine = replica.write(lambda writer: writer.put("notes", "k", "note", {"text": "after seeing"}))
        assert mine.hlc == (7_000_000_000_000 << 16) + 1
        assert note(replica) == ("after seeing", None)


@pytest.mark.parametrize(
    "values",
    [
        (b"bytes where text is declared", 0),
        ("x", "text where a number is declared"),
        ("x", 1 << 70),
        ("\ud800", 0),
        ("x",),
        ("x", 1, 2),
        (["a list"], 0),
        ({"a": "map"}, 0),
    ],
)
def test_values_that_sqlite_refuses_are_set_aside_with_their_reason(values: tuple[Any, ...]) -> None:
    with Space().replica() as replica:
        merged = replica.merge([write_of(A, 1, "note", values), write_of(A, 2, "note", ("good", 0), key="other")])
        (aside,) = merged.set_aside
        assert (aside.key, aside.seq) == ("k", 1)
        assert aside.reason
        assert note(replica, "other") == ("good", 0)
        again = replica.merge([write_of(A, 1, "note", values)])
        assert again.applied == 0


def test_what_was_set_aside_is_held_and_passed_on_until_it_is_outranked() -> None:
    with Space().replica() as replica:
        replica.merge([write_of(A, 1, "note", (b"bytes", 0))])
        assert list(replica.held()[A]) == [(1, 1)]
        assert [w.seq for w in everything(replica) if w.stamp.author == A] == [1]
        replica.merge([write_of(A, 2, "note", ("good", 0), time=NOW + 1)])
        assert [w.seq for w in everything(replica) if w.stamp.author == A] == [2]


def test_an_unknown_register_is_kept_passed_on_and_applied_after_an_upgrade() -> None:
    color = Register("color", (Column("color", "TEXT"),))
    newer = Table(
        CLIPS.name,
        CLIPS.key,
        (*CLIPS.registers, color),
        CLIPS.derived,
        CLIPS.indexes,
        CLIPS.counted,
        CLIPS.compact,
        CLIPS.ended,
        CLIPS.ended_at,
    )
    space = Space()
    old_device = space.device("old")
    with (
        space.replica("new", tables=(newer,)) as author,
        open_replica(old_device, tables=(CLIPS,)) as middle,
        space.replica("also new", tables=(newer,)) as reader,
    ):
        key = author.write(make_clip)
        author.write(lambda writer: writer.put("clips", key, "color", {"color": "red"}))
        sync(author, middle)
        sync(middle, reader)
        query = "SELECT color FROM clips"
        assert reader.read(lambda c: c.execute(query).fetchall()) == [("red",)]
        with open_replica(old_device, tables=(newer,), image=middle.image()) as upgraded:
            assert upgraded.read(lambda c: c.execute(query).fetchall()) == [("red",)]
            assert clip(upgraded, key) is not None
            assert [w.values for w in everything(upgraded) if w.register == "color"] == [("red",)]
            sync(upgraded, reader)
            assert state(upgraded)["clips"] == state(reader)["clips"]


def test_an_unknown_signed_register_keeps_its_bytes() -> None:
    seal = Register("seal", (Column("seal", "TEXT"),), signed=True)
    newer = Table("clips", "id", (*CLIPS.registers, seal), CLIPS.derived)
    space = Space()
    with (
        space.replica("new", tables=(newer,)) as author,
        space.replica("old", tables=(CLIPS,)) as middle,
        space.replica("also new", tables=(newer,)) as reader,
    ):
        key = author.write(make_clip)
        author.write(lambda writer: writer.put("clips", key, "seal", {"seal": "wax"}))
        sync(author, middle)
        sync(middle, reader)
        assert reader.verify_pending() == ()
        assert reader.read(lambda c: c.execute("SELECT seal FROM clips").fetchall()) == [("wax",)]
        sent = {(w.register, w.body, w.signature) for w in everything(author) if w.register == "seal"}
        assert sent == {(w.register, w.body, w.signature) for w in everything(reader) if w.register == "seal"}


def test_an_unknown_table_is_kept_passed_on_and_applied_after_an_upgrade() -> None:
    space = Space()
    device = space.device("old")
    with space.replica("new") as author, open_replica(device, tables=(CLIPS,)) as middle:
        author.write(lambda writer: writer.put("notes", "k", "note", {"text": "hello", "stars": 3}))
        sync(author, middle)
        assert [w.body is not None for w in everything(middle) if w.table == "notes"] == [True]
        with open_replica(device, tables=(CLIPS, NOTES), image=middle.image()) as upgraded:
            assert note(upgraded) == ("hello", 3)
            assert [(w.values, w.body) for w in everything(upgraded) if w.table == "notes"] == [(("hello", 3), None)]


def test_a_table_that_this_program_does_not_declare_is_still_read_and_passed_on(tmp_path: Any) -> None:
    space = Space()
    device = space.device("here")
    path = tmp_path / "a.sqlite"
    with open_replica(device, path=path) as program:
        program.write(lambda writer: writer.put("notes", "k", "note", {"text": "hello"}))
    with open_replica(device, path=path, tables=(CLIPS,)) as other, space.replica("receiver") as receiver:
        sync(other, receiver)
        assert note(receiver) == ("hello", None)


def test_writes_come_newest_first_but_what_says_who_is_who_before() -> None:
    space = Space()
    with space.replica() as replica:
        keys = [replica.write(make_clip) for _ in range(5)]
        sent = everything(replica)
        assert [w.table for w in sent[:3]] == ["devices", "authors", "devices"]
        assert [w.key for w in sent if w.table == "clips"] == keys[::-1]
        head = replica.heads()[replica.author].seq
        page = replica.live_writes(
            above={replica.author: head - 5}, not_held={replica.author: [(head, head), (head - 2, head - 2)]}, limit=2
        )
        assert [w.seq for w in page] == [head - 1, head - 3]
