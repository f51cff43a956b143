"""What does a node do with the other devices of its space? Everything that this room holds, put together.

Links come from `net`; over them go rows, signals and shards. As long as no other device is known and none is invited,
nothing listens and nothing is imported that a device by itself has no use for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.errors import ConfigError, MalformedMessage, P2PQueueError, WorldError
from p2pqueue.identity import members as reading
from p2pqueue.identity.keys import Identity
from p2pqueue.identity.members import Members
from p2pqueue.identity.roles import relays
from p2pqueue.net import codes
from p2pqueue.net.mesh import Mesh
from p2pqueue.net.opening import bracketed
from p2pqueue.net.options import Listening, NetOptions
from p2pqueue.payload.fetch import Fetched, Fetcher
from p2pqueue.payload.origin_client import OriginClient, parse_origin
from p2pqueue.payload.shelf import Shelf
from p2pqueue.payload.source import Source
from p2pqueue.peers import book as address_book
from p2pqueue.peers.greeting import greet
from p2pqueue.peers.hearsay import Hearsay
from p2pqueue.peers.linked import LinkedPeer
from p2pqueue.peers.pairing import Invitations
from p2pqueue.peers.replication import Replication
from p2pqueue.peers.serving import ShardRoutes
from p2pqueue.peers.signals import Signals
from p2pqueue.peers.sources import Sources
from p2pqueue.peers.uploading import Policy, Uploader
from p2pqueue.replica.store import Store
from p2pqueue.settings import Settings
from p2pqueue.workers.live import Live
from p2pqueue.workers.presence import Roster

if TYPE_CHECKING:
    from p2pqueue.net.peer import Peer

AGAIN_AFTER: Final = 30.0  # seconds until networking is tried again that could not begin
SAVE_EVERY: Final = 60.0  # seconds between two looks whether addresses are to be kept
PARTING: Final = 1.0  # seconds at most that a stop waits for peers to have what was written last
PARTING_LOOKS: Final = 50

_SPACE_TABLES = frozenset({"devices", "standings", "space", "authors"})
_log = logging.getLogger(__name__)


class Network:
    """The networking of one node."""

    def __init__(
        self, *, store: Store, shelf: Shelf, identity: Identity, settings: Settings, live: Live, roster: Roster,
        hello: Callable[[], dict[str, Any]], look: Callable[[str | None], object], on_gone: Callable[[str, bool], object],
        wanted: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:  # fmt: skip
        """Takes the parts of a node; `on_gone` is told of each device whose link ended, and whether it said goodbye."""
        self._store = store
        self._identity = identity
        self._settings = settings
        self._roster = roster
        self._on_gone = on_gone
        self.members = Members(identity)
        self.clone: str | None = None  # in words, where another running device has the key of this one
        self.signals = Signals(
            device_id=identity.device_id, now=time.monotonic, random=os.urandom, send=lambda peer, data: peer.send_soon("signal", data),
            on_signal=self._heard, hello=hello, relays=relays(identity.role), may_relay=relays,
        )  # fmt: skip
        self.hearsay = Hearsay(live=live, roster=roster, members=self.members, emit=self._emit, look=look)
        self.replication = Replication(
            store, device_id=identity.device_id, relays=relays(identity.role), may_relay=relays,
            drop=self._drop,
        )  # fmt: skip
        self.sources = Sources(shelf.shard, frozenset(settings.lanes), self._origins)
        self.fetcher = Fetcher(shelf, self.sources.now)
        self.routes = ShardRoutes(shelf.shard, lambda request: self._mesh is not None and self._mesh.bearer(request) is not None)
        self.uploader: Uploader | None = None
        self._origin: OriginClient | None = None
        if settings.origin and "origin" in settings.lanes:
            self._origin = OriginClient(parse_origin(settings.origin), self.sources.http, self.sources.came_from_origin)
            if settings.origin_policy != "never":
                self.uploader = Uploader(shelf, self._origin, wanted)
        self._mesh: Mesh | None = None
        self._wanted_on = settings.network  # `offline` and `online` change it
        self._wake = asyncio.Event()
        self._inviting = 0
        self.listening: Listening | None = None
        self.trouble: str | None = None
        self._invitations = Invitations(
            identity=identity, write=store.write, announce=self._announce, addresses=lambda: _addresses(self.listening)
        )  # fmt: skip

    # -- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begins networking, if there is anybody to link to. Raises `ConfigError` for what can't be meant."""
        await self._read_members()
        options = NetOptions(
            listen=self._settings.listen or None, peers=self._settings.peers, discovery=self._settings.discovery,
            interfaces=self._settings.interfaces, lanes=frozenset(self._settings.lanes), rtc="webrtc" in self._settings.lanes,
        )  # fmt: skip
        self._book = await address_book.load(self._store)
        self._mesh = Mesh(
            identity=self._identity, admit=self.members.admit, known=self.members.known, options=options, book=self._book,
            on_up=self._up, on_down=self._down, on_message=self._received, routes=self.routes.routes, pairing=self._invitations.serve,
            on_bulk=self.sources.opened, on_clone=self._cloned,
        )  # fmt: skip
        await self._settle()

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            loops = [self.replication.run, self.sources.run, lambda: greet(self.signals), self._follow, self._keep, self._keep_book]
            if self.uploader is not None:
                loops.append(self.uploader.run)
            for loop in loops:
                group.create_task(loop())

    async def close(self) -> None:
        """Lets peers have what was written last, says goodbye and ends all networking."""
        if self._mesh is None or not self._mesh.is_online:
            return
        for _ in range(PARTING_LOOKS):
            if not any(each["ahead"] for each in self.replication.status().values()):
                break
            await asyncio.sleep(PARTING / PARTING_LOOKS)
        await self._mesh.close()
        await address_book.save(self._store, self._book)

    async def offline(self) -> None:
        """Stops all networking until `online`."""
        self._wanted_on = False
        await self._settle()

    async def online(self) -> None:
        """Begins all networking anew."""
        self._wanted_on = True
        await self._settle()

    # -- what may be asked ------------------------------------------------------------------------------------

    async def fetch(self, capability: str, on_progress: Callable[[int, int], None] | None = None) -> Fetched:
        """Brings a file here. Raises `PayloadUnavailable` and what `Fetcher.fetch` raises."""
        return await self.fetcher.fetch(capability, on_progress=on_progress)

    async def invite(self, fields: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Tells what becomes of a code, as `Invitations.asked` does; networking begins for it if need be."""
        self._inviting += 1
        try:
            await self._settle()
            async with aclosing(self._invitations.asked(fields)) as events:
                async for event in events:
                    yield event
                    if "joined" in event:
                        await self._read_members()
        finally:
            self._inviting -= 1
            await self._settle()

    def peers(self) -> dict[str, dict[str, Any]]:
        """The linked devices by their ids, and how they are linked."""
        found = self._mesh.status()["peers"] if self._mesh is not None else []
        replication = self.replication.status()
        return {each["device"]: {**each, "replication": replication.get(each["device"])} for each in found}

    def status(self) -> dict[str, Any]:
        """How networking stands, as plain values."""
        told = self._mesh.status() if self._mesh is not None else {"online": False}
        return {
            **told,
            "peers": list(self.peers().values()),
            "wanted": self._wanted_on,
            "trouble": self.trouble or self.clone,
            "carried": dict(self.sources.carried),
            "sent": {"http": self.routes.sent, "webrtc": self.sources.sent},
            "origin": None if self._origin is None else self._origin.name,
            "uploads": None if self.uploader is None else {"sent": self.uploader.sent, "trouble": self.uploader.trouble},
        }

    @property
    def addresses(self) -> list[str]:
        """Where other devices reach this one, as `HOST:PORT`."""
        return _addresses(self.listening)

    def linked(self, device_id: str) -> bool:
        """Says whether a device is linked now."""
        return self._mesh is not None and device_id in self._mesh.peers

    @property
    def policy(self) -> Policy:
        """What is put on the origin."""
        found = self._settings.origin_policy
        return found if found in ("never", "always") else "needed"  # type: ignore[return-value]

    # -- beginning and ending ---------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Begins or ends networking as it should be now."""
        mesh = self._mesh
        if mesh is None:
            return
        asked = bool(self._settings.listen or self._settings.peers or self._inviting or self.members.known())
        if self._wanted_on and asked and not mesh.is_online:
            try:
                self.listening, self.trouble = await mesh.online(), None
            except WorldError as error:
                self.trouble = str(error)
                _log.warning("networking can't begin: %s", error)
        elif mesh.is_online and not self._wanted_on:
            await mesh.offline()
            self.listening = None

    async def _keep(self) -> None:
        """Tries again to begin what could not, and begins when the first other device comes to be known."""
        while True:
            self._wake.clear()
            try:
                async with asyncio.timeout(AGAIN_AFTER):
                    await self._wake.wait()
            except TimeoutError:
                pass
            try:
                await self._settle()
            except ConfigError as error:
                self.trouble = str(error)

    async def _keep_book(self) -> None:
        kept = self._book.dump()
        while True:
            await asyncio.sleep(SAVE_EVERY)
            now = self._book.dump()
            if now != kept:
                await address_book.save(self._store, self._book)
                kept = now

    async def _follow(self) -> None:
        """Takes in what rows say of devices."""
        async with self._store.subscribe() as changes:
            async for touched in changes:
                if touched is None or any(table in _SPACE_TABLES for table, _ in touched):
                    await self._read_members()

    async def _read_members(self) -> None:
        before = self.members.known()
        self.members.refresh(await self._store.read(reading.read))
        known = self.members.known()
        self._roster.others = bool(known)
        if known != before:
            self._wake.set()
        if self._mesh is not None and self._mesh.is_online:
            self._mesh.look_again()

    # -- what the net says ------------------------------------------------------------------------------------

    def _up(self, peer: Peer) -> None:
        self._roster.linked(time.monotonic())
        self.sources.up(peer)
        self.replication.up(peer)
        self.signals.up(peer)

    def _down(self, peer: Peer, why: str) -> None:
        self.signals.down(peer)
        self.replication.down(peer)
        self.sources.down(peer)
        self._roster.gone(peer.device_id)
        self._on_gone(peer.device_id, why.startswith(codes.WORDS[codes.BYE]))
        if self.uploader is not None:
            self.uploader.wake()

    def _received(self, peer: Peer, topic: str, message: bytes) -> None:
        if topic == "rows":
            self.replication.received(peer, message)
        elif topic == "signal":
            try:
                self.signals.received(peer, message)
            except MalformedMessage as error:
                peer.drop(codes.MALFORMED, str(error))

    def _drop(self, peer: LinkedPeer, why: str) -> None:
        linked = self._mesh.peers.get(peer.device_id) if self._mesh is not None else None
        if linked is peer:
            linked.drop(codes.MALFORMED, why)

    def _heard(self, signal: Any, peer: Any) -> None:
        self.hearsay.heard(signal, peer)

    def _emit(self, kind: str, **fields: Any) -> None:
        try:
            self.signals.emit(kind, **fields)
        except P2PQueueError as error:
            _log.debug("a signal %s was not sent: %s", kind, error)

    def _cloned(self, words: str) -> None:
        if self.clone is None:
            _log.error("%s; `p2pqueue identity renew` gives this home a key of its own", words)
        self.clone = words

    def _announce(self, nameplate: str | None) -> None:
        if self._mesh is not None:
            self._mesh.set_nameplate(nameplate)

    def _origins(self) -> Sequence[Source]:
        return () if self._origin is None else (self._origin,)


def _addresses(listening: Listening | None) -> list[str]:
    return [] if listening is None else [f"{bracketed(address)}:{listening.port}" for address in listening.addresses]
