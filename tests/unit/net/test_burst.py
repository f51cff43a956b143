"""Datagrams that are sent together arrive one by one, whatever the system can do."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.net.webrtc import burst
from p2pqueue.net.webrtc.burst import TOGETHER, Burst, parted, second_socket
from p2pqueue.net.webrtc.drain import Drain


class Refusing:
    """A socket whose network card can't cut buffers."""

    def __init__(self, number: int, *, knows: bool = True) -> None:
        self.number = number
        self.knows = knows
        self.calls = 0

    def getsockopt(self, *arguments: object) -> int:
        if not self.knows:
            raise OSError(errno.ENOPROTOOPT, "never heard of it")
        return 0

    def sendmsg(self, *arguments: object) -> None:
        self.calls += 1
        raise OSError(self.number, "refused")


class Kept(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: list[bytes] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.got.append(data)


@asynccontextmanager
async def sender() -> AsyncIterator[tuple[asyncio.DatagramTransport, socket.socket]]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(2)
        yield transport, receiver
    transport.close()
    await asyncio.sleep(0)


def block(datagrams: Sequence[bytes]) -> tuple[memoryview, list[int]]:
    return memoryview(b"".join(datagrams)), [len(datagram) for datagram in datagrams]


SIZES = [
    [1],
    [100, 100, 100],
    [100, 100, 60],
    [100, 60, 100],
    [60, 100, 100, 20, 20, 30],
    [1437] * (TOGETHER + 2),
    [1437] * TOGETHER + [600],
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
async def test_each_arrives_by_itself_and_in_order(sizes: list[int]) -> None:
    datagrams = [bytes([number]) * size for number, size in enumerate(sizes)]
    async with sender() as (transport, receiver):
        own = second_socket(transport)
        Burst(transport, own).send(*block(datagrams), receiver.getsockname())
        await asyncio.sleep(0)
        assert [receiver.recv(2000) for _ in datagrams] == datagrams
        if own is not None:
            own.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.EAGAIN, errno.ENETUNREACH])
async def test_where_the_system_refuses_they_are_sent_one_by_one(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burst, "_LINUX", True)
    datagrams = [b"a" * 100, b"b" * 100]
    async with sender() as (transport, receiver):
        refusing: Any = Refusing(number)
        together = Burst(transport, refusing)
        for _ in range(2):
            together.send(*block(datagrams), receiver.getsockname())
        await asyncio.sleep(0)
        assert [receiver.recv(2000) for _ in range(4)] == 2 * datagrams
        assert refusing.calls == (2 if number in (errno.EAGAIN, errno.ENETUNREACH) else 1)  # what it can't do is asked once


async def test_a_kernel_that_never_heard_of_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burst, "_LINUX", True)
    async with sender() as (transport, receiver):
        old: Any = Refusing(0, knows=False)
        Burst(transport, old).send(*block([b"a" * 100, b"b" * 100]), receiver.getsockname())
        await asyncio.sleep(0)
        assert [receiver.recv(2000), receiver.recv(2000)] == [b"a" * 100, b"b" * 100]
        assert old.calls == 0


async def test_over_a_transport_that_is_closed_nothing_is_sent() -> None:
    async with sender() as (transport, receiver):
        receiver.settimeout(0.05)
        transport.abort()
        Burst(transport, None).send(*block([b"a" * 100, b"b" * 100]), receiver.getsockname())
        with pytest.raises(TimeoutError):
            receiver.recv(2000)


async def test_what_comes_in_one_buffer_is_taken_apart() -> None:
    records = [_record(bytes([number]) * 1200) for number in range(30)] + [_record(b"the last of them")]
    loop, got = asyncio.get_running_loop(), []
    receiving, kept = await loop.create_datagram_endpoint(Kept, local_addr=("127.0.0.1", 0))
    drain = Drain(receiving, kept, on_data=lambda found, addr: got.extend(found), limit=8)
    drain.gather()
    async with sender() as (transport, _):
        own = second_socket(transport)
        Burst(transport, own).send(*block(records), receiving.get_extra_info("sockname"))
        transport.sendto(_stun(b"asking"), receiving.get_extra_info("sockname"))
        for _ in range(200):
            if kept.got:
                break
            await asyncio.sleep(0.01)
        assert got == records
        assert kept.got == [_stun(b"asking")]
        if own is not None:
            own.close()
    receiving.close()
    await asyncio.sleep(0.01)


@given(st.lists(st.binary(min_size=10, max_size=50), max_size=5), st.binary(max_size=19))
def test_records_are_parted_and_the_rest_is_dropped(contents: list[bytes], rest: bytes) -> None:
    whole = [maker(content) for content in contents for maker in (_record, _stun)]
    assert list(parted(b"".join(whole) + rest)) == whole


@given(st.binary(max_size=200))
def test_any_bytes_are_parted_into_at_most_themselves(data: bytes) -> None:
    assert data.startswith(b"".join(parted(data)))


def _record(content: bytes) -> bytes:
    return b"\x17\xfe\xfd" + bytes(8) + len(content).to_bytes(2, "big") + content


def _stun(content: bytes) -> bytes:
    return b"\x00\x01" + len(content).to_bytes(2, "big") + bytes(16) + content
