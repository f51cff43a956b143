"""Two real connections in one process, over 127.0.0.1."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from ipaddress import IPv4Interface
from typing import Any

import pytest

from p2pqueue.net.webrtc.connection import RtcConnection, make_certificate
from p2pqueue.net.webrtc.ortc import RTCCertificate


@pytest.fixture
def nothing_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails a test in which a task died of an exception that nobody looked at."""
    yield
    gc.collect()
    unseen = [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"]
    assert unseen == []


class Loopback:
    """An interface with nothing but 127.0.0.1."""

    addresses = (IPv4Interface("127.0.0.1/8"),)


@cache
def certificate() -> RTCCertificate:
    return make_certificate()


def connection(
    *, controlling: bool = True, interfaces: Callable[[], Sequence[Any]] = lambda: (Loopback(),), **options: Any
) -> RtcConnection:
    given = {"certificate": certificate(), "loopback": True, "high_water": 256 * 1024, **options}
    return RtcConnection(controlling=controlling, interfaces=interfaces, **given)


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[RtcConnection, RtcConnection]]:
    """Both ends of one connection, closed at the end."""
    one, other = connection(controlling=True, **options), connection(controlling=False, **options)
    try:
        await join(one, other)
        yield one, other
    finally:
        await one.close()
        await other.close()


async def join(one: RtcConnection, other: RtcConnection, *, timeout: float = 8.0) -> None:
    offered = await one.offer(), await other.offer()
    async with asyncio.TaskGroup() as group:
        group.create_task(one.connect(offered[1], timeout=timeout))
        group.create_task(other.connect(offered[0], timeout=timeout))


def inbox(connection: RtcConnection) -> asyncio.Queue[bytes]:
    """Everything that comes, in order."""
    messages: asyncio.Queue[bytes] = asyncio.Queue()
    connection.on_message = messages.put_nowait
    return messages


def fall_silent(connection: RtcConnection) -> None:
    """Takes an end off the net without a farewell, as a pulled cable or a killed process does."""
    connection._path.abort()
