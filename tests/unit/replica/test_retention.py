"""A row that ended goes after retention, and does not come back."""

from __future__ import annotations

from typing import Any

import pytest

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.retention import prune, prune_all
from p2pqueue.replica.stamp import generation
from p2pqueue.replica.tables import Column, Register, Table
from tests.unit.replica.kit import DAY, Clock, Space, clip, everything, make_clip, sync, write_of

WEEK = 7 * DAY


def done(replica: Replica, key: str) -> None:
    replica.write(lambda writer: writer.put("clips", key, "stage", {"stage": "done"}, rank=2))


def pruned(replica: Replica) -> int:
    return replica.write(lambda writer: prune(writer, "clips", WEEK, writer.now))


def kept(replica: Replica, key: str) -> bool:
    return (
        clip(replica, key) is not None
        or replica.read(lambda c: c.execute("SELECT 1 FROM changes WHERE key = ?", (key,)).fetchone()) is not None
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_ended_long_ago_goes_with_all_that_was_kept_of_it(clock: Clock) -> None:
    with Space().replica(clock=clock) as replica:
        old, new, live = (replica.write(make_clip) for _ in range(3))
        done(replica, old)
        clock.now += WEEK
        done(replica, new)
        clock.now += 1
        assert pruned(replica) == 1
        assert [kept(replica, key) for key in (old, new, live)] == [False, True, True]
        assert replica.counts("clips") == {"done": 1, "new": 1}


def test_a_live_row_is_never_dropped_for_age(clock: Clock) -> None:
    with Space().replica(clock=clock) as replica:
        key = replica.write(make_clip)
        clock.now += 1000 * DAY
        assert pruned(replica) == 0
        assert clip(replica, key) is not None


def test_a_deleted_row_goes_too(clock: Clock) -> None:
    with Space().replica(clock=clock) as replica:
        key = replica.write(make_clip)
        replica.write(lambda writer: writer.delete("clips", key))
        assert pruned(replica) == 0
        clock.now += WEEK + 1
        assert pruned(replica) == 1
        assert not kept(replica, key)


def test_a_row_whose_creating_write_is_not_counted_yet_stays(clock: Clock) -> None:
    space = Space()
    with space.replica(clock=clock) as author, space.replica("other", clock=clock) as replica:
        key = author.write(make_clip)
        done(author, key)
        replica.merge(everything(author))
        replica.verify_pending()
        clock.now += WEEK + 1
        assert pruned(replica) == 0
        replica.move_heads(author.heads())
        assert pruned(replica) == 1


def test_an_end_in_the_future_counts_from_when_it_was_seen(clock: Clock) -> None:
    space = Space()
    ahead = Clock(clock.now + 1000 * DAY)
    with space.replica("ahead", clock=ahead) as fast, space.replica(clock=clock) as replica:
        key = fast.write(make_clip)
        done(fast, key)
        sync(fast, replica)
        assert pruned(replica) == 0
        clock.now += WEEK
        assert pruned(replica) == 0
        clock.now += 2
        assert pruned(replica) == 1


def test_a_dropped_row_does_not_come_back_from_a_device_that_was_away(clock: Clock) -> None:
    space = Space()
    with space.replica("a", clock=clock) as here, space.replica("c", clock=clock) as away:
        key = here.write(make_clip)
        sync(here, away)
        here.write(lambda writer: writer.delete("clips", key))
        clock.now += WEEK + 1
        assert pruned(here) == 1
        away.write(lambda writer: writer.put("clips", key, "title", {"title": "still at it"}))
        sync(away, here)
        assert clip(here, key) is None
        clock.now += WEEK + 1
        pruned(here)
        assert not kept(here, key)


def test_rows_that_ended_elsewhere_are_named_and_dropped(clock: Clock) -> None:
    space = Space()
    with space.replica("a", clock=clock) as here, space.replica("c", clock=clock) as away:
        key = here.write(make_clip)
        sync(here, away)
        here.write(lambda writer: writer.delete("clips", key))
        clock.now += WEEK + 1
        pruned(here)
        rows, resume = away.live_rows()
        assert ([row.key for row in rows], resume) == ([key], None)
        assert here.ended_of(rows) == rows
        assert away.drop_ended(rows) == 1
        assert clip(away, key) is None
        assert away.counts("clips") == {}


def test_a_row_that_was_made_again_is_not_dropped_for_its_earlier_life(clock: Clock) -> None:
    space = Space()
    with space.replica("a", clock=clock) as replica:
        key = replica.write(make_clip)
        clock.now += 2 * DAY
        rows, _ = replica.live_rows()
        replica.write(lambda writer: make_clip(writer, "again", key=key, generation=generation(1)))
        assert replica.drop_ended(rows) == 0
        assert clip(replica, key) is not None


def test_nothing_is_said_of_rows_that_are_here_or_not_counted(clock: Clock) -> None:
    space = Space()
    with space.replica("a", clock=clock) as author, space.replica("b", clock=clock) as other:
        key = author.write(make_clip)
        clock.now += 2 * DAY
        rows, _ = author.live_rows()
        assert other.ended_of(rows) == []
        sync(author, other)
        assert other.ended_of(rows) == []
        assert clip(other, key) is not None


def test_live_rows_come_in_pages(clock: Clock) -> None:
    with Space().replica(clock=clock) as replica:
        keys = [replica.write(make_clip) for _ in range(5)]
        replica.write(lambda writer: writer.put("notes", "n", "note", {"text": "x"}))
        young_after = clock.now + 2 * DAY
        clock.now = young_after
        replica.write(make_clip)
        found: list[str] = []
        after: tuple[str, str] | None = None
        while True:
            rows, after = replica.live_rows(after=after, limit=2)
            found += [row.key for row in rows]
            if after is None:
                break
        assert found == [*keys, "n"]


@pytest.mark.parametrize("key", ["derived-from-a-name", "3f2b8c1a-0000-8000-8000-000000000000"])
def test_a_key_without_a_time_leaves_its_life_behind(clock: Clock, key: str) -> None:
    with Space().replica(clock=clock) as replica:
        replica.write(lambda writer: make_clip(writer, key=key, generation=generation(2)))
        done_in = generation(2)
        replica.write(lambda writer: writer.put("clips", key, "stage", {"stage": "done"}, rank=2, generation=done_in))
        clock.now += WEEK + 1
        assert pruned(replica) == 1
        late = write_of(b"o" * 16, 1, "title", ("of an old life",), table="clips", key=key, generation=generation(1))
        assert replica.merge([late]).applied == 0
        assert replica.write(lambda writer: writer.life("clips", key)) == 3
        replica.write(lambda writer: make_clip(writer, "again", key=key))
        row = clip(replica, key)
        assert row is not None
        assert row["name"] == "again"


def test_a_key_that_carries_its_time_leaves_nothing(clock: Clock) -> None:
    with Space().replica(clock=clock) as replica:
        key = replica.write(make_clip)
        done(replica, key)
        clock.now += WEEK + 1
        pruned(replica)
        assert replica.read(lambda c: c.execute("SELECT count(*) FROM tombstones").fetchone()) == (0,)


CHAIN = Table(
    "chain",
    "id",
    (
        Register("step", (Column("after", "TEXT"),), creating=True),
        Register("state", (Column("state", "TEXT"),)),
        Register("life", (Column("deleted", "INTEGER"),)),
    ),
    ended="state = 'done'",
    ended_at="updated_at",
)


def test_a_row_stays_as_long_as_a_live_one_waits_for_it(clock: Clock) -> None:
    def put(replica: Replica, key: str, register: str, values: dict[str, Any]) -> None:
        replica.write(lambda writer: writer.put("chain", key, register, values))

    with Space().replica(tables=(CHAIN,), clock=clock) as replica:
        put(replica, "first", "step", {"after": None})
        put(replica, "first", "state", {"state": "done"})
        put(replica, "second", "step", {"after": '["first"]'})
        clock.now += WEEK + 1
        assert replica.write(lambda writer: prune(writer, "chain", WEEK, writer.now)) == 0
        put(replica, "second", "state", {"state": "done"})
        assert replica.write(lambda writer: prune(writer, "chain", WEEK, writer.now)) == 1


def test_pruning_everything_leaves_who_is_who(clock: Clock) -> None:
    with Space().replica(clock=clock) as replica:
        for _ in range(3):
            done(replica, replica.write(make_clip))
        clock.now += 1000 * DAY
        assert sum(prune_all(replica, WEEK)) == 3
        assert {write.table for write in everything(replica)} == {"devices", "authors"}


def test_an_end_by_a_clock_that_is_far_behind_stays_for_its_time(clock: Clock) -> None:
    stopped = Table(
        "stops",
        "id",
        (Register("made", (Column("ended_ms", "INTEGER"),), creating=True), Register("life", (Column("deleted", "INTEGER"),))),
        ended="ended_ms IS NOT NULL",
        ended_at="ended_ms",
    )
    with Space().replica(tables=(stopped,), clock=clock) as replica:
        replica.write(lambda writer: writer.put("stops", writer.new_id(), "made", {"ended_ms": 5}))  # a clock that says 1970
        assert sum(prune_all(replica, WEEK)) == 0
        clock.now += WEEK + 1
        assert sum(prune_all(replica, WEEK)) == 1


def test_more_rows_than_one_transaction_drops_go_in_several(clock: Clock) -> None:
    with Space().replica(clock=clock) as replica:
        keys = replica.write(lambda writer: [make_clip(writer) for _ in range(1_200)])
        replica.write(lambda writer: [writer.put("clips", key, "stage", {"stage": "done"}) for key in keys])
        clock.now += WEEK + 1
        assert sum(prune_all(replica, WEEK)) == 1_200
        assert replica.counts("clips") == {}


def test_words_in_after_that_are_no_json_hold_nothing_up(clock: Clock) -> None:
    with Space().replica(tables=(CHAIN,), clock=clock) as replica:
        replica.write(lambda writer: writer.put("chain", "odd", "step", {"after": "[not json"}))
        replica.write(lambda writer: writer.put("chain", "first", "step", {"after": None}))
        replica.write(lambda writer: writer.put("chain", "first", "state", {"state": "done"}))
        clock.now += WEEK + 1
        assert sum(prune_all(replica, WEEK)) == 1
