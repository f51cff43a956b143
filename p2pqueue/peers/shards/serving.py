"""How does a node serve its shards from its listener? To whoever shows the ticket of a link that stands.

Read-only, as an origin is. A shard is ciphertext and checked by whoever gets it, so that nothing needs to be sealed
again on the way. `GET /shards` becomes a connection for many of them (`stream`), which is how nodes fetch;
`GET /shards/<address>` gives one, or a range of it, to anything that speaks HTTP.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from aiohttp import hdrs, web

from p2pqueue.errors import InputChanged, P2PQueueError, PayloadUnavailable
from p2pqueue.payload.format import ADDRESS_SIZE
from p2pqueue.payload.limit import Limits
from p2pqueue.payload.memory import pages
from p2pqueue.payload.supply import Supply
from p2pqueue.peers.shards.buffers import Buffers
from p2pqueue.peers.shards.outlet import GRACE, SLOWEST, Outlet
from p2pqueue.peers.shards.stream import PATH, PROTOCOL

AT_ONCE: Final = 8  # shards that are given to plain requests at the same time: each takes its size in memory
OF_ONE: Final = 4  # of them to one peer
STREAMS: Final = 64  # connections for many shards, each with a thread
STREAMS_OF_ONE: Final = 12  # of them from one peer
_PIECE: Final = 256 * 1024  # bytes
_CAN_STREAM: Final = sys.platform != "win32"  # there the event loop has asked for the next bytes already, and gets them

_UNKNOWN: Final = "a ticket of a link that stands is needed\n"


class Bearer(Protocol):
    """The linked device whose ticket a request shows."""

    @property
    def device_id(self) -> str: ...  # noqa: D102


class Stock(Protocol):
    """What is needed of `payload.shelf.Shelf`."""

    def supply(self) -> Supply: ...  # noqa: D102


class ShardRoutes:
    """The routes under `/shards`. `bearer` tells whose ticket a request shows, if it counts."""

    def __init__(
        self, shelf: Stock, bearer: Callable[[web.Request], Bearer | None], limits: Limits | None = None, *,
        is_metered: Callable[[Bearer], bool] = lambda peer: False,
    ) -> None:  # fmt: skip
        """`is_metered` says whether bytes cost money on the way to a device. For any thread."""
        self._shelf = shelf
        self._bearer = bearer
        self._limits = limits or Limits()
        self._is_metered = is_metered
        self._buffers = Buffers()
        self._threads = ThreadPoolExecutor(STREAMS + AT_ONCE, thread_name_prefix="p2pqueue-shards")
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(OF_ONE))
        self._outlets: dict[Outlet, Bearer] = {}
        self._sent = 0
        self._counting = threading.Lock()

    @property
    def routes(self) -> list[web.RouteDef]:
        """What the listener serves."""
        return [web.get(PATH, self._stream), web.get(PATH + "/{address}", self._get)]  # aiohttp answers HEAD by the same

    @property
    def sent(self) -> int:
        """Bytes of shards that were given."""
        return self._sent

    @property
    def streams(self) -> int:
        """Connections for many shards that stand now."""
        return len(self._outlets)

    def down(self, peer: Bearer) -> None:
        """A link has ended, and its ticket with it: what it carries is cut."""
        for outlet in [outlet for outlet, its in self._outlets.items() if its is peer]:
            outlet.end()
        if not any(its.device_id == peer.device_id for its in self._outlets.values()):
            self._turns_of.pop(peer.device_id, None)

    # -- many on one connection -------------------------------------------------------------------------------

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        peer = self._bearer(request)
        if peer is None:
            return web.Response(status=401, text=_UNKNOWN)
        transport = request.transport
        plain = transport is not None and transport.get_extra_info("sslcontext") is None
        if request.headers.get(hdrs.UPGRADE) != PROTOCOL or not plain or not _CAN_STREAM:
            return web.Response(status=426, headers={hdrs.UPGRADE: PROTOCOL}, text=f"this path speaks {PROTOCOL} alone\n")
        of_one = sum(1 for its in self._outlets.values() if its.device_id == peer.device_id)
        if of_one >= STREAMS_OF_ONE or len(self._outlets) >= STREAMS:
            return web.Response(status=503, text="it has too many connections for shards already\n")
        answer = web.StreamResponse(status=101, headers={hdrs.UPGRADE: PROTOCOL, hdrs.CONNECTION: "Upgrade"})
        answer.force_close()
        assert transport is not None
        transport.pause_reading()  # before the other side knows that it may ask: what it asks is read in a thread
        outlet = self._outlet(peer, transport)
        try:
            await answer.prepare(request)
            await asyncio.get_running_loop().run_in_executor(self._threads, outlet.run)
        finally:
            outlet.end()
            del self._outlets[outlet]
            if not self._outlets:
                self._buffers.clear()
        return answer

    def _outlet(self, peer: Bearer, transport: asyncio.Transport | asyncio.BaseTransport) -> Outlet:
        outlet = Outlet(
            transport.get_extra_info("socket").dup(), self._shelf.supply(), peer=peer.device_id, buffers=self._buffers,
            forbidden=lambda: self._forbids(peer), limit=self._limits.upload, sent=self._count,
        )  # fmt: skip
        self._outlets[outlet] = peer
        return outlet

    def _forbids(self, peer: Bearer) -> str | None:
        return self._limits.forbids(peer.device_id, metered=self._is_metered(peer))

    def _count(self, size: int) -> None:
        with self._counting:
            self._sent += size

    # -- one by one -------------------------------------------------------------------------------------------

    async def _get(self, request: web.Request) -> web.StreamResponse:
        peer = self._bearer(request)
        if peer is None:
            return web.Response(status=401, text=_UNKNOWN)
        address = address_in(request)
        if address is None:
            return web.Response(status=400, text=f"an address is {2 * ADDRESS_SIZE} hexadecimal digits\n")
        if (why := self._forbids(peer)) is not None:
            return web.Response(status=503, text=f"{why}\n")
        try:
            if request.method == hdrs.METH_HEAD:
                return await self._head(address)
            async with self._turn(peer):
                return await self._give(request, address)
        except InputChanged as error:
            return web.Response(status=410, text=f"{error}\n")
        except PayloadUnavailable:
            return web.Response(status=404, text="this device doesn't have it\n")
        except P2PQueueError as error:
            return web.Response(status=503, text=f"{error}\n")

    @asynccontextmanager
    async def _turn(self, peer: Bearer) -> AsyncIterator[None]:
        async with self._turns_of[peer.device_id], self._turns:
            yield

    async def _head(self, address: bytes) -> web.StreamResponse:
        held = await asyncio.to_thread(self._size, address)
        return web.Response(headers={hdrs.CONTENT_LENGTH: str(held), hdrs.ACCEPT_RANGES: "bytes"}, content_type="application/octet-stream")

    async def _give(self, request: web.Request, address: bytes) -> web.StreamResponse:
        shard = await asyncio.get_running_loop().run_in_executor(self._threads, self._read, address)
        if isinstance(shard, Path):
            size = shard.stat().st_size
            self._count(size)
            return web.FileResponse(shard, chunk_size=_PIECE, headers={hdrs.CONTENT_TYPE: "application/octet-stream"})
        part = part_of(request, len(shard))
        if part is None:
            return web.Response(status=416, headers={hdrs.CONTENT_RANGE: f"bytes */{len(shard)}"})
        answer = web.StreamResponse(status=206 if hdrs.RANGE in request.headers and part != slice(0, len(shard)) else 200)
        answer.content_type = "application/octet-stream"
        answer.content_length = part.stop - part.start
        answer.headers[hdrs.ACCEPT_RANGES] = "bytes"
        if answer.status == 206:
            answer.headers[hdrs.CONTENT_RANGE] = f"bytes {part.start}-{part.stop - 1}/{len(shard)}"
        await self._send(request, answer, memoryview(shard)[part])
        self._count(part.stop - part.start)
        return answer

    async def _send(self, request: web.Request, answer: web.StreamResponse, body: memoryview) -> None:
        try:
            async with asyncio.timeout(GRACE + len(body) / SLOWEST) as within:
                await answer.prepare(request)
                for start in range(0, len(body), _PIECE):
                    piece = body[start : start + _PIECE]
                    await self._limits.upload.take(len(piece))
                    if self._limits.upload.rate is not None:
                        within.reschedule(asyncio.get_running_loop().time() + GRACE + (len(body) - start) / SLOWEST)
                    await answer.write(piece)
                await answer.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # it reads too slowly: its connection is of no use any more

    def _size(self, address: bytes) -> int:
        with self._shelf.supply() as supply:
            held = supply.find(address)
        if held is None:
            raise PayloadUnavailable("it isn't here")
        return held.size

    def _read(self, address: bytes) -> bytes | Path:
        with self._shelf.supply() as supply:
            held = supply.find(address)
            if held is None:
                raise PayloadUnavailable("it isn't here")
            file = supply.file(held) if self._limits.upload.rate is None else None  # a file goes as fast as it can
            if file is not None:
                with file:
                    return Path(file.name)
            return bytes(supply.fill(held, pages(held.size)))


def part_of(request: web.Request, size: int) -> slice | None:
    """What a request wants of that many bytes: all of them where it names no range that can be understood; None beyond them."""
    try:
        wanted = request.http_range
    except ValueError:
        return slice(0, size)
    start, stop = wanted.start or 0, size if wanted.stop is None else min(wanted.stop, size)
    if start < 0:
        start = max(0, size + start)
    return slice(start, stop) if 0 <= start < stop else None


def address_in(request: web.Request) -> bytes | None:
    """The address that a request's path names; None where it is none."""
    text = request.match_info["address"]
    try:
        address = bytes.fromhex(text)
    except ValueError:
        return None
    return address if len(text) == 2 * ADDRESS_SIZE and len(address) == ADDRESS_SIZE else None
