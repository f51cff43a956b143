"""Over real connections one device does what no device should; the file comes whole from the other, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from p2pqueue.errors import ChannelClosed, PayloadUnavailable
from p2pqueue.net.webrtc.bulk import BULK_BUFFER, BulkChannel
from p2pqueue.payload.shelf import Shelf
from tests.unit.net.connected import connected
from tests.unit.peers import test_inlet as raw
from tests.unit.peers.served import MIB, TICKET, served
from tests.unit.peers.test_sources import Linked, content, fetching, shared

LIAR = "a" * 16  # sorts before the honest one
HEAD, SIZE, ASK = struct.Struct(">BI"), struct.Struct(">I"), struct.Struct(">32sI")
ASKED, BEGIN, DATA = 1, 2, 3
PIECE = 32 * 1024

OVER_HTTP = [
    raw.wrong, raw.too_many, raw.far_too_many, raw.none_at_all, raw.too_few, raw.nothing, raw.no_answer, raw.endless_words,
    raw.no_head, raw.head_a_byte_at_a_time, raw.gone,
]  # fmt: skip


@pytest.mark.parametrize("act", OVER_HTTP)
async def test_over_http_it_costs_time_and_nothing_else(tmp_path: Path, act: raw.Act) -> None:
    """N09 among them: it takes asks and is silent, as one whose cable was cut."""
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, 12 * MIB)
        with raw.peer(act) as liar:
            sources.up(Linked(liar.base, device_id=LIAR))
            sources.up(Linked(at.base))
            async with asyncio.timeout(40):
                fetched = await fetcher.fetch(capability)
            assert content(shelf, capability) == wanted
            assert {name for name, _ in fetched.received} == {"d" * 16}
            sources.down(next(linked.peer for name, linked in sources._linked.items() if name == LIAR))


Reply = Callable[[BulkChannel, Shelf, int, bytes, int], Awaitable[None]]


async def wrong(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    await _give(channel, number, size, bytes(size))


async def too_many(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    body = shelf.shard(address)
    await _give(channel, number, len(body), body + bytes(PIECE))


async def announced_as_too_many(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    await _give(channel, number, 0xFFFFFFFF, shelf.shard(address))


async def too_few(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    body = shelf.shard(address)
    await _give(channel, number, len(body), body[:-1])


async def announced_as_too_few(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    body = shelf.shard(address)
    await _give(channel, number, len(body) - 1, body[:-1])


async def begun_twice(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    body = shelf.shard(address)
    await _give(channel, number, len(body), body[: len(body) // 2])
    await _give(channel, number, len(body) // 4, body)


async def nothing(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    pass


async def empty_pieces(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    await channel.send(HEAD.pack(BEGIN, number), SIZE.pack(size))
    for _ in range(20):
        await channel.send(HEAD.pack(DATA, number))


async def goodbye(channel: BulkChannel, shelf: Shelf, number: int, address: bytes, size: int) -> None:
    body = shelf.shard(address)
    await _give(channel, number, len(body), body[: len(body) // 2])
    await channel.close()


async def _give(channel: BulkChannel, number: int, announced: int, body: bytes) -> None:
    await channel.send(HEAD.pack(BEGIN, number), SIZE.pack(announced))
    for start in range(0, len(body), PIECE):
        await channel.send(HEAD.pack(DATA, number), body[start : start + PIECE])


@contextlib.asynccontextmanager
async def lying(shelf: Shelf, reply: Reply) -> AsyncIterator[Linked]:
    """A device that is linked by WebRTC alone, and answers so."""
    asks = 0

    async def answer(channel: BulkChannel) -> None:
        nonlocal asks
        with contextlib.suppress(ChannelClosed):
            while True:
                frame = await channel.receive()
                channel.grant(len(frame))
                kind, number = HEAD.unpack_from(frame)
                if kind == ASKED:
                    asks += 1
                    await reply(channel, shelf, number, *ASK.unpack_from(frame, HEAD.size))

    async with connected(high_water=BULK_BUFFER) as (one, other):
        here, there = BulkChannel(one), BulkChannel(other)

        class Liar(Linked):
            async def bulk(self) -> BulkChannel:
                if not here.open:
                    raise ChannelClosed("it has ended")
                return here

        answering = asyncio.ensure_future(answer(there))
        try:
            yield Liar(None, device_id=LIAR, path="webrtc")
            assert asks > 0
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            for channel in (here, there):
                await channel.close()


@pytest.mark.parametrize(
    "reply", [wrong, too_many, announced_as_too_many, too_few, announced_as_too_few, begun_twice, nothing, empty_pieces, goodbye]
)
async def test_over_webrtc_it_costs_time_and_nothing_else(tmp_path: Path, reply: Reply) -> None:
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), lying(at.shelf, reply) as liar:
        capability, wanted = shared(at, tmp_path, 12 * MIB)
        sources.up(liar)
        sources.up(Linked(at.base))
        async with asyncio.timeout(40):
            await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted


@pytest.mark.parametrize("reply", [wrong, announced_as_too_many, announced_as_too_few, nothing])
async def test_alone_it_brings_nothing_and_that_is_told(tmp_path: Path, reply: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("transfer", "gathering"):
        monkeypatch.setattr(f"p2pqueue.payload.fetching.{room}.PATIENCE", 0.5)
    monkeypatch.setattr("p2pqueue.payload.fetching.gathering.SLOWEST", 1.0)
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), lying(at.shelf, reply) as liar:
        capability, _ = shared(at, tmp_path, 3 * MIB)
        sources.up(liar)
        with pytest.raises(PayloadUnavailable):
            async with asyncio.timeout(40):
                await fetcher.fetch(capability)
        assert not shelf.holds(capability)
        assert not any(os.scandir(shelf.home.path / "outputs")) if (shelf.home.path / "outputs").exists() else True


async def test_a_ticket_that_expires_in_mid_transfer_costs_nothing_once_there_is_a_new_one(tmp_path: Path) -> None:
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, 40 * MIB)
        old, new = Linked(at.base), Linked(at.base, bytes.fromhex("cd" * 32))
        expired: list[int] = []

        def expire(done: int, size: int) -> None:
            if done > size // 4 and not expired:
                expired.append(done)
                device = at.tickets.pop(TICKET)
                at.routes.down(device)  # as the end of a link does
                at.tickets["cd" * 32] = device
                asyncio.get_running_loop().call_later(0.3, lambda: (sources.down(old), sources.up(new)))

        sources.up(old)
        async with asyncio.timeout(40):
            fetched = await fetcher.fetch(capability, on_progress=expire)
        assert expired
        assert content(shelf, capability) == wanted
        assert sum(fetched.received.values()) < len(wanted) + 2 * MIB  # what was there is not asked for again
