"""Two devices connect directly: in time or in words, and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.errors import ChannelClosed, ConnectFailed
from p2pqueue.net.webrtc.connection import make_certificate
from p2pqueue.net.webrtc.signal import RtcSignal
from tests.unit.net.connected import certificate, connected, connection, fall_silent, inbox, nothing_unseen
from tests.unit.net.weather import Weather, disturb, eating

pytestmark = pytest.mark.usefixtures(nothing_unseen.__name__)

STUN_REQUEST = b"\x00\x01\x00\x00!\x12\xa4B" + bytes(12)
GARBAGE = (b"", b"\x00", STUN_REQUEST, STUN_REQUEST[:-1], b"\x16", b"\x16" * 1400, b"\x80" * 40, b"\xff" * 100)


async def test_messages_of_every_size_arrive_in_order_both_ways() -> None:
    async with connected() as (one, other):
        at_one, at_other = inbox(one), inbox(other)
        for size in (1, 1000, 1161, 64 * 1024, 256 * 1024):
            one.send(b"a" * size)
            other.send(b"b" * size)
        for size in (1, 1000, 1161, 64 * 1024, 256 * 1024):
            assert await at_other.get() == b"a" * size
            assert await at_one.get() == b"b" * size


async def test_both_ends_know_the_path_between_them() -> None:
    async with connected() as (one, other):
        assert one.ends is not None
        assert other.ends == (one.ends[1], one.ends[0])
        assert one.ends[0][0] == "127.0.0.1"


async def test_a_message_that_comes_before_anybody_listens_waits() -> None:
    async with connected() as (one, other):
        one.send(b"early")
        one.send(b"second")
        await asyncio.sleep(0.05)
        messages = inbox(other)
        assert [await messages.get(), await messages.get()] == [b"early", b"second"]


async def test_a_path_is_found_though_other_candidates_are_dead() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        one, other = connection(controlling=True), connection(controlling=False)
        try:
            from_one, from_other = await one.offer(), await other.offer()
            dead = tuple(("127.0.0.1", port) for port in (silent.getsockname()[1], 9))
            async with asyncio.TaskGroup() as group:
                group.create_task(one.connect(replace(from_other, candidates=dead + from_other.candidates)))
                group.create_task(other.connect(replace(from_one, candidates=dead + from_one.candidates)))
            assert one.open
            assert other.open
        finally:
            await one.close()
            await other.close()


async def test_an_address_that_does_not_answer_fails_in_words_when_the_time_is_over() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        one = connection()
        offered = await one.offer()
        with pytest.raises(ConnectFailed, match="UDP may be blocked"):
            await one.connect(replace(offered, candidates=(silent.getsockname(),)), timeout=0.3)
    assert one.reason is not None


async def test_addresses_that_can_not_be_reached_fail_at_once() -> None:
    one = connection()
    offered = await one.offer()
    with pytest.raises(ConnectFailed, match="no address that this one can reach"):
        await one.connect(replace(offered, candidates=(("224.0.0.1", 5000), ("fe80::1", 5000))))


async def test_loopback_addresses_are_neither_offered_nor_tried_unless_asked_for() -> None:
    one = connection(loopback=False)
    with pytest.raises(ConnectFailed, match="no network interface is up"):
        await one.offer()
    other = connection()
    offered = await other.offer()
    other._loopback = False
    with pytest.raises(ConnectFailed, match="no address that this one can reach"):
        await other.connect(offered)


async def test_an_address_that_is_gone_is_left_out_of_the_offer() -> None:
    class Mixed:
        addresses = (IPv4Interface("192.0.2.7/24"), IPv4Interface("127.0.0.1/8"))

    one = connection(interfaces=lambda: (Mixed(),))
    try:
        offered = await one.offer()
    finally:
        await one.close()
    assert [host for host, _ in offered.candidates] == ["127.0.0.1"]


async def test_a_peer_with_another_certificate_is_refused_by_name() -> None:
    one, other = connection(controlling=True), connection(controlling=False, certificate=make_certificate())
    from_one, from_other = await one.offer(), await other.offer()
    results = await asyncio.gather(
        one.connect(replace(from_other, fingerprint=bytes(32))), other.connect(from_one, timeout=1.0), return_exceptions=True
    )
    assert [type(result) for result in results] == [ConnectFailed, ConnectFailed]
    assert "its certificate is another" in str(results[0])


async def test_a_path_that_eats_large_packets_is_found_out_while_connecting() -> None:
    one, other = connection(controlling=True), connection(controlling=False)
    offered = await one.offer(), await other.offer()
    for end in (one, other):
        disturb(end, eating(above=1200))
    outcomes = await asyncio.gather(_outcome(one.connect(offered[1], timeout=1.0)), _outcome(other.connect(offered[0], timeout=1.0)))
    assert any("MTU" in str(outcome) for outcome in outcomes)
    assert all(isinstance(outcome, ConnectFailed) for outcome in outcomes)


@pytest.mark.parametrize("first", [0, 1])
async def test_either_side_can_close_and_the_other_is_told_why(first: int) -> None:
    async with connected() as ends:
        closer, told = ends[first], ends[1 - first]
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        told.on_closed = ended.set_result
        await closer.close()
        async with asyncio.timeout(5):
            assert await ended == "the other device closed the connection"
        for end in ends:
            with pytest.raises(ChannelClosed):
                end.send(b"too late")
            with pytest.raises(ChannelClosed):
                await end.drained(0)


async def test_both_sides_can_close_at_once_and_again() -> None:
    async with connected() as (one, other):
        await asyncio.gather(one.close(), other.close(), one.close())
        await other.close()
        assert not one.open
        assert not other.open


async def test_whoever_waits_for_room_is_told_that_the_connection_has_ended() -> None:
    async with connected() as (one, other):
        fall_silent(other)
        for _ in range(10):
            one.send(bytes(64 * 1024))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_outcome(one.drained(0)))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            one.lose("the cable was pulled")
        assert str(waiting.result()) == "the cable was pulled"


async def test_waiting_ends_when_enough_has_been_sent_on() -> None:
    async with connected() as (one, other):
        messages = inbox(other)
        for _ in range(20):
            one.send(bytes(64 * 1024))
        assert one.buffered > 512 * 1024
        await asyncio.gather(one.drained(512 * 1024), one.drained(0))
        assert one.buffered == 0
        assert len([await messages.get() for _ in range(20)]) == 20


async def test_packets_that_come_together_are_acknowledged_together() -> None:
    async with connected() as (one, other):
        messages, answers = inbox(other), Weather(seed=0)
        disturb(other, answers)
        for _ in range(8):
            await one.drained(0)
            one.send(bytes(60_000))
        for _ in range(8):
            assert await messages.get() == bytes(60_000)
        packets = 8 * 60_000 / 1372
        assert 0 < answers.count < 0.8 * packets


async def test_a_handler_that_raises_ends_its_connection_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (one, other):
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        other.on_message = lambda message: message.index(b"not there")  # type: ignore[assignment,func-returns-value]
        other.on_closed = ended.set_result
        one.send(b"hello")
        async with asyncio.timeout(5):
            assert await ended == "a message could not be handled"
    assert "can't be handled" in caplog.text


async def test_garbage_from_strangers_at_the_port_changes_nothing() -> None:
    async with connected() as (one, other):
        messages = inbox(other)
        assert one.ends is not None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for data in (
                b"",
                b"\x00",
                b"\x00\x01\x00\x00!\x12\xa4B" + bytes(12),
                bytes((22,)),
                bytes((22,)) * 1400,
                b"\xff" * 100,
                b"\x80" * 40,
            ):
                for end in one.ends:
                    stranger.sendto(data, end)
        one.send(b"still here")
        async with asyncio.timeout(5):
            assert await messages.get() == b"still here"


async def test_what_a_peer_can_not_mean_ends_the_connection() -> None:
    async with connected() as (one, other):
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        other.on_closed = ended.set_result
        one._channel.send("text")
        async with asyncio.timeout(5):
            assert "text" in await ended


async def test_connecting_can_be_cancelled_and_leaves_nothing() -> None:
    before = _held()
    one, other = connection(controlling=True), connection(controlling=False)
    offered = await other.offer()
    await one.offer()
    async with asyncio.TaskGroup() as group:
        connecting = group.create_task(one.connect(offered))
        await asyncio.sleep(0.05)
        connecting.cancel()
    await asyncio.gather(one.close(), other.close())
    assert connecting.cancelled()
    assert await _held_soon(before) == before


async def test_closing_while_connecting_fails_it_in_words() -> None:
    one, other = connection(controlling=True), connection(controlling=False)
    offered = await other.offer()
    await one.offer()
    async with asyncio.TaskGroup() as group:
        connecting = group.create_task(_outcome(one.connect(offered)))
        await asyncio.sleep(0.05)
        await one.close()
    await other.close()
    assert str(connecting.result()) == "closed by this device"


async def test_fifty_connections_leave_no_task_and_no_descriptor() -> None:
    await _cycle()
    before = _held()
    for _ in range(50):
        await _cycle()
    assert await _held_soon(before) == before


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand_connections_leave_no_task_no_descriptor_and_no_memory() -> None:
    for _ in range(50):
        await _cycle()
    gc.collect()
    before = _held()
    tracemalloc.start()
    try:
        for _ in range(100):
            await _cycle()
        gc.collect()
        early = tracemalloc.get_traced_memory()[0]
        for _ in range(900):
            await _cycle()
        gc.collect()
        late = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert await _held_soon(before) == before
    assert late - early < 500_000


def test_the_kept_certificate_is_the_same_for_every_connection() -> None:
    assert certificate().getFingerprints() == certificate().getFingerprints()


async def test_the_signal_is_small_and_reads_back() -> None:
    one = connection()
    try:
        offered = await one.offer()
    finally:
        await one.close()
    assert RtcSignal.unpack(offered.pack()) == offered
    assert len(offered.pack()) < 128


def test_aiortc_itself_and_its_media_half_are_not_loaded() -> None:
    assert "p2pqueue.net.webrtc.ortc" in sys.modules
    code = "import sys, p2pqueue.net.webrtc.connection; print(sorted({'av', 'aiortc'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


async def _cycle() -> None:
    async with connected() as (one, other):
        messages = inbox(other)
        one.send(b"there")
        assert await messages.get() == b"there"


async def _outcome(waiting: Any) -> Exception | None:
    try:
        await waiting
    except (ConnectFailed, ChannelClosed) as error:
        return error
    return None


def _held() -> tuple[int, int]:
    descriptors = Path("/proc/self/fd")
    return len(asyncio.all_tasks()), len(list(descriptors.iterdir())) if descriptors.exists() else 0


async def _held_soon(wanted: tuple[int, int]) -> tuple[int, int]:
    for _ in range(100):
        if _held() == wanted:
            break
        await asyncio.sleep(0.02)
    return _held()
