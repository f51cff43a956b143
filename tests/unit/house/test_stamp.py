"""Of two writes of one register the one with the greater stamp wins."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.clock import LATEST_STAMP
from p2pqueue.replica.stamp import Stamp, generation, is_wellformed

A, B = b"a" * 16, b"b" * 16
stamps = st.builds(
    Stamp,
    generation=st.integers(0, 2**48 - 1),
    rank=st.integers(0, 3),
    claim=st.integers(0, 2**48 - 1),
    hlc=st.integers(-LATEST_STAMP, LATEST_STAMP).filter(bool),
    author=st.binary(min_size=16, max_size=16),
)
ORDER = [  # greater, lesser, why
    (Stamp(generation(1), 0, 0, 1, A), Stamp(generation(0, 65_535), 3, 9, 99, B), "a later life outranks everything of an earlier one"),
    (Stamp(generation(0, 1), 0, 0, 1, A), Stamp(generation(0), 3, 9, 99, B), "a retry outranks everything before it"),
    (Stamp(0, 3, 0, -99, A), Stamp(0, 2, 0, -1, B), "a cancel outranks a result"),
    (Stamp(0, 2, 0, -99, A), Stamp(0, 1, 0, -1, B), "a success outranks a failure"),
    (Stamp(0, 0, 2, 1, A), Stamp(0, 0, 1, 99, B), "a later claim outranks an earlier one, whatever the clocks say"),
    (Stamp(0, 2, 0, -1, A), Stamp(0, 2, 0, -2, B), "of two results the earlier one stands"),
    (Stamp(0, 0, 0, 2, A), Stamp(0, 0, 0, 1, B), "else the later write wins"),
    (Stamp(0, 0, 0, 1, B), Stamp(0, 0, 0, 1, A), "ties end at the author"),
]


@pytest.mark.parametrize(("greater", "lesser", "why"), ORDER, ids=[why for _, _, why in ORDER])
def test_stamps_compare_in_merge_order(greater: Stamp, lesser: Stamp, why: str) -> None:
    assert greater > lesser


@given(stamps, stamps)
def test_sqlite_compares_stamps_as_python_does(one: Stamp, other: Stamp) -> None:
    with sqlite3.connect(":memory:") as connection:
        (greater,) = connection.execute("SELECT (?, ?, ?, ?, ?) > (?, ?, ?, ?, ?)", (*one, *other)).fetchone()
    connection.close()
    assert bool(greater) == (one > other)


@given(st.integers(0, 2**31), st.integers(0, 65_535))
def test_a_generation_carries_its_life(life: int, retry: int) -> None:
    assert Stamp(generation(life, retry), 0, 0, 1, A).life == life


@given(stamps)
def test_stamps_within_the_ranges_are_wellformed(stamp: Stamp) -> None:
    assert is_wellformed(stamp)


@pytest.mark.parametrize(
    "stamp",
    [
        Stamp(-1, 0, 0, 1, A),
        Stamp(2**48, 0, 0, 1, A),
        Stamp(0, -1, 0, 1, A),
        Stamp(0, 4, 0, 1, A),
        Stamp(0, 0, -1, 1, A),
        Stamp(0, 0, 2**48, 1, A),
        Stamp(0, 0, 0, 0, A),
        Stamp(0, 0, 0, LATEST_STAMP + 1, A),
        Stamp(0, 0, 0, -LATEST_STAMP - 1, A),
        Stamp(0, 0, 0, 1, b"short"),
        Stamp(0, 0, 0, 1, "a" * 16),  # type: ignore[arg-type]
        Stamp(0, 0, 0, 1.5, A),  # type: ignore[arg-type]
        Stamp(True, 0, 0, 1, A),
        Stamp(0, None, 0, 1, A),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_stamps_of_a_peer_beyond_the_ranges_or_of_other_types_are_malformed(stamp: Stamp) -> None:
    assert not is_wellformed(stamp)
