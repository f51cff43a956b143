"""Writes are cut into messages within their limits, none is lost or told twice, and the registers of a row stay together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import write_size
from p2pqueue.replica.wire.columns import AlikeRows, RegisterColumns, WellFormed
from p2pqueue.replica.wire.cutting import cut, row_sizes
from p2pqueue.replica.write import Write

AUTHOR = b"a" * 16

TEXTS = st.none() | st.text(max_size=90) | st.binary(max_size=90) | st.integers(0, 9)
ROWS = st.lists(st.lists(TEXTS, min_size=2, max_size=2), min_size=1, max_size=30)


def single(texts: Sequence[object]) -> list[Write]:
    return [Write("jobs", f"s{n}", "tune", Stamp(0, 0, 0, 5, AUTHOR), n + 1, (text,)) for n, text in enumerate(texts)]


def alike(table: str, rows: Sequence[Sequence[object]], registers: int) -> AlikeRows:
    """Rows of one signed register, and of plain ones."""
    many = len(rows)
    stamps = ([0] * many, [0] * many, [0] * many, [7] * many, [AUTHOR] * many)
    plain = RegisterColumns("state", stamps, list(range(1, many + 1)), tuple(zip(*rows, strict=True)))
    bodies = [repr(row).encode() for row in rows]
    signed = plain._replace(name="spec", bodies=bodies, signatures=[b"s" * 64] * many, checked=[False] * many)
    return AlikeRows(table, [f"k{n}" for n in range(many)], (signed, *[plain._replace(name=f"plain{n}") for n in range(registers)]))


@given(st.lists(TEXTS, max_size=20), ROWS, ROWS, st.integers(1, 3), st.integers(3, 40), st.integers(200, 3_000))
def test_messages_hold_everything_once_within_their_limits(
    texts: list[object], some: list[list[object]], others: list[list[object]], registers: int, most: int, most_bytes: int
) -> None:
    writes = WellFormed(single(texts), [alike("jobs", some, registers), alike("runs", others, 1)])
    messages = list(cut(writes, max_writes=most, max_bytes=most_bytes))
    assert Counter(write for message in messages for write in message) == Counter(writes)
    assert all(size <= most_bytes for message in messages for rows in message.alike for size in row_sizes(rows))
    for message in messages:
        pieces = len(message.single) + sum(len(rows.keys) for rows in message.alike)
        size = sum(map(write_size, message.single)) + sum(sum(row_sizes(rows)) for rows in message.alike)
        assert pieces == 1 or (len(message) <= most and size <= most_bytes)
    for first, second in pairwise(messages):
        assert len(first) + len(second) > most or _size(first) + _size(second) > most_bytes


@given(ROWS)
def test_a_row_is_as_large_as_its_writes(rows: list[list[object]]) -> None:
    found = alike("jobs", rows, 2)
    by_row = [sum(map(write_size, (write for write in found.writes() if write.key == key))) for key in found.keys]
    assert row_sizes(found) == by_row


def _size(message: WellFormed) -> int:
    return sum(map(write_size, message))
