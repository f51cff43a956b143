"""What waits to be sent, and in which order it goes."""

from __future__ import annotations

import asyncio

import pytest

from p2pqueue.errors import MalformedMessage, PeerGone
from p2pqueue.net.framing import Assembler
from p2pqueue.net.outbox import BUFFER_LIMIT, NOTES_LIMIT, URGENT_LIMIT, Outbox
from p2pqueue.wire import MESSAGE_LIMIT
from tests.unit.net.kit import until


async def take_all(outbox: Outbox) -> list[tuple[str | None, int]]:
    assembler, got = Assembler(), []
    while outbox.waiting:
        if (taken := assembler.take(await outbox.next())) is not None:
            got.append((taken[0], len(taken[1])))
    return got


async def test_signals_and_notes_go_before_the_rest_of_a_long_answer() -> None:
    outbox, assembler = Outbox(), Assembler()
    assert outbox.offer("rows", bytes(200_000))
    assert assembler.take(await outbox.next()) is None
    assert outbox.offer("signal", b"now")
    assert assembler.take(await outbox.next()) == ("signal", b"now")


async def test_what_waits_is_bounded_and_signals_have_room_of_their_own() -> None:
    outbox = Outbox()
    while outbox.offer("rows", bytes(1000)):
        assert outbox.waiting <= BUFFER_LIMIT + 300
    assert not outbox.offer("shards", bytes(1000))
    assert outbox.offer("signal", b"now")
    while outbox.offer("signal", bytes(1000)):
        pass
    assert outbox.waiting <= BUFFER_LIMIT + URGENT_LIMIT + 600


async def test_the_answers_to_a_peer_that_asks_without_end_are_bounded_too() -> None:
    outbox = Outbox()
    while outbox.offer("net", bytes(100)):
        pass
    assert outbox.waiting <= NOTES_LIMIT + 200


async def test_the_largest_message_fits_where_nothing_waits_and_a_larger_one_never() -> None:
    outbox = Outbox()
    assert outbox.offer("rows", bytes(MESSAGE_LIMIT))
    assert await take_all(outbox) == [("rows", MESSAGE_LIMIT)]
    with pytest.raises(MalformedMessage):
        await outbox.put("rows", bytes(MESSAGE_LIMIT + 1))


async def test_whoever_sends_waits_for_room_and_goes_on_in_order() -> None:
    outbox, sent = Outbox(), []

    async def send() -> None:
        for number in range(10):
            await outbox.put("rows", bytes(100_000 + number))
            sent.append(number)

    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        await until(lambda: len(sent) == 2)
        got = []
        while len(got) < 10:
            got += await take_all(outbox)
            await asyncio.sleep(0)
    assert got == [("rows", 100_000 + number) for number in range(10)]


async def test_the_end_is_told_to_those_who_wait_and_to_those_who_come() -> None:
    outbox = Outbox()
    await outbox.put("rows", bytes(MESSAGE_LIMIT))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(asyncio.wait([group.create_task(fails(outbox))]))
        await asyncio.sleep(0)
        outbox.close("the link ended")
        await waiting
    await fails(outbox)
    assert not outbox.offer("signal", b"late")


async def fails(outbox: Outbox) -> None:
    with pytest.raises(PeerGone, match="the link ended"):
        await outbox.put("rows", b"x")
