"""Which links are there now, and which of two between the same devices stays?

- A device that restarted (its instance is another) gets the new one; where that goes to and fro, two devices have one
  key, and the one that is linked stays as long as the other asks again.
- A link that this device dialled, to one that it is linked to, is dropped before the other side counts it.
- Of two that both sides dialled at the same moment, the one dialled by the device with the lower id stays.
- Else the newer: the other side wouldn't have made it if it still had the old one.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from p2pqueue.errors import LinkRefused
from p2pqueue.net import codes
from p2pqueue.net.addresses import Endpoint
from p2pqueue.net.framing import Topic
from p2pqueue.net.greeting import Duplicate, Greeted
from p2pqueue.net.handshake import Proven
from p2pqueue.net.link import Beat, Link
from p2pqueue.net.notes import Note, Signalling, Twin
from p2pqueue.net.peer import Peer
from p2pqueue.net.pipe import AnyPipe

SAME_MOMENT = 3.0  # seconds in which a link may have been dialled before its dialler knew of the one that there is
MOST_TURNS = 3  # times that one instance of a device may take another's place while that is linked still …
TURNS_FOR = 30.0  # … in so many seconds

OnMessage = Callable[[Peer, Topic, bytes], None]
_log = logging.getLogger(__name__)


class Roster:
    """The linked devices.

    :param equip: gives a fresh peer what carries its messages faster than the link.
    :param on_up: gets each peer once it is linked.
    :param on_down: gets it once it isn't any more, with the reason in words.
    :param on_twin: gets what one of two devices with one key says to the other, with the peer that brings it.
    """

    def __init__(
        self, device_id: str, *, on_up: Callable[[Peer], None], on_down: Callable[[Peer, str], None], on_message: OnMessage,
        on_twin: Callable[[Peer, Twin], None], is_local: Callable[[str], bool], equip: Callable[[Peer], None], beat: Beat,
    ) -> None:  # fmt: skip
        self._mine = device_id
        self._on_up = on_up
        self._on_down = on_down
        self._on_message = on_message
        self._on_twin = on_twin
        self._is_local = is_local
        self._equip = equip
        self._beat = beat
        self._coming: Counter[str] = Counter()
        self._turns: dict[str, list[float]] = {}
        self.peers: dict[str, Peer] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def holder(self, proven: Proven) -> Peer | None:
        """The linked one of two devices with one key that took turns too often; the other comes now, and doesn't get its place."""
        old = self.peers.get(proven.device_id)
        turns = self._recent_turns(proven.device_id)
        if old is None or old.instance == proven.instance or len(turns) < MOST_TURNS:
            return None
        self._turns[proven.device_id] = [*turns[1 - MOST_TURNS :], time.monotonic()]
        return old

    def coming(self, proven: Proven, change: int) -> None:
        """A device that may link is about to, by its own dialling; or is no more."""
        self._coming[proven.device_id] += change
        self._coming += Counter()  # forgets what is at zero

    def adopt(self, pipe: AnyPipe, greeted: Greeted, address: Endpoint) -> Peer:
        """Makes a greeted connection a link, at once. Raises `Duplicate`; the pipe stays open then."""
        if greeted.device_id == self._mine:
            raise LinkRefused("that is this device itself", code=codes.CLONE)
        old = self.peers.get(greeted.device_id)
        if not self._is_wanted(greeted, old):
            raise Duplicate(greeted.device_id)
        if old is not None:
            self._leave(old, "another connection to it took over")
            old.drop(codes.DUPLICATE, "another connection to it took over")
        peer = self._enter(pipe, greeted, address)
        if not self._tell(self._on_up, peer):
            peer.drop(codes.FAULT, "something went wrong here")
        return peer

    def with_ticket(self, shown: str) -> Peer | None:
        """The linked device that was given this ticket, in hexadecimal digits."""
        digits = shown.encode(errors="replace")  # a header may hold bytes that are no text
        tickets = ((peer, peer.link.greeted.mine.ticket.hex().encode()) for peer in self.peers.values())
        return next((peer for peer, ticket in tickets if hmac.compare_digest(ticket, digits)), None)

    async def emptied(self) -> None:
        """Waits until nobody is linked."""
        await self._empty.wait()

    async def carry(self, peer: Peer) -> None:
        """Carries the peer's messages until its link ends."""
        why = "this device stopped"
        async with asyncio.TaskGroup() as group:
            direct = group.create_task(self._keep_direct(peer))
            try:
                why = (await peer.link.run()).why
            finally:
                direct.cancel()
                if self.peers.get(peer.device_id) is peer:
                    self._leave(peer, why)
                await peer.link.close()

    async def _keep_direct(self, peer: Peer) -> None:
        try:
            if peer.direct is not None:
                await peer.direct.run()
        except Exception:  # noqa: BLE001  whatever goes wrong with WebRTC, the link carries on
            _log.exception("the direct connections to %s are given up", peer.device_id)

    def _is_wanted(self, greeted: Greeted, old: Peer | None) -> bool:
        lower = self._mine < greeted.device_id
        if old is None or old.link.is_over:
            return lower or not greeted.dialled or not self._coming[greeted.device_id]
        if old.instance != greeted.instance:
            self._turns[greeted.device_id] = [*self._recent_turns(greeted.device_id), time.monotonic()]
            return True
        if greeted.dialled:
            return False
        old_by_lower = old.dialled == lower
        return not (old_by_lower and not lower_dialled(greeted, lower) and time.monotonic() - old.since < SAME_MOMENT)

    def _recent_turns(self, device_id: str) -> list[float]:
        """When an instance of a device took the place of another that was linked still."""
        return [at for at in self._turns.get(device_id, ()) if time.monotonic() - at < TURNS_FOR]

    def _enter(self, pipe: AnyPipe, greeted: Greeted, address: Endpoint) -> Peer:
        peer: Peer

        def on_message(topic: Topic, message: bytes) -> None:
            self._on_message(peer, topic, message)

        def on_note(note: Note) -> None:
            if isinstance(note, Signalling) and peer.direct is not None:
                peer.direct.received(note)
            elif isinstance(note, Twin):
                self._on_twin(peer, note)

        link = Link(pipe, greeted, on_message=on_message, on_note=on_note, beat=self._beat)
        if greeted.dialled:
            link.outbox.offer("net", greeted.mine.pack())
        peer = Peer(link, address=address, local_subnet=self._is_local(address[0]), deliver=self._on_message)
        self._equip(peer)
        self.peers[peer.device_id] = peer
        self._empty.clear()
        return peer

    def _leave(self, peer: Peer, why: str) -> None:
        del self.peers[peer.device_id]
        if not self.peers:
            self._empty.set()
        self._tell(self._on_down, peer, why)

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> bool:
        try:
            callback(*arguments)
        except Exception:  # noqa: BLE001  a fault in whoever is told costs this peer, not the node
            _log.exception("a peer's coming or going could not be dealt with")
            return False
        return True


def lower_dialled(greeted: Greeted, mine_is_lower: bool) -> bool:
    """Says whether the device with the lower id dialled this connection."""
    return greeted.dialled == mine_is_lower
