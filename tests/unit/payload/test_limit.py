"""A rate holds on the average, whatever the sizes taken, and may be changed and lifted at any time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.payload.limit import BURST, Limit, Limits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(limit: Limit, clock: Clock, sizes: list[int]) -> float:
    """Takes one after the other, and tells how long it took."""
    begun = clock.now
    for size in sizes:
        while wait := limit.try_take(size):
            clock.now += wait
    return clock.now - begun


@given(st.integers(1, 10**9), st.lists(st.integers(1, 10**8), min_size=1, max_size=30))
def test_the_rate_holds_on_the_average(rate: int, sizes: list[int]) -> None:
    clock = Clock()
    limit = Limit(rate, clock=clock)
    sizes = [min(size, 20 * rate) for size in sizes]
    seconds = taken(limit, clock, sizes)
    before_last = sum(sizes[:-1])
    assert seconds >= before_last / rate - BURST - 0.01
    assert seconds <= before_last / rate + BURST + 0.01 * len(sizes)


def test_without_a_rate_nothing_waits() -> None:
    limit = Limit()
    assert not any(limit.try_take(10**12) for _ in range(100))
    assert limit.rate is None


def test_a_change_holds_for_those_who_wait_already() -> None:
    clock = Clock()
    limit = Limit(1000, clock=clock)
    assert limit.try_take(100_000) == 0.0
    assert limit.try_take(1) > 0
    limit.set(1_000_000)  # a debt of a hundred seconds stays one
    clock.now += 50
    assert limit.try_take(1) > 0
    limit.set(None)
    assert limit.try_take(1) == 0.0
    limit.set(10)
    assert limit.try_take(1) > 0 or limit.try_take(1000) > 0


def test_what_was_taken_and_not_used_is_given_back() -> None:
    clock = Clock()
    limit = Limit(1000, clock=clock)
    assert limit.try_take(5000) == 0.0
    limit.give_back(5000)
    assert limit.try_take(100) == 0.0


@pytest.mark.parametrize("rate", [0, -1])
def test_no_rate_stands_for_standing_still(rate: int) -> None:
    with pytest.raises(ValueError, match="a rate of"):
        Limit().set(rate)


async def test_tasks_and_threads_share_one_rate() -> None:
    limit = Limit(1_000_000)
    begun = time.monotonic()

    def thread() -> None:
        for _ in range(5):
            while wait := limit.try_take(50_000):
                time.sleep(wait)

    threads = [threading.Thread(target=thread) for _ in range(2)]
    for each in threads:
        each.start()
    for _ in range(5):
        await limit.take(50_000)
    for each in threads:
        await asyncio.to_thread(each.join)
    assert time.monotonic() - begun >= 0.75 - BURST - 0.1


def test_devices_are_paused_one_by_one_or_all_and_metered_ways_are_left_out() -> None:
    limits = Limits()
    assert limits.forbids("a") is None
    assert "metered" in (limits.forbids("a", metered=True) or "")
    limits.metered = True
    assert limits.forbids("a", metered=True) is None
    limits.pause(["a"])
    assert "that device" in (limits.forbids("a") or "")
    assert limits.forbids("b") is None
    limits.pause(everything=True)
    assert "all transfers" in (limits.forbids("b") or "")
    limits.resume(["a"])
    assert limits.forbids("a") is not None
    limits.resume(everything=True)
    assert limits.forbids("a") is None
