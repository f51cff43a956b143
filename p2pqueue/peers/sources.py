"""Which places can shards come from now, and by which lane? Every linked device, and the origin.

WebRTC where both devices have it, plain HTTP from the peer's listener where it doesn't form. Shards are sealed and
checked by their address, so that HTTP needs nothing but a ticket, which came over the sealed link.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import aiohttp

from p2pqueue.errors import NoBulk, PeerGone, told
from p2pqueue.payload.source import Lane, ShardMissing, Source, SourceFailed
from p2pqueue.peers.exchange import Channel, Exchange

BULK_AGAIN: Final = 15.0  # seconds after a failed bulk connection until it is tried again; HTTP serves meanwhile
HTTP_PARALLEL: Final = 4  # connections to one peer
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
    async def bulk(self) -> Any: ...  # noqa: D102


@dataclass
class _Linked:
    peer: ShardPeer
    exchange: Exchange | None = None
    no_bulk_until: float = 0.0


@dataclass
class Sources:
    """The sources of a node, as long as `run` runs.

    `read` gives this device's own shards to others; `lanes` are those that may be used; `origin` is asked last.
    """

    read: Callable[[bytes], bytes]
    lanes: frozenset[str]
    origin: Callable[[], Iterable[Source]] = tuple
    carried: Counter[Lane] = field(default_factory=Counter)  # bytes of shards that came, by lane
    _linked: dict[str, _Linked] = field(default_factory=dict)
    _group: asyncio.TaskGroup | None = None
    _session: aiohttp.ClientSession | None = None
    _sent: int = 0  # over channels that are gone

    async def run(self) -> None:
        """Carries what goes over bulk channels until it is cancelled, and closes what was opened."""
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=HTTP_PARALLEL)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False) as session:
            self._session = session
            try:
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    await asyncio.get_running_loop().create_future()
            finally:
                self._group = self._session = None

    def http(self) -> aiohttp.ClientSession:
        """The session for HTTP, while `run` runs. Raises `SourceFailed`."""
        if self._session is None:
            raise SourceFailed("networking has not begun, or has ended")
        return self._session

    def came_from_origin(self, size: int) -> None:
        """Counts what an origin gave."""
        self.carried["origin"] += size

    @property
    def sent(self) -> int:
        """Bytes of shards that went to linked devices over their bulk channels."""
        return self._sent + sum(linked.exchange.sent for linked in self._linked.values() if linked.exchange is not None)

    def up(self, peer: ShardPeer) -> None:
        """A device is linked."""
        self._linked[peer.device_id] = _Linked(peer)

    def down(self, peer: ShardPeer) -> None:
        """Its link is gone, and its channels with it."""
        linked = self._linked.get(peer.device_id)
        if linked is not None and linked.peer is peer:
            self._sent += linked.exchange.sent if linked.exchange is not None else 0
            del self._linked[peer.device_id]

    def opened(self, peer: ShardPeer, channel: Channel) -> None:
        """A bulk channel is open, whichever side asked for it."""
        linked = self._linked.get(peer.device_id)
        if linked is None or linked.peer is not peer or self._group is None:
            return
        self._sent += linked.exchange.sent if linked.exchange is not None else 0
        exchange = linked.exchange = Exchange(channel, self.read)
        self._group.create_task(exchange.run(), name=f"p2pqueue-shards-{peer.device_id[:8]}")

    def now(self) -> list[Source]:
        """All sources that there are now."""
        found: list[Source] = []
        for linked in self._linked.values():
            source = self._best(linked)
            if source is not None:
                found.append(source)
        if "origin" in self.lanes:
            found += self.origin()
        return found

    def _best(self, linked: _Linked) -> Source | None:
        peer = linked.peer
        if "webrtc" in self.lanes and peer.path == "webrtc" and time.monotonic() >= linked.no_bulk_until:
            return _Bulk(self, linked)
        if "http" in self.lanes and peer.http_base is not None and peer.ticket is not None:
            return _Http(self, linked)
        return _Bulk(self, linked) if "webrtc" in self.lanes and peer.path == "webrtc" else None

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
        if peer.ticket is None:
            raise SourceFailed("the other device gave no ticket")
        return await get_shard(self.http(), f"{peer.http_base}/shards/{address.hex()}", peer.ticket.hex(), size)


async def get_shard(session: aiohttp.ClientSession, url: str, token: str | None, size: int) -> bytes:
    """Gets a shard of at most `size` bytes by HTTP. Raises `ShardMissing` and `SourceFailed`."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status in (404, 410):
                raise ShardMissing((await answer.content.read(_WORDS)).decode(errors="replace").strip() if answer.status == 410 else "")
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

    @property
    def name(self) -> str:
        return self.linked.peer.device_id

    async def shard(self, address: bytes, size: int) -> bytes:
        exchange = await self.sources.exchange_with(self.linked)
        body = await exchange.shard(address, size)
        self.sources.carried["webrtc"] += len(body)
        return body


@dataclass(frozen=True)
class _Http:
    sources: Sources
    linked: _Linked
    lane: Lane = "http"
    parallel: int = HTTP_PARALLEL
    is_last_resort: bool = False

    @property
    def name(self) -> str:
        return self.linked.peer.device_id

    async def shard(self, address: bytes, size: int) -> bytes:
        body = await self.sources.get(self.linked, address, size)
        self.sources.carried["http"] += len(body)
        return body
