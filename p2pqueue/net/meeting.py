"""How do devices meet that see nothing of one another, by what a mailbox carries between them?

It may carry addresses: they are dialled behind all that is known otherwise. And it may carry signals, where no TCP gets
through but UDP does: then a direct connection is made first, and the link goes over it, from the hello on as over any other.
Nothing that a mailbox says is trusted: whoever answers has to prove in the handshake who it is.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from p2pqueue.errors import LinkRefused
from p2pqueue.net import codes, greeting
from p2pqueue.net.addresses import CANDIDATES_LIMIT, AddressBook, Endpoint
from p2pqueue.net.greeting import Greeted
from p2pqueue.net.webrtc.signal import RtcSignal

if TYPE_CHECKING:
    from p2pqueue.net.dialler import Dialler
    from p2pqueue.net.dialling import DialSchedule
    from p2pqueue.net.interfaces import InterfaceWatch
    from p2pqueue.net.listener import Listener
    from p2pqueue.net.pipe import AnyPipe
    from p2pqueue.net.reception import Reception
    from p2pqueue.net.webrtc.connection import RtcConnection
    from p2pqueue.net.webrtc.directing import Directing

CONNECT_WAIT: Final = 15.0  # seconds: the answer lies in a mailbox for a second or two before the other side has it

Swap = Callable[[bytes], Awaitable[bytes]]  # gives our signal to the other side, and its signal to us


class Meeting:
    """What a mesh offers to whoever carries addresses and signals between devices.

    :param adopt: makes a greeted connection a link, and carries it; raises `LinkRefused`.
    """

    def __init__(
        self, reception: Reception, schedule: DialSchedule, dialler: Dialler, *, book: AddressBook, watch: InterfaceWatch,
        listener: Listener, adopt: Callable[[AnyPipe, Greeted, Endpoint], None],
    ) -> None:  # fmt: skip
        self.directing: Directing | None = None  # makes direct connections, where this device has any
        self._reception = reception
        self._schedule = schedule
        self._dialler = dialler
        self._book = book
        self._watch = watch
        self._listener = listener
        self._adopt = adopt

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where others may reach this device's listener now."""
        bound = self._listener.bound
        if bound is None:
            return ()
        found = [str(address.ip) for interface in self._watch.chosen for address in interface.addresses]
        return self._usable((host, bound.port) for host in ([bound.host] if bound.host else found))

    def told(self, device: str, endpoints: Sequence[Endpoint]) -> None:
        """That device wrote that it listens there; replaces what it wrote before."""
        before = self._book.candidates(device)
        self._book.note_hint(device, self._usable(endpoints))
        if set(self._book.candidates(device)) - set(before):
            self._schedule.told(device, time.monotonic())
            self._dialler.hurry()

    async def offer(self, device: str, swap: Swap) -> None:
        """Links to a device that is to be offered a direct connection. Raises `PeerError`s, `ConnectFailed` and what `swap` raises."""
        await self._meet(device, True, swap)

    async def answer(self, device: str, theirs: bytes, tell: Callable[[bytes], Awaitable[None]]) -> None:
        """Links to a device that made this offer; raises as `offer` does."""

        async def swap(ours: bytes) -> bytes:
            await tell(ours)
            return theirs

        await self._meet(device, False, swap)

    async def _meet(self, device: str, offers: bool, swap: Swap) -> None:
        if self.directing is None:
            raise LinkRefused("WebRTC is switched off on this device")
        connection = self.directing.connection(offers)
        try:
            ours = await connection.offer()
            theirs = RtcSignal.unpack(await swap(ours.pack()))
            await connection.connect(theirs, timeout=CONNECT_WAIT)
            await self._link(device, offers, connection)
        except BaseException:
            await connection.close()
            raise

    async def _link(self, device: str, offers: bool, connection: RtcConnection) -> None:
        from p2pqueue.net.webrtc.pipe import RtcPipe

        pipe, desk = RtcPipe(connection), self._reception.desk
        greeted = await (greeting.dial(pipe, desk) if offers else greeting.answer(pipe, desk))
        try:
            if not isinstance(greeted, Greeted):
                raise LinkRefused("it wants to pair, which goes over TCP alone", code=codes.NO_INVITATION)
            if greeted.device_id != device:
                raise LinkRefused("another device answered than the one that signed", code=codes.REFUSED)
            if not self._reception.is_open:
                raise LinkRefused("this device is leaving", code=codes.BYE)
            self._adopt(pipe, greeted, pipe.address)
        except LinkRefused as error:
            await pipe.close(error.code)
            raise
        self._schedule.linked(device)

    def _usable(self, endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
        """Those that lead from one machine to another; or, where loopback was chosen, on this one."""
        on_loopback = any(interface.kind == "loopback" for interface in self._watch.chosen)
        found: dict[Endpoint, None] = {}
        for host, port in endpoints:
            try:
                address = ipaddress.ip_address(host)
            except ValueError:
                continue
            if not (address.is_link_local or address.is_multicast or address.is_unspecified or (address.is_loopback and not on_loopback)):
                found[str(address), port] = None
        return tuple(found)[:CANDIDATES_LIMIT]
