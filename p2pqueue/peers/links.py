"""What goes over the links of a node? Rows, signals and shards, each to whom it belongs.

Imported when the first other device comes to be known: the network libraries take a third of a second, and as much
memory as all the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from p2pqueue.errors import MalformedMessage, P2PQueueError
from p2pqueue.identity.roles import allows, relays
from p2pqueue.net import codes
from p2pqueue.net.addresses import AddressBook
from p2pqueue.net.mesh import Mesh
from p2pqueue.net.opening import bracketed
from p2pqueue.net.options import Listening, NetOptions
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.source import Source
from p2pqueue.payload.origins.access import AnyOrigin, open_origin
from p2pqueue.peers.greeting import greet
from p2pqueue.peers.hearsay import Hearsay
from p2pqueue.peers.linked import LinkedPeer
from p2pqueue.peers.ordering import Ordering
from p2pqueue.peers.pairing import Invitations
from p2pqueue.peers.parts import Parts
from p2pqueue.peers.replication import Replication
from p2pqueue.peers.seen import Seen
from p2pqueue.peers.shards.metered import Metered
from p2pqueue.peers.shards.retiring import Retiring
from p2pqueue.peers.shards.serving import ShardRoutes
from p2pqueue.peers.shards.sources import Sources
from p2pqueue.peers.shards.uploading import Uploader
from p2pqueue.peers.shards.whereabouts import called, holders
from p2pqueue.peers.signals import Signal, Signals
from p2pqueue.peers.twin import Twin
from p2pqueue.settings import Settings

if TYPE_CHECKING:
    from p2pqueue.identity.keys import Identity
    from p2pqueue.net.peer import Peer
    from p2pqueue.peers.mail.mailbox import Mailbox
    from p2pqueue.peers.mail.rendezvous import Rendezvous

PARTING: Final = 1.0  # seconds at most that a stop waits for peers to have what was written last
PUSHED_WITHIN: Final = 0.2  # seconds in which what was written last is under way, and counts as such
_PARTING_LOOKS: Final = 50

_log = logging.getLogger(__name__)


class Links:
    """The links of one node, and what goes over them."""

    def __init__(self, parts: Parts, book: AddressBook) -> None:
        self._parts = parts
        identity, settings, shelf = parts.identity, parts.settings, parts.shelf
        self.twin = Twin(is_usable=lambda: self.mesh.is_online and self.mesh.has_interface, on_change=parts.on_twin)
        self.listening: Listening | None = None
        self.signals = Signals(
            device_id=identity.device_id, now=time.monotonic, random=os.urandom, send=lambda peer, data: peer.send_soon("signal", data),
            # Over WebRTC a message waits while what was sent before is not acknowledged.
            send_now=lambda peer, data: cast("Peer", peer).link.outbox.offer("signal", data),
            on_signal=self._heard, hello=parts.hello, relays=relays(identity.role), may_relay=relays,
        )  # fmt: skip
        self.seen = Seen(parts.store)
        self.hurried = asyncio.Event()  # there is something new to tell of this node
        self.hearsay = Hearsay(
            live=parts.live, roster=parts.roster, members=parts.members, emit=self._emit, look=parts.look, obey=parts.obey
        )
        self.replication = Replication(
            parts.store, device_id=identity.device_id, relays=relays(identity.role), may_relay=relays, drop=self._drop
        )  # fmt: skip
        self.ordering = Ordering(parts.store, emit=self._emit, is_linked=lambda: bool(self.mesh.peers))
        metered = Metered(settings.metered, parts.limits)

        def is_metered(peer: Any) -> bool:  # a peer that doesn't listen is reached the way that its link came
            return metered.leads(f"//{bracketed(peer.address[0])}")

        self.sources = Sources(
            shelf.shard, frozenset(settings.lanes), self._origins, is_metered=is_metered, limits=parts.limits
        )  # fmt: skip
        self.fetcher = Fetcher(shelf, self.sources.now, limits=parts.limits, holders=self._holders, called=self._called)
        self.routes = ShardRoutes(shelf, lambda request: self.mesh.bearer(request), self.fetcher.limits, is_metered=is_metered)
        self.origin: AnyOrigin | None = None
        self.uploader: Uploader | None = None
        self.retiring: Retiring | None = None
        if settings.origin:
            self.origin = open_origin(settings.origin, self.sources.http, self.sources.came_from_origin, metered)
        if self.origin is not None and "origin" in settings.lanes:
            self.retiring = Retiring(
                parts.store, shelf, self.origin, describe=self.fetcher.describe, is_on=lambda: self.mesh.is_online
            )  # fmt: skip
            if settings.origin_policy != "never":
                self.uploader = Uploader(
                    shelf, self.origin, parts.wanted, note=self.retiring.note, take=parts.limits.upload.take, forbids=self._forbids_upload
                )  # fmt: skip
        self.invitations = Invitations(identity=identity, write=parts.store.write, announce=self._announce, addresses=self.addresses)
        self.mesh = Mesh(
            identity=identity, admit=parts.members.admit, known=parts.members.known, options=_options(settings), book=book,
            on_up=self._up, on_down=self._down, on_message=self._received, pairing=self.invitations.serve,
            routes=self.routes.routes if "http" in settings.lanes else (), on_bulk=self.sources.opened, on_clone=self.twin.met,
            on_dead=self._died,
        )  # fmt: skip
        self.rendezvous: Rendezvous | None = None
        self.mailbox: Mailbox | None = None
        if self.origin is not None and allows(identity.role, "space key"):
            self._open_mailbox(self.origin)

    def _open_mailbox(self, origin: AnyOrigin) -> None:
        from p2pqueue.peers.mail.mailbox import Mailbox
        from p2pqueue.peers.mail.rendezvous import Rendezvous

        parts, mesh = self._parts, self.mesh
        posts = parts.settings.origin_policy != "never" and allows(parts.identity.role, "read")
        self.rendezvous = Rendezvous(
            origin, parts.identity, parts.members, net=mesh.meeting, posts=posts, is_on=lambda: mesh.is_online, linked=mesh.peers.keys
        )  # fmt: skip
        self.mailbox = Mailbox(
            parts.store, origin, parts.identity, parts.members, is_on=lambda: mesh.is_online, posts=posts, linked=mesh.peers.keys,
            brought=self.replication.brought, dropped=self.replication.dropped, rendezvous=self.rendezvous,
        )  # fmt: skip

    async def begin(self) -> None:
        """Begins to listen, to look and to dial. Raises `ConfigError` and `WorldError` where it can't listen."""
        self.listening = await self.mesh.online()

    async def end(self, *, stopping: bool) -> None:
        """Lets peers have what was written last, says goodbye, and ends all links; for good, or as one that goes on by itself."""
        if self.mesh.peers:
            await asyncio.sleep(PUSHED_WITHIN)
        for _ in range(_PARTING_LOOKS):
            if not any(each["ahead"] for each in self.replication.status().values()):
                break
            await asyncio.sleep(PARTING / _PARTING_LOOKS)
        if self.mailbox is not None:
            await self.mailbox.part()
        await (self.mesh.close() if stopping else self.mesh.offline())
        if self.rendezvous is not None:
            await self.rendezvous.part()
        await self.seen.save()
        self.listening = None

    def rename(self, identity: Identity) -> None:
        """Tells others from now on that this device has another label."""
        self.mesh.identity = self.invitations.identity = identity

    async def run(self) -> None:
        """Carries everything until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in (self.replication, self.ordering, self.sources, self.twin, self.seen):
                group.create_task(each.run())
            group.create_task(greet(self.signals, self.hurried))
            if self.retiring is not None:
                group.create_task(self.retiring.run())
            if self.uploader is not None:
                group.create_task(self.uploader.run())
            if self.mailbox is not None:
                group.create_task(self.mailbox.run())
            if self.rendezvous is not None:
                group.create_task(self.rendezvous.run())

    # -- what may be asked ------------------------------------------------------------------------------------

    def addresses(self) -> list[str]:
        """Where other devices reach this one, as `HOST:PORT`."""
        listening = self.listening
        return [] if listening is None else [f"{bracketed(address)}:{listening.port}" for address in listening.addresses]

    def peers(self) -> dict[str, dict[str, Any]]:
        """The linked devices by their ids, and how they are linked."""
        replication = self.replication.status()
        return {each["device"]: {**each, "replication": replication.get(each["device"])} for each in self.mesh.status()["peers"]}

    def status(self) -> Mapping[str, Any]:
        """How networking stands, as plain values."""
        return {
            **self.mesh.status(),
            "peers": list(self.peers().values()),
            "trouble": self.twin.trouble,
            "carried": dict(self.sources.carried),
            "sent": {"http": self.routes.sent, "webrtc": self.sources.sent},
            "origin": None if self.origin is None else self.origin.name,
            "mailbox": None if self.mailbox is None else self.mailbox.status(),
            "meeting": None if self.rendezvous is None else self.rendezvous.status(),
            "uploads": None if self.uploader is None else {"sent": self.uploader.sent, "trouble": self.uploader.trouble},
        }

    # -- what the net says ------------------------------------------------------------------------------------

    def _up(self, peer: Peer) -> None:
        self._parts.roster.linked(time.monotonic())
        self.sources.up(peer)
        self.replication.up(peer)
        self.signals.up(peer)
        self._parts.on_linked()

    def _down(self, peer: Peer, why: str) -> None:
        self.signals.down(peer)
        self.replication.down(peer)
        self.sources.down(peer)
        self.routes.down(peer)
        self.seen.lost(peer.device_id, peer.answered_at)
        self._parts.roster.gone(peer.device_id)
        in_order = why.startswith(codes.WORDS[codes.BYE]) and codes.GOES_OFFLINE not in why
        if in_order:
            self._parts.roster.foretold.forget(peer.device_id)
        self._parts.on_gone(peer.device_id, in_order)
        if self.uploader is not None:
            self.uploader.wake()
        if self.mailbox is not None:
            self.mailbox.hurry()

    def _died(self, device_id: str) -> None:
        _log.info("%s died: its connection ended without a word, and nobody listens there any more", device_id[:8])
        self._parts.on_gone(device_id, True)

    def _received(self, peer: Peer, topic: str, message: bytes) -> None:
        if topic == "rows":
            self.replication.received(peer, message)
        elif topic == "signal":
            try:
                self.signals.received(peer, message)
            except MalformedMessage as error:
                peer.drop(codes.MALFORMED, str(error))

    def _drop(self, peer: LinkedPeer, why: str) -> None:
        linked = self.mesh.peers.get(peer.device_id)
        if linked is peer:
            linked.drop(codes.MALFORMED, why)

    def _heard(self, signal: Signal, peer: LinkedPeer) -> None:
        self.hearsay.heard(signal, peer)

    def _emit(self, kind: str, **fields: Any) -> None:
        try:
            self.signals.emit(kind, **fields)
        except P2PQueueError as error:
            _log.debug("a signal %s was not sent: %s", kind, error)

    def _announce(self, nameplate: str | None) -> None:
        self.mesh.set_nameplate(nameplate)

    async def _holders(self, capability: str) -> Sequence[tuple[str, str]]:
        here = self._parts.identity.device_id
        return await self._parts.store.read(lambda connection: holders(connection, capability, here=here))

    def _called(self, source: str) -> str:
        return called(self._parts.members.known(), source)

    def _forbids_upload(self) -> str | None:
        if not self.mesh.is_online:
            return "this device is offline"
        return self._parts.limits.forbids("origin", metered=self.origin is not None and self.origin.metered)

    def _origins(self) -> Sequence[Source]:
        return () if self.origin is None else (self.origin,)


def _options(settings: Settings) -> NetOptions:
    return NetOptions(
        listen=settings.listen or None, peers=settings.peers, discovery=settings.discovery, interfaces=settings.interfaces,
        lanes=frozenset(settings.lanes), rtc="webrtc" in settings.lanes,
    )  # fmt: skip
