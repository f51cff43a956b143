"""Messages with a topic over a real connection: in order, bounded, and never silently stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from p2pqueue.errors import ArgumentError, ChannelClosed
from p2pqueue.net.webrtc.channel import CONTROL_BUFFER, ControlChannel
from p2pqueue.net.webrtc.connection import RtcConnection
from p2pqueue.wire import FRAME_LIMIT, MESSAGE_LIMIT
from tests.unit.net.connected import connected, fall_silent, nothing_unseen
from tests.unit.net.weather import disturb, eating

pytestmark = pytest.mark.usefixtures(nothing_unseen.__name__)

ROWS, SIGNAL = 0, 1


class End:
    """One end, with what it got and why it ended."""

    def __init__(self, connection: RtcConnection, **options: Any) -> None:
        self.connection = connection
        self.got: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.channel = ControlChannel(
            connection, on_message=lambda topic, message: self.got.put_nowait((topic, message)), on_closed=self.ended.set_result, **options
        )


@asynccontextmanager
async def channels(**options: Any) -> AsyncIterator[tuple[End, End]]:
    async with connected() as (one, other):
        ends = End(one, **options), End(other, **options)
        try:
            yield ends
        finally:
            for end in ends:
                await end.channel.close()


async def test_messages_of_every_size_keep_their_topic_and_their_order() -> None:
    sizes = (0, 1, FRAME_LIMIT - 1, FRAME_LIMIT, FRAME_LIMIT + 1, MESSAGE_LIMIT - 1, MESSAGE_LIMIT)
    async with channels() as (one, other):
        for number, size in enumerate(sizes):
            await one.channel.send(number, b"x" * size)
        for number, size in enumerate(sizes):
            assert await other.got.get() == (number, b"x" * size)


async def test_both_ends_speak_at_once() -> None:
    async with channels() as (one, other):
        for number in range(100):
            assert one.channel.send_soon(SIGNAL, b"to the other %d" % number)
            assert other.channel.send_soon(SIGNAL, b"to the one %d" % number)
        assert [(await one.got.get())[1] for _ in range(100)] == [b"to the one %d" % number for number in range(100)]
        assert [(await other.got.get())[1] for _ in range(100)] == [b"to the other %d" % number for number in range(100)]


async def test_what_does_not_fit_now_is_refused_or_waits() -> None:
    async with channels() as (one, other):
        sent = 0
        while one.channel.send_soon(ROWS, bytes(32 * 1024)):
            sent += 1
            assert sent < 100
        assert one.channel.buffered <= CONTROL_BUFFER
        for _ in range(10):
            await one.channel.send(ROWS, bytes(MESSAGE_LIMIT))
            assert one.channel.buffered <= CONTROL_BUFFER + MESSAGE_LIMIT // FRAME_LIMIT + 1
        assert sum([len((await other.got.get())[1]) for _ in range(sent + 10)]) == sent * 32 * 1024 + 10 * MESSAGE_LIMIT


@pytest.mark.parametrize(("topic", "size"), [(0x7F, 1), (-1, 1), (0x80, 1), (ROWS, MESSAGE_LIMIT + 1)])
async def test_a_message_that_can_not_be_carried_is_refused(topic: int, size: int) -> None:
    async with channels() as (one, _):
        with pytest.raises(ArgumentError):
            one.channel.send_soon(topic, bytes(size))
        with pytest.raises(ArgumentError):
            await one.channel.send(topic, bytes(size))


async def test_a_dead_peer_is_noticed_by_what_stays_unacknowledged() -> None:
    async with channels(stall_after=0.3) as (one, other):
        fall_silent(other.connection)
        assert one.channel.send_soon(SIGNAL, b"anybody?")
        async with asyncio.timeout(10):
            assert "doesn't arrive any more" in await one.ended
        assert not one.channel.send_soon(SIGNAL, b"anybody?")
        with pytest.raises(ChannelClosed, match="doesn't arrive any more"):
            await one.channel.send(SIGNAL, b"anybody?")


async def test_a_path_that_begins_to_eat_large_packets_is_noticed_though_small_ones_pass() -> None:
    async with channels(stall_after=0.5) as (one, other):
        assert one.channel.send_soon(SIGNAL, b"small")
        assert await other.got.get() == (SIGNAL, b"small")
        disturb(one.connection, eating(above=999))
        assert one.channel.send_soon(ROWS, bytes(5000))
        async with asyncio.timeout(10):
            assert "large packets" in await one.ended


async def test_a_healthy_channel_is_not_closed_however_long_it_rests() -> None:
    async with channels(stall_after=2.0) as (one, other):
        assert one.channel.send_soon(SIGNAL, b"still here")
        assert await other.got.get() == (SIGNAL, b"still here")
        await asyncio.sleep(2.5)
        assert one.channel.open
        assert other.channel.open


async def test_closing_one_end_ends_the_other_and_wakes_who_waits_there() -> None:
    async with channels() as (one, other):
        fall_silent(other.connection)
        while one.channel.send_soon(ROWS, bytes(32 * 1024)):
            pass
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_refused(one.channel.send(ROWS, bytes(64 * 1024))))
            await asyncio.sleep(0.05)
            await one.channel.close()
        assert waiting.result()
        assert not one.ended.done()


async def test_a_channel_over_a_connection_that_has_ended_says_so_soon() -> None:
    async with connected() as (one, _):
        await one.close()
        late = End(one)
        assert not late.ended.done()
        assert not late.channel.send_soon(SIGNAL, b"too late")
        assert await late.ended == "closed by this device"


async def test_the_other_end_is_told_that_the_channel_was_closed() -> None:
    async with channels() as (one, other):
        await one.channel.close()
        async with asyncio.timeout(5):
            assert await other.ended == "the other device closed the connection"


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x7f"],
        [b"\x7f" + bytes(15)],
        [b"\x7f" + b"\xff" * 16],
        [b"\x7f" + b"\x00" * 7 + b"\x09" + b"\x7f" + b"\xff" * 7],
        [b"\x00" + bytes(FRAME_LIMIT)],
        [b"\x80small"],
        [b"\x80" + bytes(FRAME_LIMIT - 1), b"\x01another"],
        [b"\x80" + bytes(FRAME_LIMIT - 1)] * 5,
    ],
)
async def test_frames_that_break_the_rules_end_the_channel(frames: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (one, other):
        taking = End(other)
        for frame in frames:
            one.send(frame)
        async with asyncio.timeout(5):
            assert (await taking.ended).startswith("the other device sent ")
        assert taking.got.empty()
    assert "control channel is closed" in caplog.text


async def test_a_handler_that_raises_ends_the_channel_and_nothing_else() -> None:
    async with connected() as (one, other):
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def fail(topic: int, message: bytes) -> None:
            raise RuntimeError("a mistake")

        ControlChannel(other, on_message=fail, on_closed=ended.set_result)
        assert End(one).channel.send_soon(ROWS, b"hello")
        async with asyncio.timeout(5):
            assert await ended == "a message could not be handled"


async def _refused(sending: Any) -> bool:
    try:
        await sending
    except ChannelClosed:
        return True
    return False
