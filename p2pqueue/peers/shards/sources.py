"""Which places can shards come from now, and by which lane? Every linked device, and the origin.

Each lane to a device is a source of its own, with the device's name: WebRTC, where both have it, and HTTP from the
peer's listener, where it can be reached. The planner measures them and goes on with the others where one ends. Shards
are sealed and checked by their address, so that HTTP needs nothing but a ticket, which came over the sealed link.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import aiohttp

from p2pqueue.errors import NoBulk, PeerGone, told
from p2pqueue.payload.fetching.http_line import Place, Unreachable
from p2pqueue.payload.fetching.lines import Lines
from p2pqueue.payload.fetching.source import Lane, Request, ShardMissing, Source, SourceFailed, Work
from p2pqueue.payload.limit import Limits
from p2pqueue.peers.shards.exchange import Channel, Exchange
from p2pqueue.peers.shards.inlet import Inlet, TicketRefused

BULK_AGAIN: Final = 15.0  # seconds after a failed bulk connection until it is tried again; HTTP serves meanwhile
HTTP_AGAIN: Final = 15.0  # seconds after a refused ticket, or in vain, until that lane is tried again; a new link has a new ticket
HTTP_PARALLEL: Final = 4  # connections to one peer, as far as there are cores to check what comes
HTTP_PARALLEL_FAR: Final = 8  # on a long path, where each loss slows its connection down for long
FAR: Final = 0.01  # seconds of a round trip from which on a path counts as long
SWEEP_EVERY: Final = 5.0  # seconds between two looks for connections that rest
BULK_PARALLEL: Final = 6  # shards under way in one bulk channel: some more than its window, so that it never runs dry
_WORDS: Final = 1000  # bytes of words that a peer says of a shard

_log = logging.getLogger(__name__)


class ShardPeer(Protocol):
    """What is needed of `net.peer.Peer`."""

    @property
    def device_id(self) -> str: ...  # noqa: D102
    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def http_base(self) -> str | None: ...  # noqa: D102
    @property
    def ticket(self) -> bytes | None: ...  # noqa: D102
    @property
    def lanes(self) -> frozenset[str]: ...  # noqa: D102
    @property
    def shortest_rtt(self) -> float | None: ...  # noqa: D102
    async def bulk(self) -> Any: ...  # noqa: D102


@dataclass
class _Linked:
    peer: ShardPeer
    exchange: Exchange | None = None
    no_bulk_until: float = 0.0
    no_http_until: float = 0.0
    lines: Lines | None = None  # where HTTP is possible

    def end(self) -> None:
        if self.lines is not None:
            self.lines.close()


@dataclass
class Sources:
    """The sources of a node, as long as `run` runs.

    `read` gives this device's own shards to others; `lanes` are those that may be used; `origin` is asked last;
    `is_metered` says whether bytes cost money on the way to a device; `limits` hold for what is sent.
    """

    read: Callable[[bytes], bytes]
    lanes: frozenset[str]
    origin: Callable[[], Iterable[Source]] = tuple
    is_metered: Callable[[ShardPeer], bool] = lambda peer: False
    limits: Limits = field(default_factory=Limits)
    carried: Counter[Lane] = field(default_factory=Counter)  # bytes of shards that came, by lane
    _linked: dict[str, _Linked] = field(default_factory=dict)
    _group: asyncio.TaskGroup | None = None
    _session: aiohttp.ClientSession | None = None
    _sent: int = 0  # over channels that are gone
    _counting: threading.Lock = field(default_factory=threading.Lock)

    async def run(self) -> None:
        """Carries what goes over bulk channels until it is cancelled, and closes what was opened."""
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=HTTP_PARALLEL)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False) as session:
            self._session = session
            try:
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    while True:
                        await asyncio.sleep(SWEEP_EVERY)
                        for linked in self._linked.values():
                            if linked.lines is not None:
                                linked.lines.sweep()
            finally:
                for linked in self._linked.values():
                    linked.end()
                for source in self.origin():
                    getattr(source, "rest", lambda: None)()
                self._group = self._session = None

    def http(self) -> aiohttp.ClientSession:
        """The session for HTTP, while `run` runs. Raises `SourceFailed`."""
        if self._session is None:
            raise SourceFailed("networking has not begun, or has ended")
        return self._session

    def came(self, lane: Lane, size: int) -> None:
        """Counts what came by a lane. For any thread."""
        with self._counting:
            self.carried[lane] += size

    def came_from_origin(self, size: int) -> None:
        """Counts what an origin gave."""
        self.came("origin", size)

    @property
    def sent(self) -> int:
        """Bytes of shards that went to linked devices over their bulk channels."""
        return self._sent + sum(linked.exchange.sent for linked in self._linked.values() if linked.exchange is not None)

    def up(self, peer: ShardPeer) -> None:
        """A device is linked."""
        old = self._linked.get(peer.device_id)
        if old is not None:
            old.end()
        linked = self._linked[peer.device_id] = _Linked(peer)
        if peer.http_base is not None and peer.ticket is not None:
            linked.lines = Lines(Place(peer.http_base, peer.ticket.hex()), Inlet)

    def down(self, peer: ShardPeer) -> None:
        """Its link is gone, and its channels with it."""
        linked = self._linked.get(peer.device_id)
        if linked is not None and linked.peer is peer:
            self._sent += linked.exchange.sent if linked.exchange is not None else 0
            linked.end()
            del self._linked[peer.device_id]

    def opened(self, peer: ShardPeer, channel: Channel) -> None:
        """A bulk channel is open, whichever side asked for it."""
        linked = self._linked.get(peer.device_id)
        if linked is None or linked.peer is not peer or self._group is None:
            return
        self._sent += linked.exchange.sent if linked.exchange is not None else 0
        limits, device_id = self.limits, peer.device_id
        exchange = Exchange(channel, self.read, limits.upload, lambda: limits.forbids(device_id, metered=self.is_metered(peer)))
        linked.exchange = exchange
        self._group.create_task(exchange.run(), name=f"p2pqueue-shards-{peer.device_id[:8]}")

    def now(self) -> list[Source]:
        """All sources that there are now: each lane of each device, and the origin."""
        found = [source for linked in self._linked.values() for source in self._lanes_to(linked)]
        return [*found, *self.origin()] if "origin" in self.lanes else found

    def _lanes_to(self, linked: _Linked) -> list[Source]:
        peer, now = linked.peer, time.monotonic()
        metered = self.is_metered(peer)
        found: list[Source] = []
        if "http" in self.lanes & peer.lanes and linked.lines is not None and now >= linked.no_http_until:
            found.append(_Http(self, linked, linked.lines, metered=metered))
        if "webrtc" in self.lanes and peer.path == "webrtc" and (now >= linked.no_bulk_until or not found):
            found.append(_Bulk(self, linked, metered=metered))
        return found

    async def exchange_with(self, linked: _Linked) -> Exchange:
        """The exchange over a peer's bulk channel, which is opened if need be. Raises `SourceFailed`."""
        if linked.exchange is not None and linked.exchange.channel.open:
            return linked.exchange
        try:
            channel = await linked.peer.bulk()
        except (NoBulk, PeerGone) as error:
            linked.no_bulk_until = time.monotonic() + BULK_AGAIN
            raise SourceFailed(str(error)) from error
        if linked.exchange is None or linked.exchange.channel is not channel:
            self.opened(linked.peer, channel)
        if linked.exchange is None:
            raise SourceFailed("the link has ended")
        return linked.exchange

    async def get(self, linked: _Linked, address: bytes, size: int) -> bytes:
        """A shard from the peer's listener. Raises `ShardMissing` and `SourceFailed`."""
        peer = linked.peer
        if peer.ticket is None or peer.http_base is None:
            raise SourceFailed("the other device gave no ticket")
        try:
            return await get_shard(self.http(), f"{peer.http_base}/shards/{address.hex()}", peer.ticket.hex(), size)
        except TicketRefused:
            linked.no_http_until = time.monotonic() + HTTP_AGAIN
            raise


