"""Do the counters say what the rows say, wherever their parts stand?"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from p2pqueue.replica.counting import BLOCK
from p2pqueue.replica.replica import Put, Replica
from p2pqueue.replica.tables import Column, Register, Table
from p2pqueue.replica.writer import Writer
from tests.unit.replica.kit import DAY, Clock, Space, clip, open_replica, state, sync


def _recount(replica: Replica) -> dict[str, int]:
    query = "SELECT status, count(*) FROM clips WHERE live = 1 GROUP BY status"
    return replica.read(lambda c: dict(c.execute(query).fetchall()))


def _make(writer: Writer, number: int = 1) -> list[str]:
    """As a bulk does: rows that are known to be new."""
    keys = [writer.new_id() for _ in range(number)]
    writer.put_known("clips", "made", [Put(key, "made", ("clip", 2.0), 0) for key in keys], new=True)
    return keys


def test_counters_follow_a_row_a_commit_through_several_blocks() -> None:
    replica = Space().replica()
    for number in range(1, 2 * BLOCK + 10):
        replica.write(_make)
        assert replica.counts("clips") == {"new": number}


@pytest.mark.parametrize("number", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_counters_follow_commits_of_many_rows(number: int) -> None:
    replica = Space().replica()
    for times in (1, 2, 3):
        replica.write(lambda writer: _make(writer, number))
        assert replica.counts("clips") == {"new": times * number} == _recount(replica)


def test_a_function_that_fails_counts_nothing() -> None:
    replica = Space().replica()

    def fail(writer: Writer) -> None:
        _make(writer)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replica.write(fail)
    replica.write_many([_make, fail, _make])
    assert replica.counts("clips") == {"new": 2} == _recount(replica)


def test_what_changes_in_the_same_transaction_is_counted_too() -> None:
    replica = Space().replica()

    def make_and_move(writer: Writer) -> None:
        first, second = _make(writer, 2)
        writer.put("clips", first, "stage", {"stage": "done"})
        writer.delete("clips", second)

    replica.write(make_and_move)
    assert replica.counts("clips") == {"done": 1} == _recount(replica)


def test_a_row_that_goes_for_good_is_counted_out_before_its_commit_was_folded() -> None:
    clock = Clock()
    replica = Space().replica(clock=clock)
    (key,) = replica.write(_make)
    replica.write(lambda writer: writer.put("clips", key, "stage", {"stage": "done"}))
    clock.now += 9 * DAY
    replica.write(_make)
    from p2pqueue.replica.retention import prune_all

    assert sum(prune_all(replica, 7 * DAY)) == 1
    assert clip(replica, key) is None
    assert replica.counts("clips") == {"new": 1} == _recount(replica)


def test_a_fork_keeps_the_counters() -> None:
    replica = Space().replica()
    for _ in range(3):
        replica.write(_make)
    replica.fork("a test")
    replica.write(_make)
    assert replica.counts("clips") == {"new": 4} == _recount(replica)


def test_a_table_that_is_declared_anew_is_counted_anew(tmp_path: Path) -> None:
    from tests.unit.replica.kit import CLIPS, NOTES

    space = Space()
    device = space.device("here")
    with open_replica(device, path=tmp_path / "replica.sqlite") as replica:
        replica.write(_make)
    wider = Table(
        CLIPS.name, CLIPS.key, (*CLIPS.registers, Register("extra", (Column("extra", "TEXT"),))), CLIPS.derived, counted=True,
        ended=CLIPS.ended, ended_at=CLIPS.ended_at,
    )  # fmt: skip
    with open_replica(device, path=tmp_path / "replica.sqlite", tables=(wider, NOTES)) as replica:
        assert replica.counts("clips") == {"new": 1}
        replica.write(_make)
        assert replica.counts("clips") == {"new": 2} == _recount(replica)


def test_two_programs_that_take_turns_give_no_number_twice_and_count_every_row(tmp_path: Path) -> None:
    device = Space().device("here")
    with open_replica(device, path=tmp_path / "r.sqlite") as one, open_replica(device, path=tmp_path / "r.sqlite") as other:
        numbers = []
        for turn in range(40):
            replica = other if turn % 3 else one
            replica.write(_make)
            numbers.append(replica.numbers[2])
        assert numbers == list(range(numbers[0], numbers[0] + 40))
        assert one.counts("clips") == other.counts("clips") == {"new": 40}
        assert one.hlc == other.hlc


def test_rows_that_leave_anything_empty_arrive_as_they_are_and_are_counted() -> None:
    """There are more ways to leave columns empty than statements are kept."""
    space = Space()
    here, there = space.replica("here"), space.replica("there")
    pairs = list(itertools.product((None, "done"), (None, "note")))
    stages, covers, titles = [None, *pairs], [None, *itertools.product((None, b"cover"), (None, "1:a"))], [None, (None,), ("title",)]

    def put(writer: Writer) -> None:
        for made, title, stage, cover in itertools.product(itertools.product((None, "name"), (None, 1.0)), titles, stages, covers):
            key = writer.new_id()
            puts = {"made": made, "title": title, "stage": stage, "cover": cover}
            writer.put_many("clips", [Put(key, register, values) for register, values in puts.items() if values is not None])

    here.write(put)
    sync(here, there)
    ours, theirs = state(here), state(there)
    assert len(ours["clips"]) == 300
    assert ours["clips"] == theirs["clips"]
    assert ours["counts"] == theirs["counts"]
    assert here.counts("clips") == _recount(here)
