"""A link's frames go over a direct connection in order and at the receiver's pace, and its end is told with its code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from p2pqueue.errors import MalformedMessage
from p2pqueue.net import codes
from p2pqueue.net.pipe import PipeClosed
from p2pqueue.net.sealing import TAG_SIZE
from p2pqueue.net.webrtc.pipe import RtcPipe
from p2pqueue.wire import FRAME_LIMIT
from tests.unit.net.connected import connected, fall_silent, nothing_unseen  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("nothing_unseen")

LARGEST = FRAME_LIMIT - 32 + 1 + TAG_SIZE  # bytes of the largest frame that a link seals


@asynccontextmanager
async def pipes() -> AsyncIterator[tuple[RtcPipe, RtcPipe]]:
    async with connected() as (one, other):
        yield RtcPipe(one), RtcPipe(other)


async def test_frames_of_any_size_that_a_link_has_come_in_order() -> None:
    frames = [os.urandom(size) for size in (1, 17, 1_000, LARGEST, 2, LARGEST)]
    async with pipes() as (one, other):
        for frame in frames:
            await one.send(frame)
        assert [await other.receive() for _ in frames] == frames
        await other.send(b"back")
        assert await one.receive() == b"back"


async def test_whoever_takes_nothing_makes_the_other_wait_and_gets_all_of_it_later() -> None:
    sent = 0
    async with pipes() as (one, other):

        async def send_all() -> None:
            nonlocal sent
            for _ in range(160):
                await one.send(bytes(LARGEST))
                sent += 1

        async with asyncio.TaskGroup() as group:
            group.create_task(send_all())
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.5)
            assert 0 < sent < 120  # of ten megabytes
            for _ in range(160):
                assert len(await other.receive()) == LARGEST


async def test_an_end_is_told_with_its_code_behind_all_that_was_sent() -> None:
    async with pipes() as (one, other):
        await one.send(b"the last word")
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(one.close(codes.REFUSED))
            assert await other.receive() == b"the last word"
            with pytest.raises(PipeClosed) as raised:
                await other.receive()
            await other.close(codes.BYE)
            await closing
        assert raised.value.code == codes.REFUSED


async def test_a_connection_that_is_cut_ends_without_a_code() -> None:
    async with pipes() as (one, other):
        one.cut()
        with pytest.raises(PipeClosed) as raised:
            await other.receive()
        assert raised.value.code == 0
        with pytest.raises(OSError, match="closed"):
            await other.send(b"into the void")
        await one.close(codes.BYE)
        await other.close(codes.BYE)


async def test_a_close_towards_a_side_that_is_gone_ends_in_time() -> None:
    async with pipes() as (one, other):
        fall_silent(other._connection)
        async with asyncio.timeout(10):
            await one.close(codes.BYE)


@pytest.mark.parametrize("parts", [(b"\x02", b"frame"), (b"\x01", b"\x00"), (b"\x01",)])
async def test_what_is_no_frame_is_malformed(parts: tuple[bytes, ...]) -> None:
    async with pipes() as (one, other):
        await one._channel.send(*parts)
        with pytest.raises(MalformedMessage):
            await other.receive()
