"""Large bytes over a real connection, at the receiver's pace."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from p2pqueue.errors import ArgumentError, ChannelClosed
from p2pqueue.net.webrtc.bulk import BULK_BUFFER, WINDOW, BulkChannel
from p2pqueue.wire import FRAME_LIMIT
from tests.unit.net.connected import connected, fall_silent, nothing_unseen

pytestmark = pytest.mark.usefixtures(nothing_unseen.__name__)


@asynccontextmanager
async def channels(**options: Any) -> AsyncIterator[tuple[BulkChannel, BulkChannel]]:
    async with connected(high_water=BULK_BUFFER) as (one, other):
        ends = BulkChannel(one, **options), BulkChannel(other, **options)
        try:
            yield ends
        finally:
            for end in ends:
                await end.close()


async def test_frames_arrive_whole_and_in_order_while_they_are_granted() -> None:
    frames = [bytes([number]) * size for number, size in enumerate([1, 2, 3] + [FRAME_LIMIT - number for number in range(66)])]
    assert sum(map(len, frames)) > WINDOW
    async with channels() as (one, other):
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(_send_all(one, frames))
            got = [await _take(other) for _ in frames]
        assert sending.done()
        assert _digest(got) == _digest(frames)


async def test_both_directions_work_at_once() -> None:
    frames = [bytes([number]) * FRAME_LIMIT for number in range(20)]
    async with channels() as (one, other):
        async with asyncio.TaskGroup() as group:
            group.create_task(_send_all(one, frames))
            group.create_task(_send_all(other, frames))
            at_one = group.create_task(_take_all(one, len(frames)))
            at_other = group.create_task(_take_all(other, len(frames)))
        assert at_one.result() == at_other.result() == frames


async def test_a_receiver_that_takes_nothing_stops_the_sender_within_the_window() -> None:
    count = WINDOW // FRAME_LIMIT
    async with channels() as (one, other):
        await _send_all(one, [bytes(FRAME_LIMIT)] * count)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(one.send(b"one byte too much"))
            await one._connection.drained(0)
            await asyncio.sleep(0.1)
            assert not sending.done()
            assert one.buffered <= BULK_BUFFER
            await _take_all(other, count)
            assert await _take(other) == b"one byte too much"


async def test_a_slow_receiver_is_waited_for_longer_than_it_takes_to_notice_a_stall() -> None:
    count = WINDOW // FRAME_LIMIT
    async with channels(stall_after=30) as (one, other):
        await _send_all(one, [bytes(FRAME_LIMIT)] * count)
        account = one._accounts.outgoing
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(one.send(b"the last one"))
            for _ in range(2000):
                if account.arrived == account.sent:
                    break
                await asyncio.sleep(0.01)
            account.stall_after = 0.1
            await asyncio.sleep(0.5)
            assert not sending.done()
            account.stall_after = 30
            await _take_all(other, count)
            assert await _take(other) == b"the last one"
        assert one.open


async def test_a_dead_peer_is_noticed_by_what_stays_unacknowledged() -> None:
    async with channels(stall_after=0.3) as (one, other):
        fall_silent(other._connection)
        async with asyncio.timeout(10):
            with pytest.raises(ChannelClosed, match="doesn't arrive any more"):
                await _send_all(one, [bytes(FRAME_LIMIT)] * 1000)
        with pytest.raises(ChannelClosed, match="doesn't arrive any more"):
            await one.receive()


async def test_a_channel_at_rest_closes_on_both_sides() -> None:
    async with connected() as (one, other):
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        resting, told = BulkChannel(one, idle=0.2), BulkChannel(other, on_closed=ended.set_result)
        with pytest.raises(ChannelClosed, match="nothing was transferred"):
            await resting.receive()
        async with asyncio.timeout(5):
            assert await ended == "the other device closed the connection"
        assert not told.open


async def test_a_channel_over_a_connection_that_has_ended_says_so_soon() -> None:
    async with connected() as (one, _):
        await one.close()
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        channel = BulkChannel(one, on_closed=ended.set_result)
        assert not ended.done()
        assert not channel.open
        assert await ended == "closed by this device"


async def test_what_has_come_can_be_taken_after_the_other_end_has_closed() -> None:
    async with channels() as (one, other):
        await one.send(b"first")
        await one.send(b"second")
        assert await _take(other) == b"first"
        await one.close()
        assert await _take(other) == b"second"
        with pytest.raises(ChannelClosed):
            await other.receive()


@pytest.mark.parametrize("size", [0, FRAME_LIMIT + 1])
async def test_a_frame_of_another_size_is_refused(size: int) -> None:
    async with channels() as (one, _):
        with pytest.raises(ArgumentError):
            await one.send(bytes(size))


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\x00"],
        [b"\x02unknown"],
        [b"\x00" + bytes(FRAME_LIMIT + 1)],
        [b"\x01short"],
        [b"\x01" + b"\x00" * 7 + b"\x01" + b"\x00" * 8],
        [b"\x00" + bytes(FRAME_LIMIT)] * (WINDOW // FRAME_LIMIT + 1),
    ],
)
async def test_a_peer_that_breaks_the_rules_is_cut_off(frames: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (one, other):
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        BulkChannel(other, on_closed=ended.set_result)
        for frame in frames:
            one.send(frame)
        async with asyncio.timeout(20):
            assert (await ended).startswith("the other device sent ")
    assert "bulk channel is closed" in caplog.text


async def _take(channel: BulkChannel) -> bytes:
    async with asyncio.timeout(20):
        frame = await channel.receive()
    channel.grant(len(frame))
    return frame


async def _take_all(channel: BulkChannel, count: int) -> list[bytes]:
    return [await _take(channel) for _ in range(count)]


async def _send_all(channel: BulkChannel, frames: list[bytes]) -> None:
    for frame in frames:
        await channel.send(frame)


def _digest(frames: list[bytes]) -> str:
    return hashlib.sha256(b"|".join(frames)).hexdigest()
