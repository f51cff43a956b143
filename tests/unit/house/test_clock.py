"""The clock of a replica goes only forward, and follows wall time where it can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue import clock

NOW = 1_790_000_000_000  # some millisecond of 2026
stamps = st.integers(1, clock.LATEST_STAMP)
walls = st.integers(-(2**50), 2**60)


@given(st.integers(0, clock.LATEST_STAMP), walls)
def test_the_next_value_is_above_the_last_whatever_the_wall_clock_says(last: int, wall: int) -> None:
    assert clock.tick(last, wall) > last


@given(st.integers(0, NOW << clock.COUNTER_BITS))
def test_the_next_value_is_at_the_wall_time_where_that_is_later(last: int) -> None:
    assert clock.wall_ms(clock.tick(last, NOW + 1)) == NOW + 1


def test_a_wall_clock_set_back_only_moves_the_counter() -> None:
    last = clock.tick(0, NOW)
    assert clock.tick(last, NOW - 3_600_000) == last + 1


def test_a_full_counter_carries_into_the_milliseconds() -> None:
    last = (NOW << clock.COUNTER_BITS) + 2**clock.COUNTER_BITS - 1
    assert clock.tick(last, NOW) == (NOW + 1) << clock.COUNTER_BITS


@pytest.mark.parametrize("wall", [clock.LATEST_READ_MS + 1, -1, 2**60], ids=["beyond 2100", "before 1970", "absurd"])
def test_a_wall_time_that_cant_be_is_never_read(wall: int) -> None:
    last = NOW << clock.COUNTER_BITS
    assert clock.tick(last, wall) == last + 1


def test_a_clock_that_never_ran_and_can_read_no_time_still_gives_a_wellformed_value() -> None:
    assert clock.is_wellformed(clock.tick(0, -1))


@given(stamps)
def test_a_wellformed_value_can_still_be_followed_for_centuries(hlc: int) -> None:
    assert clock.is_wellformed(hlc)
    assert hlc < 2**63  # fits an integer of SQLite


@pytest.mark.parametrize("hlc", [0, -1, clock.LATEST_STAMP + 1, 2**63])
def test_a_value_out_of_range_is_malformed(hlc: int) -> None:
    assert not clock.is_wellformed(hlc)


@given(stamps)
def test_a_negated_value_carries_the_same_time(hlc: int) -> None:
    assert clock.wall_ms(-hlc) == clock.wall_ms(hlc)
