"""Handlers that end at once share a task; those that wait, or leave something behind, have one of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from p2pqueue.workers.running.relay import MOST, STRETCH, Relay

WHO: ContextVar[str] = ContextVar("who", default="nobody")
Handler = Callable[[], Awaitable[None]]


async def relay(*handlers: Handler) -> list[asyncio.Task[None] | None]:
    """Runs handlers that were started in one turn of the loop; gives the task of each, in the order of their beginnings."""
    tasks: list[asyncio.Task[None] | None] = []

    async def run(handler: Handler) -> None:
        tasks.append(asyncio.current_task())
        await handler()
        held.pop()

    held = list(handlers)
    async with asyncio.TaskGroup() as group:
        relay = Relay(group, run, held=held, slots=100, give_back=_never)
        for handler in handlers:
            relay.start(handler)
    return tasks


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come about")


def _never(given: object) -> None:
    raise AssertionError(f"{given} had a slot")


async def ends_at_once() -> None:
    pass


def test_handlers_that_end_at_once_share_a_task() -> None:
    assert len(set(asyncio.run(relay(*[ends_at_once] * 100)))) == 1


def test_a_handler_that_waits_holds_up_no_other() -> None:
    async def play() -> list[asyncio.Task[None] | None]:
        go_on = asyncio.Event()

        async def waits() -> None:
            async with asyncio.timeout(10):
                await go_on.wait()

        async def lets_go_on() -> None:
            go_on.set()

        return await relay(ends_at_once, waits, waits, ends_at_once, lets_go_on)

    tasks = asyncio.run(play())
    assert len(tasks) == 5
    assert len({*tasks[1:3]}) == 2


def test_what_is_started_while_others_wait_runs_at_once() -> None:
    async def play() -> list[str]:
        order: list[str] = []
        go_on = asyncio.Event()

        async def run(name: str) -> None:
            if name == "first":
                async with asyncio.timeout(10):
                    await go_on.wait()
            order.append(name)
            if name == "third":
                go_on.set()

        async with asyncio.TaskGroup() as group:
            relay = Relay(group, run, held=(), slots=8, give_back=_never)
            relay.start("first")
            await asyncio.sleep(0.01)
            relay.start("second")
            await asyncio.sleep(0.01)
            relay.start("third")
        return order

    assert asyncio.run(play()) == ["second", "third", "first"]


def test_no_handler_sees_the_context_variables_of_another() -> None:
    seen: list[str] = []

    async def leaves_a_trace() -> None:
        seen.append(WHO.get())
        WHO.set("me")

    asyncio.run(relay(*[leaves_a_trace] * 3))
    assert seen == ["nobody"] * 3


def test_a_variable_that_is_set_back_leaves_no_trace() -> None:
    async def tidy() -> None:
        before = WHO.set("me")
        WHO.reset(before)

    assert len(set(asyncio.run(relay(*[tidy] * 10)))) == 1


def test_a_handler_that_asks_for_its_own_end_ends_no_other() -> None:
    reached: list[bool] = []

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def waits() -> None:
        await asyncio.sleep(0)
        reached.append(True)

    asyncio.run(relay(cancels_itself, waits, waits))
    assert reached == [True, True]


def test_timeouts_work_in_a_shared_task() -> None:
    ended: list[str] = []

    async def times_out() -> None:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            ended.append("late")

    asyncio.run(relay(ends_at_once, times_out, times_out))
    assert ended == ["late", "late"]


def test_nothing_is_started_once_it_is_closed() -> None:
    async def play() -> list[str]:
        begun: list[str] = []

        async def run(name: str) -> None:
            begun.append(name)

        async with asyncio.TaskGroup() as group:
            relay = Relay(group, run, held=(), slots=8, give_back=_never)
            relay.start("one")
            relay.close()
        return begun

    assert asyncio.run(play()) == []


async def test_where_nothing_waits_more_is_claimed_at_once_than_there_are_slots_but_not_for_long() -> None:
    held: list[float] = []

    async def run(seconds: float) -> None:
        held.pop()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass

    async with asyncio.TaskGroup() as group:
        relay = Relay(group, run, held=held, slots=4, give_back=_never)

        async def play(number: int, seconds: float) -> None:
            for _ in range(number):
                held.append(seconds)
                relay.start(seconds)
            await _until(lambda: not held)
            await asyncio.sleep(0.001)

        for _ in range(12):
            await play(relay.reach, 0.0)
        assert 4 < relay.reach <= MOST
        await play(4, 2 * STRETCH)
        assert relay.reach == 4


async def test_more_is_claimed_ahead_also_where_what_ends_is_written_in_small_parts() -> None:
    held: list[int] = []

    async def run(_: int) -> None:
        held.pop()

    async with asyncio.TaskGroup() as group:
        relay = Relay(group, run, held=held, slots=64, give_back=_never)
        for part in [14, 50] * 8:
            for number in range(part):
                held.append(number)
                relay.start(number)
            await _until(lambda: not held)
            await asyncio.sleep(0.001)
        assert relay.reach > 64


async def test_what_was_claimed_ahead_is_given_back_when_a_handler_waits() -> None:
    held = list(range(10))
    begun: list[int] = []
    given_back: list[int] = []
    go_on = asyncio.Event()

    async def run(number: int) -> None:
        begun.append(number)
        async with asyncio.timeout(10):
            await go_on.wait()
        held.remove(number)

    async with asyncio.TaskGroup() as group:
        relay = Relay(group, run, held=held, slots=4, give_back=given_back.append)
        for number in held:
            relay.start(number)
        await _until(lambda: len(begun) + len(given_back) == 10)
        assert (begun, given_back) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
        go_on.set()


async def test_the_loop_has_its_turn_between_handlers() -> None:
    held = list(range(20))
    turns: list[int] = []

    async def run(number: int) -> None:
        held.remove(number)
        until = time.monotonic() + STRETCH
        while time.monotonic() < until:
            pass

    async with asyncio.TaskGroup() as group:
        relay = Relay(group, run, held=held, slots=20, give_back=_never)
        for number in tuple(held):
            relay.start(number)
        while held:
            turns.append(len(held))
            await asyncio.sleep(0)
    assert len(turns) >= 20