async def get_shard(session: aiohttp.ClientSession, url: str, token: str | None, size: int) -> bytes:
    """Gets a shard of at most `size` bytes by HTTP. Raises `ShardMissing` and `SourceFailed`."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status in (404, 410):
                raise ShardMissing((await answer.content.read(_WORDS)).decode(errors="replace").strip() if answer.status == 410 else "")
            if answer.status == 401:
                raise TicketRefused(f"{answer.url.host} doesn't take its ticket any more")
            if answer.status != 200:
                raise SourceFailed(f"{answer.url.host} answers {answer.status} {answer.reason or ''}".rstrip())
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > size:
                    raise SourceFailed(f"{answer.url.host} sends more than a shard of {size} bytes")
            return bytes(body)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SourceFailed(told(error)) from error


@dataclass(frozen=True)
class _Bulk:
    sources: Sources
    linked: _Linked
    lane: Lane = "webrtc"
    parallel: int = BULK_PARALLEL
    is_last_resort: bool = False
    metered: bool = False

    @property
    def name(self) -> str:
        return self.linked.peer.device_id

    async def deliver(self, request: Request) -> None:
        """Fills the buffer of the request (`source.Delivering`)."""
        exchange = await self.sources.exchange_with(self.linked)
        self.sources.came("webrtc", await exchange.deliver(request))

    async def shard(self, address: bytes, size: int) -> bytes:
        exchange = await self.sources.exchange_with(self.linked)
        body = await exchange.shard(address, size)
        self.sources.came("webrtc", len(body))
        return body


@dataclass(frozen=True)
class _Http:
    sources: Sources
    linked: _Linked
    lines: Lines
    lane: Lane = "http"
    parallel: int = HTTP_PARALLEL
    is_last_resort: bool = False
    metered: bool = False

    @property
    def name(self) -> str:
        return self.linked.peer.device_id

    @property
    def threads(self) -> int:
        """How many connections work at once."""
        is_far = (self.linked.peer.shortest_rtt or 0.0) >= FAR
        return HTTP_PARALLEL_FAR if is_far else min(HTTP_PARALLEL, max(2, os.cpu_count() or 2))

    def carry(self, work: Work) -> None:
        """Fetches in the calling thread (`source.Carrying`)."""
        try:
            self.lines.carry(work, lambda size: self.sources.came("http", size))
        except TicketRefused:
            self.linked.no_http_until = time.monotonic() + HTTP_AGAIN
            raise
        except Unreachable:  # each attempt may take seconds
            if self.linked.peer.path == "webrtc":
                self.linked.no_http_until = time.monotonic() + HTTP_AGAIN
            raise

    async def shard(self, address: bytes, size: int) -> bytes:
        body = await self.sources.get(self.linked, address, size)
        self.sources.came("http", len(body))
        return body
