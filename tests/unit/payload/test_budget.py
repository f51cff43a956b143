from __future__ import annotations

import asyncio

import pytest

from p2pqueue.payload.budget import Budget


async def test_takers_wait_their_turn_and_never_hold_more_than_there_is() -> None:
    budget, held, most = Budget(10), 0, 0

    async def take(size: int) -> None:
        nonlocal held, most
        async with budget.of(size):
            held += size
            most = max(most, held)
            await asyncio.sleep(0.001)
            held -= size

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for size in [3, 8, 1, 10, 4, 4, 2, 9, 1] * 5:
            group.create_task(take(size))
    assert 8 <= most <= 10


async def test_one_that_asks_for_more_than_all_gets_all() -> None:
    budget = Budget(10)
    async with asyncio.timeout(1), budget.of(50):
        pass
    async with asyncio.timeout(1), budget.of(10):
        pass


async def test_a_cancelled_taker_gives_its_place_up() -> None:
    budget = Budget(10)

    async def hold() -> None:
        async with budget.of(10):
            await asyncio.Event().wait()

    async with budget.of(4):
        large = asyncio.ensure_future(hold())
        await asyncio.sleep(0)
        small = asyncio.ensure_future(hold())
        await asyncio.sleep(0)
        for waiting in (large, small):
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with asyncio.timeout(1), budget.of(6):
            pass
    async with asyncio.timeout(1), budget.of(10):
        pass
