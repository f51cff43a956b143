"""How does a node find the other devices of its space, and stay linked to them?

The mesh owns the listener, mDNS, the dialling and every link. `offline` ends them all, `online` begins anew.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from aiohttp import web
from blake3 import blake3

from p2pqueue import __version__
from p2pqueue.errors import ConfigError
from p2pqueue.identity.keys import Identity
from p2pqueue.net import codes, opening
from p2pqueue.net.addresses import DEFAULT_PORT, AddressBook, Endpoint, endpoint
from p2pqueue.net.dialler import Dialler
from p2pqueue.net.dialling import DialSchedule
from p2pqueue.net.discovery import Discovery, Sighting
from p2pqueue.net.door import Door
from p2pqueue.net.greeting import Admit, Greeted, Refused
from p2pqueue.net.hello import PROTOCOLS, Hello
from p2pqueue.net.interfaces import InterfaceWatch, is_local
from p2pqueue.net.link import Beat
from p2pqueue.net.listener import Listener
from p2pqueue.net.meeting import Meeting
from p2pqueue.net.notes import TICKET_SIZE, About
from p2pqueue.net.options import Listening, NetOptions
from p2pqueue.net.peer import Peer
from p2pqueue.net.pipe import AnyPipe
from p2pqueue.net.reception import Pairing, Reception
from p2pqueue.net.roster import OnMessage, Roster
from p2pqueue.net.supervision import supervised
from p2pqueue.net.vanished import Vanished

if TYPE_CHECKING:
    from p2pqueue.net.webrtc.bulk import BulkChannel
    from p2pqueue.net.webrtc.direct import Direct

__all__ = ["Listening", "Mesh", "NetOptions"]

LEAVE_WAIT = 2.0  # seconds for all links to end on a goodbye


class Mesh:
    """The links of this device to all others of its space.

    :param admit: says of a chain of certificates whose it is, or in words why it may not link.
    :param known: device id → label of every device to be linked to; this device in it is ignored.
    :param book: where devices were reached before.
    :param on_message: gets the messages of each peer; like the others it may neither wait nor raise.
    :param pairing: speaks with a device that was invited; without it pairing is refused.
    :param on_bulk: gets each connection for large transfers, whichever side asked for it.
    :param direct: makes the direct connections to a peer; tests give their own.
    :param on_clone: told where another device runs with the key of this one.
    :param on_dead: told which device is known to have died, and not only to be out of reach.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        admit: Admit,
        known: Callable[[], Mapping[str, str]],
        options: NetOptions,
        book: AddressBook,
        on_up: Callable[[Peer], None],
        on_down: Callable[[Peer, str], None],
        on_message: OnMessage,
        routes: Sequence[web.RouteDef] = (),
        pairing: Pairing | None = None,
        on_bulk: Callable[[Peer, BulkChannel], None] | None = None,
        direct: Callable[[Peer], Direct] | None = None,
        on_clone: Callable[[str], None] | None = None,
        on_dead: Callable[[str], None] | None = None,
        beat: Beat = Beat(),  # noqa: B008
        hello: Hello = Hello(*PROTOCOLS, __version__),  # noqa: B008
    ) -> None:
        self.options = options
        self.identity = identity
        self._admit = admit
        self._known = known
        self._book = book
        self._named = [endpoint(peer, default_port=DEFAULT_PORT) for peer in options.peers]
        self._direct = direct
        self._vanished = Vanished(on_dead)
        self._on_bulk = on_bulk
        self._watch = InterfaceWatch(options.interfaces)
        self._schedule = DialSchedule(book, is_local=self._is_local)
        self._roster = Roster(
            identity.device_id, on_up=on_up, on_down=self._down(on_down), on_message=on_message,
            on_twin=lambda peer, said: self._reception.twins.heard(peer, said), is_local=self._is_local, equip=self._equip, beat=beat,
        )  # fmt: skip
        self._door = Door()
        self._reception = Reception(
            identity, hello=hello, admit=admit, about=self._about, roster=self._roster, door=self._door,
            on_linked=self._linked, on_clone=on_clone,
        )  # fmt: skip
        self._reception.pairing = pairing
        self._listener = Listener(options.listen, on_link=self._reception.came, routes=routes, door=self._door)
        self._dialler = Dialler(
            self._schedule, book, desk=self._reception.desk, adopt=self._met, wanted=self._wanted, is_linked=self.peers.__contains__,
            on_nobody=self._vanished.refused,
        )  # fmt: skip
        self.meeting = Meeting(
            self._reception, self._schedule, self._dialler, book=book, watch=self._watch, listener=self._listener, adopt=self._met
        )  # fmt: skip
        self._discovery: Discovery | None = None
        self._nameplate: str | None = None
        self._running: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._dialling: asyncio.Task[None] | None = None

    # -- life -------------------------------------------------------------------------------------------------

    async def start(self) -> Listening:
        """Begins to listen, to look and to dial. Raises `ConfigError` and `WorldError` where it can't listen."""
        await self._load_direct()
        async with AsyncExitStack() as stack:
            bound = await self._listener.start()
            stack.push_async_callback(self._listener.close)
            if self.options.discovery:
                await self._start_discovery(bound.port)
            self._reception.is_open, now = True, time.monotonic()
            for host, port in self._named:
                self._schedule.add_peer(host, port, now)
            self._schedule.reset(now)
            started = asyncio.Event()
            self._running = asyncio.get_running_loop().create_task(self._run(started), name="p2pqueue-mesh")
            await started.wait()
            stack.pop_all()
        addresses = tuple(str(address.ip) for interface in self._watch.chosen for address in interface.addresses)
        return Listening(bound.host, bound.port, (bound.host,) if bound.host else addresses)

    async def close(self, *, reason: str = "its node stops") -> None:
        """Says goodbye to everybody and ends all networking."""
        running, self._running = self._running, None
        if running is None:
            return
        self._reception.is_open = False
        try:
            if self._dialling is not None:
                self._dialling.cancel()
            async with asyncio.TaskGroup() as group:
                for peer in self.peers.values():
                    group.create_task(peer.link.leave(reason))
            async with asyncio.timeout(LEAVE_WAIT):
                await self._roster.emptied()
        except TimeoutError:
            pass
        finally:
            running.cancel()
            await asyncio.wait([running])
            for peer in list(self.peers.values()):
                peer.drop(codes.BYE, reason)
            discovery, self._discovery = self._discovery, None
            if discovery is not None:
                await discovery.close()
            await self._listener.close()

    async def offline(self) -> None:
        """Ends all networking until `online`."""
        await self.close(reason=codes.GOES_OFFLINE)

    async def online(self) -> Listening:
        """Begins all networking anew, on the port that it had where that is still free."""
        return await self.start()

    @property
    def is_online(self) -> bool:
        """Says whether networking goes on."""
        return self._running is not None

    @property
    def has_interface(self) -> bool:
        """Says whether there is any interface by which a peer may be reached."""
        return bool(self._watch.chosen)

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The devices that are linked now, by their ids."""
        return self._roster.peers

    async def _load_direct(self) -> None:
        """Imports aiortc, which takes a fifth of a second, beside everything else."""
        if self._direct is None and self.options.rtc and "webrtc" in self.options.lanes:
            directing = await asyncio.to_thread(importlib.import_module, "p2pqueue.net.webrtc.directing")
            self._direct = self.meeting.directing = directing.Directing(
                self.identity, interfaces=lambda: self._watch.chosen, loopback="lo" in self.options.interfaces,
                on_bulk=self._on_bulk,
            )  # fmt: skip

    @property
    def _lanes(self) -> frozenset[str]:
        return self.options.lanes if self._direct is not None else self.options.lanes - {"webrtc"}

    async def _run(self, started: asyncio.Event) -> None:
        async with opening.session() as client, asyncio.TaskGroup() as group:
            self._group = group
            self._dialling = group.create_task(supervised(lambda: self._dialler.run(client)))
            started.set()
            await supervised(self._follow_interfaces)

    # -- what may be asked ------------------------------------------------------------------------------------

    def dial(self, *peers: str) -> None:
        """Dials these addresses too, from now on. Raises `ConfigError` in words."""
        now = time.monotonic()
        for peer in peers:
            try:
                host, port = endpoint(peer, default_port=DEFAULT_PORT)
            except ValueError as error:
                raise ConfigError(str(error)) from None
            if (host, port) not in self._named:
                self._named.append((host, port))
            self._schedule.add_peer(host, port, now)
        self._dialler.hurry()

    def look_again(self) -> None:
        """Who is known, or may link, has changed: links are checked anew, and whoever is new is dialled."""
        for peer in list(self.peers.values()):
            outcome = self._admit(peer.link.greeted.chain)
            if isinstance(outcome, Refused):
                peer.drop(codes.REFUSED, outcome.words)
            else:
                peer.role, peer.label = outcome.role, outcome.label or peer.label
        self._dialler.hurry()

    @property
    def pairing(self) -> Pairing | None:
        """Who speaks with a device that was invited; None refuses."""
        return self._reception.pairing

    @pairing.setter
    def pairing(self, pairing: Pairing | None) -> None:
        self._reception.pairing = pairing

    def set_nameplate(self, nameplate: str | None) -> None:
        """Shows an invitation in mDNS while it is open."""
        self._nameplate = nameplate
        if self._discovery is not None:
            self._discovery.set_nameplate(nameplate)

    def bearer(self, request: web.Request) -> Peer | None:
        """The linked device whose ticket an HTTP request shows as `Authorization: Bearer …` in hexadecimal digits."""
        kind, _, shown = request.headers.get("Authorization", "").partition(" ")
        found = self._roster.with_ticket(shown)
        if found is not None and kind == "Bearer":
            self._door.vouched(request.transport)
            return found
        return None

    def status(self) -> dict[str, Any]:
        """What is linked and how, and what stands in the way, as plain values."""
        now = time.monotonic()
        bound = self._listener.bound
        return {
            "online": self.is_online,
            "listening": None if bound is None or not self.is_online else {"host": bound.host, "port": bound.port},
            "interfaces": [
                {"name": interface.name, "addresses": [str(address.ip) for address in interface.addresses]}
                for interface in self._watch.chosen
            ],
            "discovery": {"on": self.options.discovery, "trouble": self._discovery.trouble if self._discovery is not None else None},
            "peers": [peer.status(now) for peer in self.peers.values()],
            "refused": [{"address": list(trouble.address), "why": trouble.words} for trouble in self._dialler.troubles],
            "unreached": self._dialler.unreached(now),
        }

    # -- finding ----------------------------------------------------------------------------------------------

    async def _start_discovery(self, port: int) -> None:
        self._discovery = Discovery(
            port=port,
            tag=lambda instance: blake3(instance, key=self.identity.space_key).digest(),
            protocol=(self._reception.desk.hello.lowest, self._reception.desk.hello.highest),
            interfaces=self._watch,
            on_sighting=self._sighted,
            on_lost=self._schedule.unsighted,
        )
        self._discovery.set_nameplate(self._nameplate)
        await self._discovery.start()

    def _sighted(self, sighting: Sighting) -> None:
        if sighting.ours:
            self._schedule.sighted(sighting.instance, sighting.addresses, time.monotonic())
            self._dialler.hurry()

    async def _follow_interfaces(self) -> None:
        async for _ in self._watch.changes():
            self._schedule.reset(time.monotonic())
            self._dialler.hurry()
            for peer in self.peers.values():
                if peer.direct is not None:
                    peer.direct.hurry()

    def _is_local(self, host: str) -> bool:
        return is_local(host, self._watch.chosen)

    def _wanted(self) -> Iterable[str]:
        return self._known().keys() - {self.identity.device_id}

    # -- linking ----------------------------------------------------------------------------------------------

    def _about(self) -> About:
        bound = self._listener.bound
        return About(self.identity.label, bound.port if bound is not None else 0, os.urandom(TICKET_SIZE), self._lanes)

    def _linked(self, peer: Peer) -> None:
        """A device that came in."""
        self._vanished.is_back(peer.device_id)
        if peer.address[1]:
            self._book.note_sighting(peer.device_id, [peer.address], source="link")
        self._schedule.linked(peer.device_id)

    def _met(self, pipe: AnyPipe, greeted: Greeted, address: Endpoint) -> None:
        """A device that was dialled, or met by way of a mailbox."""
        assert self._group is not None
        peer = self._roster.adopt(pipe, greeted, address)
        self._vanished.is_back(peer.device_id)
        self._group.create_task(self._roster.carry(peer))

    def _equip(self, peer: Peer) -> None:
        """A fresh peer gets what may carry its messages faster than the link."""
        if self._direct is None:
            peer.no_direct = "WebRTC is switched off on this device"
        elif "webrtc" not in peer.lanes:
            peer.no_direct = "WebRTC is switched off on that device"
        else:
            peer.direct = self._direct(peer)

    def _down(self, on_down: Callable[[Peer, str], None]) -> Callable[[Peer, str], None]:
        def down(peer: Peer, why: str) -> None:
            self._schedule.lost(peer.device_id, time.monotonic())
            if peer.link.ended_wordless:
                self._vanished.went(peer.device_id, peer.address)
            self._dialler.hurry()
            on_down(peer, why)

        return down
