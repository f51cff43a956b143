"""Nothing of an earlier life shows through in a later one."""

from __future__ import annotations

import pytest

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.stamp import generation
from tests.unit.replica.kit import NOW, Space, clip, everything, introductions, make_clip, state, sync, write_of


def stage(replica: Replica, key: str, text: str, **parts: int) -> None:
    replica.write(lambda writer: writer.put("clips", key, "stage", {"stage": text}, **parts))  # type: ignore[arg-type]


def test_a_deleted_row_is_gone_and_counts_for_nothing() -> None:
    with Space().replica() as replica:
        key = replica.write(make_clip)
        replica.write(lambda writer: writer.delete("clips", key))
        assert clip(replica, key) is None
        assert replica.counts("clips") == {}


def test_a_row_made_again_starts_clean() -> None:
    with Space().replica() as replica:
        key = replica.write(make_clip)
        stage(replica, key, "done", rank=2)
        replica.write(lambda writer: writer.delete("clips", key))
        replica.write(lambda writer: make_clip(writer, "again", key=key, generation=generation(1)))
        row = clip(replica, key)
        assert row is not None
        assert (row["name"], row["stage"], row["status"]) == ("again", None, "new")
        assert replica.counts("clips") == {"new": 1}


def test_without_a_generation_a_write_joins_the_life_that_the_row_is_in() -> None:
    with Space().replica() as replica:
        key = replica.write(make_clip)
        replica.write(lambda writer: make_clip(writer, "again", key=key, generation=generation(3)))
        stamp = replica.write(lambda writer: writer.put("clips", key, "title", {"title": "x"}))
        assert stamp.generation == generation(3)
        assert replica.write(lambda writer: writer.life("clips", key)) == 3


def test_an_edit_of_an_earlier_life_changes_nothing_whatever_its_time() -> None:
    space = Space()
    with space.replica() as replica:
        key = replica.write(make_clip)
        replica.write(lambda writer: make_clip(writer, "again", key=key, generation=generation(1)))
        old = write_of(b"o" * 16, 1, "title", ("from the old life",), table="clips", key=key, time=NOW + 3_600_000)
        merged = replica.merge([old])
        row = clip(replica, key)
        assert (merged.applied, merged.counted) == (0, 1)
        assert row is not None
        assert row["title"] is None


def test_an_edit_of_a_later_life_waits_for_its_row() -> None:
    space = Space()
    with space.replica() as replica, space.replica("other") as other:
        key = replica.write(make_clip)
        sync(replica, other)
        other.write(lambda writer: make_clip(writer, "again", key=key, generation=generation(1)))
        other.write(lambda writer: writer.put("clips", key, "title", {"title": "of the second life"}))
        sent = {write.register: write for write in everything(other)}
        replica.merge(introductions(other))
        replica.merge([sent["title"]])
        waiting = clip(replica, key)
        assert waiting is not None
        assert (waiting["name"], waiting["title"]) == ("clip", None)
        replica.merge([sent["made"]])
        row = clip(replica, key)
        assert row is not None
        assert (row["name"], row["title"]) == ("again", "of the second life")


@pytest.mark.parametrize("waiting_first", [True, False])
def test_what_waits_for_a_life_and_cant_be_stored_never_keeps_that_life_from_beginning(waiting_first: bool) -> None:
    space = Space()
    with space.replica("author") as author, space.replica("receiver") as receiver:
        key = author.write(make_clip)
        sync(author, receiver)
        odd = write_of(b"h" * 16, 1, "stage", ("x", b"no text"), key=key, table="clips", generation=generation(1))
        found = list(receiver.merge([odd]).set_aside) if waiting_first else []
        author.write(lambda writer: writer.delete("clips", key))
        author.write(lambda writer: writer.put("clips", key, "made", {"name": "again", "length": 1}, generation=generation(1)))
        sync(author, receiver)
        found += [] if waiting_first else receiver.merge([odd]).set_aside
        row = clip(receiver, key)
        assert row is not None
        assert (row["name"], [each.register for each in found]) == ("again", ["stage"])


def test_lives_merge_alike_in_either_order() -> None:
    space = Space()
    with space.replica() as one, space.replica("other") as two:
        key = one.write(make_clip)
        sync(one, two)
        stage(one, key, "done", rank=2)
        two.write(lambda writer: make_clip(writer, "again", key=key, generation=generation(1)))
        stage(two, key, "on")
        sync(one, two)
        sync(two, one)
        sync(one, two)
        assert state(one) == state(two)
        row = clip(one, key)
        assert row is not None
        assert (row["name"], row["status"]) == ("again", "on")


def test_a_retry_within_a_life_keeps_the_row() -> None:
    with Space().replica() as replica:
        key = replica.write(make_clip)
        stage(replica, key, "done", rank=2)
        stage(replica, key, "on", generation=generation(0, 1))
        row = clip(replica, key)
        assert row is not None
        assert (row["name"], row["stage"]) == ("clip", "on")


def test_a_row_without_its_creating_register_is_no_row() -> None:
    with Space().replica() as replica:
        stage(replica, "k", "on")
        assert clip(replica, "k") is None
        assert replica.counts("clips") == {}
        replica.write(lambda writer: make_clip(writer, key="k"))
        assert replica.counts("clips") == {"on": 1}


def test_registers_of_two_lives_that_come_before_their_row_show_only_in_their_own() -> None:
    space = Space()
    with space.replica() as author, space.replica("other") as replica:
        key = author.write(make_clip)
        first = [write for write in everything(author) if write.key == key]
        author.write(lambda writer: make_clip(writer, "again", key=key, generation=generation(1)))
        author.write(lambda writer: writer.put("clips", key, "title", {"title": "second"}))
        second = {write.register: write for write in everything(author)}
        replica.merge([*introductions(author), second["title"]])
        replica.merge(first)
        replica.verify_pending()
        row = clip(replica, key)
        assert row is not None
        assert (row["name"], row["title"]) == ("clip", None)
        passed_on = [(write.register, write.body is not None) for write in everything(replica) if write.key == key]
        assert sorted(passed_on) == [("made", True), ("title", True)]
        replica.merge([second["made"]])
        row = clip(replica, key)
        assert row is not None
        assert (row["name"], row["title"]) == ("again", "second")
        assert [write.values for write in everything(replica) if write.register == "title"] == [("second",)]
