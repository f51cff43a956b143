"""Tuned and ordinary transports understand one another, and everything arrives in order in any weather."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from p2pqueue.net.webrtc.bulk import BULK_BUFFER, BulkChannel
from p2pqueue.net.webrtc.connection import RtcConnection
from p2pqueue.net.webrtc.sounding import WIDE_PAYLOAD
from p2pqueue.net.webrtc.transports import PACKET
from tests.unit.net.connected import connection, inbox, join, nothing_unseen
from tests.unit.net.weather import Weather, disturb, eating

pytestmark = pytest.mark.usefixtures(nothing_unseen.__name__)

PAIRS = {"tuned": (True, True), "tuned to stock": (True, False), "stock to tuned": (False, True), "stock": (False, False)}
WEATHERS: dict[str, dict[str, Any]] = {
    "clear": {"seed": 1},
    "0.1 % lost": {"seed": 2, "lost": 0.001},
    "2 % lost": {"seed": 3, "lost": 0.02},
    "doubled": {"seed": 4, "doubled": 0.1},
    "overtaken": {"seed": 5, "late": 0.1},
    "all of it": {"seed": 6, "lost": 0.02, "doubled": 0.05, "late": 0.05},
}
FRAMES = 40


@asynccontextmanager
async def ends(tuned: tuple[bool, bool] = (True, True), **options: Any) -> AsyncIterator[tuple[RtcConnection, RtcConnection]]:
    one = connection(controlling=True, tuned=tuned[0], high_water=BULK_BUFFER, **options)
    other = connection(controlling=False, tuned=tuned[1], high_water=BULK_BUFFER, **options)
    try:
        await join(one, other)
        yield one, other
    finally:
        await one.close()
        await other.close()


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("pair", PAIRS)
async def test_frames_arrive_whole_and_in_order(pair: str, weather: str) -> None:
    async with ends(PAIRS[pair]) as (one, other):
        for end in (one, other):
            disturb(end, Weather(**WEATHERS[weather]))
        digests = await asyncio.gather(*(_transfer(*each) for each in ((one, other),)))
    assert digests == [_digest(_frames())]


@pytest.mark.parametrize("pair", ["tuned", "tuned to stock"])
async def test_both_directions_bear_bad_weather_at_once(pair: str) -> None:
    async with ends(PAIRS[pair]) as (one, other):
        for end in (one, other):
            disturb(end, Weather(7, lost=0.02, doubled=0.02, late=0.02))
        here, there = BulkChannel(one), BulkChannel(other)
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(here))
            group.create_task(_send(there))
            taking = [group.create_task(_take(channel)) for channel in (here, there)]
    assert [task.result() for task in taking] == 2 * [_digest(_frames())]


@pytest.mark.parametrize("pair", ["tuned", "stock to tuned", "tuned to stock"])
@pytest.mark.parametrize("weather", ["clear", "all of it"])
async def test_where_the_loop_reads_one_datagram_a_turn_it_works_as_well(pair: str, weather: str) -> None:
    async with ends(PAIRS[pair], drain=1) as (one, other):
        for end in (one, other):
            disturb(end, Weather(**WEATHERS[weather]))
        assert await _transfer(one, other) == _digest(_frames())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pair", PAIRS)
async def test_a_connection_opens_in_bad_weather(pair: str, seed: int) -> None:
    weather = Weather(seed, lost=0.1, doubled=0.2, late=0.3, by=0.02)
    one, other = (connection(controlling=first, tuned=tuned) for first, tuned in zip((True, False), PAIRS[pair], strict=True))
    for end in (one, other):
        disturb(end, weather)
    try:
        await join(one, other, timeout=20.0)
        messages = inbox(other)
        for number in range(20):
            one.send(bytes([number]) * 3000)
        async with asyncio.timeout(20):
            assert [await messages.get() for _ in range(20)] == [bytes([number]) * 3000 for number in range(20)]
    finally:
        await one.close()
        await other.close()


async def test_larger_packets_are_used_where_both_ends_are_in_one_roomy_network() -> None:
    async with ends() as (one, other):
        await _until(lambda: one._sctp._payload == other._sctp._payload == WIDE_PAYLOAD)
        largest = Largest()
        disturb(one, largest)
        assert await _transfer(one, other) == _digest(_frames())
    assert 1400 < largest.size < 1500 - 48


@pytest.mark.parametrize("pair", ["tuned to stock", "stock to tuned"])
async def test_stock_transports_answer_the_question_for_larger_packets(pair: str) -> None:
    async with ends(PAIRS[pair]) as (one, other):
        tuned = one if PAIRS[pair][0] else other
        await _until(lambda: tuned._sctp._payload == WIDE_PAYLOAD)


async def test_a_path_that_eats_larger_packets_is_used_with_smaller_ones() -> None:
    one, other = connection(controlling=True), connection(controlling=False)
    for end in (one, other):
        disturb(end, eating(above=1300))
    try:
        await join(one, other)
        assert await _transfer(one, other) == _digest(_frames())
        assert one._sctp._payload == other._sctp._payload == PACKET
    finally:
        await one.close()
        await other.close()


class Largest:
    """A fate that harms nothing and keeps the size of the largest."""

    size = 0

    def __call__(self, datagram: bytes) -> tuple[float]:
        self.size = max(self.size, len(datagram))
        return (0.0,)


async def _until(holds: Any) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came about")


async def _transfer(one: RtcConnection, other: RtcConnection) -> str:
    here, there = BulkChannel(one), BulkChannel(other)
    async with asyncio.TaskGroup() as group:
        group.create_task(_send(here))
        taking = group.create_task(_take(there))
    return taking.result()


async def _send(channel: BulkChannel) -> None:
    for frame in _frames():
        await channel.send(frame)


async def _take(channel: BulkChannel) -> str:
    frames = []
    for _ in range(FRAMES):
        frames.append(await channel.receive())
        channel.grant(len(frames[-1]))
    return _digest(frames)


def _frames() -> list[bytes]:
    chance = Random(9)
    return [chance.randbytes(chance.choice((1, 1159, 1160, 1372, 30_000, 65_536))) for _ in range(FRAMES)]


def _digest(frames: list[bytes]) -> str:
    return hashlib.sha256(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)).hexdigest()
