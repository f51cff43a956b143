"""A peer that speaks its own SCTP inside DTLS costs its connection at most, and no memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from p2pqueue.net.webrtc.connection import RtcConnection
from p2pqueue.net.webrtc.packets import FIRST, LAST, Writer
from p2pqueue.net.webrtc.transports import HELD_LIMIT
from tests.unit.net.connected import connected, inbox, nothing_unseen

pytestmark = pytest.mark.usefixtures(nothing_unseen.__name__)

BINARY = 53


class Peer:
    """An end whose SCTP is told what to send; its own keeps quiet."""

    def __init__(self, end: RtcConnection) -> None:
        self._dtls: Any = end._dtls
        sctp: Any = end._sctp
        self.write: Writer = sctp._writer
        self.next: int = sctp._flight.next
        sctp._pump = lambda: None

    def say(self, *packets: bytes) -> None:
        self._dtls.send_packets(list(packets))

    def data(self, ahead: int, flags: int = FIRST | LAST, data: bytes = b"x") -> bytes:
        return self.write.data((self.next + ahead) % 2**32, flags, 0, 0, BINARY, data)


@asynccontextmanager
async def told() -> AsyncIterator[tuple[Peer, RtcConnection, asyncio.Future[str]]]:
    async with connected() as (one, other):
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        other.on_closed = ended.set_result
        yield Peer(one), other, ended


def odd_packets(peer: Peer) -> Iterator[bytes]:
    """Packets that are nearly right."""
    chance = Random(3)
    models = [peer.data(0), peer.write.sack(peer.next, 1000, [(2, 3)], [7]), peer.write.heartbeat(bytes(40)), peer.data(5, FIRST)]
    for _ in range(1500):
        packet = bytearray(chance.choice(models))
        for _ in range(chance.randrange(1, 4)):
            packet[chance.randrange(12, len(packet))] = chance.randrange(256)
        yield bytes(packet[: chance.randrange(12, len(packet) + 1)])
        yield chance.randbytes(chance.randrange(0, 60)) or b"\0"


async def test_packets_that_are_nearly_right_end_the_connection_at_most() -> None:
    async with told() as (peer, other, ended):
        for packet in odd_packets(peer):
            peer.say(packet)
            if ended.done():
                break
            await asyncio.sleep(0)
        if not ended.done():
            assert other.open


async def test_a_message_without_end_is_cut_off() -> None:
    async with told() as (peer, _, ended):
        count = HELD_LIMIT // 1300 + 2
        for number in range(0, 3 * count, 40):  # again, where the socket overflowed
            peer.say(*(peer.data(each % count, 0 if each % count else FIRST, bytes(1300)) for each in range(number, number + 40)))
            await asyncio.sleep(0.001)
            if ended.done():
                break
        async with asyncio.timeout(5):
            assert await ended == "the other device sent a message without end"


async def test_fragments_that_belong_together_in_no_way_are_a_fault() -> None:
    async with told() as (peer, _, ended):
        peer.say(peer.data(0, FIRST), peer.data(1, FIRST))
        async with asyncio.timeout(5):
            assert "fragments" in await ended


async def test_acknowledgements_of_what_was_never_sent_are_passed_over() -> None:
    async with told() as (peer, other, ended):
        for cumulative in (0, peer.next, 2**32 - 1):
            peer.say(peer.write.sack(cumulative, 0, [(1, 65535)], []))
        await asyncio.sleep(0.05)
        messages = inbox(other)
        peer.say(peer.data(0, data=b"and on it goes"))
        async with asyncio.timeout(5):
            assert await messages.get() == b"and on it goes"
        assert not ended.done()


async def test_what_opens_an_association_does_nothing_to_an_open_one() -> None:
    async with told() as (peer, other, ended):
        messages = inbox(other)
        opening = bytes.fromhex("01000014") + (7).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes.fromhex("00010001") + bytes(4)
        head = peer.data(0)[:4] + bytes(8)
        peer.say(peer.data(0, data=b"before"))
        peer.say(_with_checksum(head + opening))
        peer.say(peer.data(1, data=b"after"))
        async with asyncio.timeout(5):
            assert [await messages.get(), await messages.get()] == [b"before", b"after"]
        assert not ended.done()


def _with_checksum(packet: bytes) -> bytes:
    from google_crc32c import value

    return packet[:8] + value(packet).to_bytes(4, "little") + packet[12:]
