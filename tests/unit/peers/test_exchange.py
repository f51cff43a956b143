"""Two sides of one bulk channel, joined in memory; the real channel has tests of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator

import pytest

from p2pqueue.errors import BadShard, ChannelClosed, InputChanged, PayloadUnavailable, WorldError
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.peers.shards.exchange import MOST_ASKED, Exchange
from tests.unit.peers.served import Asked


class Small(Asked):
    """A request that takes less than it says."""

    def room(self, size: int) -> memoryview:
        raise BadShard(f"{size} bytes are too many")


LARGE = os.urandom(3_000_001)
SHARDS = {bytes([number]) * 32: os.urandom(1 + number * 40_000) for number in range(30)} | {b"L" * 32: LARGE}


class Channel:
    """One end; it counts what was received and not given back."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: Channel
        self.open = True
        self.owed = self.most_owed = 0
        self.frames_left = 1_000_000  # until it is cut

    async def send(self, *parts: bytes | memoryview) -> None:
        frame = b"".join(parts)
        self.frames_left -= 1
        if self.frames_left < 0:
            await self.close()
        if not self.open:
            raise ChannelClosed("it was cut")
        assert 0 < len(frame) <= 64 * 1024
        await asyncio.sleep(0)
        self.other.inbox.put_nowait(frame)
        self.other.owed += len(frame)
        self.other.most_owed = max(self.other.most_owed, self.other.owed)

    async def receive(self) -> bytes:
        frame = await self.inbox.get() if self.open else None
        if frame is None:
            raise ChannelClosed("it was cut")
        return frame

    def grant(self, size: int) -> None:
        self.owed -= size

    async def close(self) -> None:
        for end in (self, self.other):
            end.open = False
            end.inbox.put_nowait(None)


def read(address: bytes) -> bytes:
    if address == b"C" * 32:
        raise InputChanged("the file changed")
    if address == b"D" * 32:
        raise WorldError("the disk failed to read")
    if address not in SHARDS:
        raise PayloadUnavailable("not here")
    return SHARDS[address]


def channels() -> tuple[Channel, Channel]:
    here, there = Channel(), Channel()
    here.other, there.other = there, here
    return here, there


@contextlib.asynccontextmanager
async def joined() -> AsyncIterator[tuple[Exchange, Exchange]]:
    here, there = channels()
    sides = Exchange(here, read), Exchange(there, read)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for side in sides:
            group.create_task(side.run())
        yield sides
        await here.close()


async def test_both_sides_ask_and_serve_at_once() -> None:
    async with joined() as (here, there):
        asked = [(side, address) for address in SHARDS for side in (here, there)]
        found = await asyncio.gather(*(side.shard(address, 8 << 20) for side, address in asked))
        assert found == [SHARDS[address] for _, address in asked]
        assert here.sent == there.received == sum(map(len, SHARDS.values()))
        assert isinstance(here.channel, Channel)
        assert here.channel.owed == 0


@pytest.mark.parametrize("address", [b"?" * 32, b"C" * 32])
async def test_a_shard_that_is_not_there_is_said_to_be_missing(address: bytes) -> None:
    async with joined() as (here, _):
        with pytest.raises(ShardMissing):
            await here.shard(address, 100)


async def test_why_a_shard_cannot_be_read_is_told_in_words() -> None:
    async with joined() as (here, _):
        with pytest.raises(SourceFailed, match="the disk failed to read"):
            await here.shard(b"D" * 32, 100)
        assert await here.shard(b"\1" * 32, 1 << 20) == SHARDS[b"\1" * 32]


async def test_a_shard_that_is_larger_than_asked_for_is_not_sent() -> None:
    async with joined() as (here, _):
        with pytest.raises(ShardMissing):
            await here.shard(b"L" * 32, 1000)


async def test_a_shard_comes_straight_into_the_buffer_of_who_asked() -> None:
    async with joined() as (here, _):
        asks = [Asked(address, 8 << 20) for address in SHARDS]
        sizes = await asyncio.gather(*(here.deliver(asked) for asked in asks))
        assert [bytes(asked.came) for asked in asks] == list(SHARDS.values())
        assert sizes == [asked.advanced for asked in asks] == [len(shard) for shard in SHARDS.values()]
        with pytest.raises(BadShard):
            await here.deliver(Small(b"\1" * 32, 1 << 20))


async def test_a_rate_that_people_set_holds_and_a_pause_is_told_in_words() -> None:
    async with joined() as (here, there):
        there.limit.set(8_000_000)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await here.shard(b"L" * 32, 8 << 20) == LARGE
        assert loop.time() - begun >= 0.1  # 3 MB at 8 MB/s, of which a quarter of a second comes at once
        there.forbidden = lambda: "transfers with that device are paused"
        with pytest.raises(SourceFailed, match="paused"):
            await here.shard(b"L" * 32, 8 << 20)


async def test_a_cut_in_the_middle_fails_what_was_asked() -> None:
    async with joined() as (here, there):
        assert isinstance(there.channel, Channel)
        there.channel.frames_left = 5
        asking = asyncio.ensure_future(here.shard(b"L" * 32, 8 << 20))
        with pytest.raises(SourceFailed):
            await asking
        with pytest.raises(SourceFailed):
            await here.shard(b"\1" * 32, 8 << 20)


async def test_an_answer_that_nobody_waits_for_any_more_is_let_go() -> None:
    async with joined() as (here, _):
        asking = asyncio.ensure_future(here.shard(b"L" * 32, 8 << 20))
        await asyncio.sleep(0)  # it is asked
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await here.shard(b"\2" * 32, 1 << 20) == SHARDS[b"\2" * 32]


@pytest.mark.parametrize(
    "frame",
    [
        b"\1",
        struct.pack(">BI", 1, 5) + b"short",
        struct.pack(">BI", 3, 1) + b"a piece before its beginning",
    ],
)
async def test_a_frame_that_makes_no_sense_ends_the_channel_alone(frame: bytes) -> None:
    here, there = channels()
    exchange = Exchange(here, read)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(exchange.run())
        asking = group.create_task(_failing(exchange))
        await asyncio.sleep(0.01)
        await there.send(frame)
        await running
        await asking
    assert not here.open


async def _failing(exchange: Exchange) -> None:
    with pytest.raises(SourceFailed):
        await exchange.shard(b"\1" * 32, 100)


async def test_a_size_that_is_larger_than_asked_for_counts_as_a_wrong_shard() -> None:
    here, there = channels()
    exchange = Exchange(here, read)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(exchange.run())
        asking = asyncio.ensure_future(exchange.shard(b"\1" * 32, 100))
        await there.receive()
        await there.send(struct.pack(">BII", 2, 1, 101))
        with pytest.raises(BadShard):
            await asking
        await there.close()
        await running


async def test_a_peer_that_asks_for_more_than_is_allowed_is_cut_off() -> None:
    here, there = channels()
    exchange = Exchange(here, read)
    for number in range(MOST_ASKED + 1):
        there.other.inbox.put_nowait(struct.pack(">BI32sI", 1, number, b"\1" * 32, 1 << 20))
    async with asyncio.timeout(10):
        await exchange.run()
    assert not here.open
