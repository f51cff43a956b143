"""Rows that are new here get in by a way of their own, and come to stand as they would by the long one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain

import pytest

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import MAX_WRITES, RoundId, Writes
from p2pqueue.replica.wire.codec import decode, encode
from p2pqueue.replica.wire.columns import AlikeRows, WellFormed, join
from p2pqueue.replica.write import Write
from tests.unit.replica.kit import CLIPS, Space, everything, make_clip, pages, state, write_of

A = b"a" * 16


def _written(space: Space) -> list[Write]:
    with _sender(space) as sender:
        return everything(sender)


def _sender(space: Space) -> Replica:
    """Who wrote clips of all kinds: with a cover or without, staged, titled, deleted, made again."""

    def make(number: int) -> None:
        key = sender.write(make_clip)
        if number % 2:
            sender.write(lambda writer: writer.put("clips", key, "stage", {"stage": "done", "note": None if number % 3 else "n"}))
        if number % 5 == 0:
            sender.write(lambda writer: writer.put("clips", key, "title", {"title": None}))
        if number % 7 == 0:
            sender.write(lambda writer: writer.delete("clips", key))

    sender = space.replica("sender")
    for number in range(100):
        make(number)
    return sender


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


@pytest.mark.parametrize("known", [0, 7], ids=["into nothing", "some are here"])
@pytest.mark.parametrize("checked", [False, True], ids=["unchecked", "checked"])
def test_rows_that_came_column_by_column_leave_what_their_writes_leave_one_by_one(checked: bool, known: int) -> None:
    space = Space()
    with _sender(space) as sender:
        carried, sound = _over_the_wire(sender, checked=checked), everything(sender)
    odd = _odd_ones("k") if checked else []
    with space.replica("together") as together, space.replica("alone") as alone:
        for replica in (together, alone):
            replica.merge(sound[: known * 10 : known or 1])
        assert sum(len(rows.keys) for rows in carried.alike) > 80
        together.merge(WellFormed([*carried.single, *odd], carried.alike))
        for write in [*carried, *odd]:
            alone.merge([write])
        assert _clips(together) == _clips(alone)
        if not known:
            assert _verified(together) == {int(checked)}


def test_a_row_that_comes_twice_among_the_columns_ends_as_it_does_one_by_one() -> None:
    space = Space()
    with _sender(space) as sender:
        carried = _over_the_wire(sender, checked=True)
    with space.replica("together") as together, space.replica("alone") as alone:
        together.merge(WellFormed([*carried.single, *carried[-9:]], [*carried.alike, *carried.alike]))
        alone.merge(tuple(carried))
        assert _clips(together) == _clips(alone)


def _verified(replica: Replica) -> set[int]:
    query = "SELECT DISTINCT verified FROM changes WHERE tbl = 'clips' AND signature IS NOT NULL AND key NOT LIKE 'k%'"
    return {verified for (verified,) in replica.read(lambda connection: connection.execute(query).fetchall())}


def _over_the_wire(sender: Replica, *, checked: bool) -> WellFormed:
    """What a device gets that has nothing."""
    single: list[Write] = []
    alike: list[AlikeRows] = []
    for message in chain.from_iterable(page.messages for page in pages(sender, MAX_WRITES)):
        packed = encode(Writes(RoundId(b"r" * 8, 1), b"s" * 8, 1, message), deflate=True)
        received = decode(packed, holds=lambda authors, bodies, signatures: [checked] * len(bodies))
        assert isinstance(received, Writes)
        assert isinstance(received.writes, WellFormed)
        single += received.writes.single
        alike += received.writes.alike
    return WellFormed(single, join(alike))


def test_a_row_that_is_here_in_part_takes_the_rest() -> None:
    space = Space()
    writes = [write for write in _written(space) if write.table == CLIPS.name]
    with space.replica("receiver") as receiver, space.replica("whole") as whole:
        receiver.merge(writes[::3])
        receiver.merge(writes)
        whole.merge(writes)
        assert _clips(receiver) == _clips(whole)
