"""Rows that are new here get in by a way of their own, and come to stand as they would by the long one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.write import Write
from tests.unit.replica.kit import CLIPS, Space, everything, make_clip, state, write_of

A = b"a" * 16


def _written(space: Space) -> list[Write]:
    """Clips of all kinds: with a cover or without, staged, titled, deleted, made again."""

    def make(number: int) -> None:
        key = sender.write(make_clip)
        if number % 2:
            sender.write(lambda writer: writer.put("clips", key, "stage", {"stage": "done", "note": None if number % 3 else "n"}))
        if number % 5 == 0:
            sender.write(lambda writer: writer.put("clips", key, "title", {"title": None}))
        if number % 7 == 0:
            sender.write(lambda writer: writer.delete("clips", key))

    with space.replica("sender") as sender:
        for number in range(100):
            make(number)
        return everything(sender)


def _odd_ones(key: str) -> list[Write]:
    """What goes the long way: a register twice, an unknown one, too few values, a later life, a body that says something else."""
    return [
        write_of(A, 1, "title", ("one",), key=key + "twice", table="clips"),
        write_of(A, 2, "title", ("two",), key=key + "twice", table="clips", time=2_000_000_000_000),
        write_of(A, 3, "stage", ("s", None), key=key + "unknown", table="clips"),
        write_of(A, 4, "colour", ("red", 1), key=key + "unknown", table="clips"),
        write_of(A, 5, "stage", ("s",), key=key + "short", table="clips"),
        write_of(A, 6, "title", ("t",), key=key + "short", table="clips"),
        Write("clips", key + "later", "title", Stamp(1 << 16, 0, 0, 7, A), 7, ("t",)),
        Write("clips", key + "false", "made", Stamp(0, 0, 0, -8, A), 8, ("name", 1.0), b"\xc0", b"s" * 64),
        Write("clips", key + "false", "title", Stamp(0, 0, 0, 9, A), 9, ("t",)),
    ]


def _clips(replica: Replica) -> tuple[object, ...]:
    found = state(replica)
    return found["clips"], [change for change in found["changes"] if change[0] == "clips"], replica.counts("clips")


@pytest.mark.parametrize("checked", [False, True], ids=["unchecked", "checked"])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_of_new_rows_leaves_what_its_writes_leave_one_by_one(seed: int, checked: bool) -> None:
    space = Space()
    sound = [write._replace(checked=checked and write.signature is not None) for write in _written(space)]
    writes: Sequence[Write] = [*sound, *_odd_ones("k")]
    with space.replica("together") as together, space.replica("alone") as alone:
        merged = together.merge(random.Random(seed).sample(writes, len(writes)))
        one_by_one = [alone.merge([write]) for write in writes]
        assert _clips(together) == _clips(alone)
        assert len(merged.refused) == sum(len(each.refused) for each in one_by_one) == 1
        assert len(merged.set_aside) == sum(len(each.set_aside) for each in one_by_one) == 1


def test_a_row_that_is_here_in_part_takes_the_rest() -> None:
    space = Space()
    writes = [write for write in _written(space) if write.table == CLIPS.name]
    with space.replica("receiver") as receiver, space.replica("whole") as whole:
        receiver.merge(writes[::3])
        receiver.merge(writes)
        whole.merge(writes)
        assert _clips(receiver) == _clips(whole)
