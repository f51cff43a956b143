"""What can be said to a linked device, and what is known of it?"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import ChannelClosed, NoBulk, PeerGone
from p2pqueue.net import codes
from p2pqueue.net.framing import NUMBERS, TOPICS, Topic
from p2pqueue.net.heartbeat import Heartbeat
from p2pqueue.net.link import Link
from p2pqueue.net.opening import bracketed

if TYPE_CHECKING:
    from p2pqueue.net.webrtc.bulk import BulkChannel
    from p2pqueue.net.webrtc.direct import Direct

HELD_LIMIT = 1024 * 1024  # bytes that WebRTC may bring while nothing is taken
HELD_COST = 128  # bytes that even an empty message takes

_log = logging.getLogger(__name__)


class Peer:
    """One linked device. It lasts as long as its link, which carries everything that no faster path does."""

    def __init__(
        self, link: Link, *, address: tuple[str, int], local_subnet: bool, deliver: Callable[[Peer, Topic, bytes], None]
    ) -> None:  # fmt: skip
        greeted = link.greeted
        self.device_id = greeted.device_id
        self.role = greeted.role
        self.label = greeted.label
        self.version = greeted.product
        self.instance = greeted.instance
        self.public_key = greeted.public_key
        self.lanes = greeted.about.lanes
        self.ticket: bytes | None = greeted.about.ticket
        self.dialled = greeted.dialled
        self.address = address  # where it listens; port 0 where it doesn't
        self.local_subnet = local_subnet
        self.since = time.monotonic()
        self.link = link
        self.direct: Direct | None = None  # its WebRTC connections, where both sides have any
        self.no_direct: str | None = None  # why there are none, in words
        self._deliver = deliver
        self._paused = False
        self._held: deque[tuple[Topic, bytes]] = deque()
        self._held_size = 0

    def __repr__(self) -> str:
        return f"<Peer {self.label or self.device_id[:8]} by {self.path}>"

    def status(self, now: float) -> dict[str, Any]:
        """How it is linked, as plain values; `now` is monotonic."""
        return {
            "device": self.device_id, "label": self.label, "role": self.role, "version": self.version, "path": self.path,
            "why": self.why, "rtt": self.rtt, "clock_offset": self.clock_offset, "since": now - self.since,
            "address": list(self.address), "local_subnet": self.local_subnet,
        }  # fmt: skip

    @property
    def path(self) -> str:
        """What carries rows and signals now: `webrtc` or `link`."""
        return "webrtc" if self.direct is not None and self.direct.control is not None else "link"

    @property
    def why(self) -> str | None:
        """Why it isn't WebRTC, in words."""
        return self.no_direct if self.direct is None else self.direct.why

    @property
    def rtt(self) -> float | None:
        """The latest round trip in seconds."""
        return self._heartbeat.rtt or self.link.heartbeat.rtt

    @property
    def shortest_rtt(self) -> float | None:
        """The shortest of the latest round trips, which tells how far away it is."""
        return self._heartbeat.shortest_rtt or self.link.heartbeat.shortest_rtt

    @property
    def clock_offset(self) -> float | None:
        """By how many seconds its wall clock is ahead of ours."""
        return self.link.heartbeat.clock_offset

    @property
    def answered_at(self) -> float | None:
        """When it answered last, by our wall clock; it is asked every two seconds."""
        return self.link.heartbeat.answered_at

    @property
    def _heartbeat(self) -> Heartbeat:
        return (self.direct.heartbeat if self.direct is not None else None) or self.link.heartbeat

    @property
    def http_base(self) -> str | None:
        """Where its listener answers HTTP."""
        host, port = self.address
        return f"http://{bracketed(host)}:{port}" if port else None

    async def send(self, topic: Topic, message: bytes) -> None:
        """Sends a message of at most 256 KiB as soon as there is room. Raises `PeerGone`.

        Around a change of the path a message may be lost, come twice, or out of order.
        """
        control = self.direct.control if self.direct is not None else None
        if control is not None and not self.link.is_over:
            try:
                await control.send(NUMBERS[topic], message)
                return
            except ChannelClosed:
                pass  # the link takes over
        await self.link.outbox.put(topic, message)

    def send_soon(self, topic: Topic, message: bytes) -> bool:
        """Sends a message if there is room for it now; says whether there was. Never waits, never raises."""
        control = self.direct.control if self.direct is not None else None
        if control is not None and not self.link.is_over:
            try:
                return control.send_soon(NUMBERS[topic], message)
            except ChannelClosed:
                pass
        return self.link.outbox.offer(topic, message)

    async def bulk(self) -> BulkChannel:
        """The connection for large transfers, opened when it is first asked for. Raises `PeerGone` and `NoBulk`."""
        if self.link.is_over:
            raise PeerGone(f"{self.label or self.device_id} is not linked any more")
        if self.direct is None:
            raise NoBulk(self.why or "WebRTC is switched off")
        return await self.direct.bulk()

    def drop(self, code: int, why: str) -> None:
        """Ends the link."""
        self.link.end(code, why)

    def pause(self) -> None:
        """Takes nothing more from it until `resume`: whoever can't keep up lets it wait."""
        self._paused = True
        self.link.pause()

    def resume(self) -> None:
        """Takes what has come meanwhile, and reads on."""
        self._paused = False
        while self._held and not self._paused:
            topic, message = self._held.popleft()
            self._held_size -= len(message) + HELD_COST
            self._deliver(self, topic, message)
        if not self._paused:
            self.link.resume()

    def came(self, number: int, message: bytes) -> None:
        """A message came by WebRTC, which knows no pause: what is held meanwhile is bounded."""
        topic = TOPICS[number] if number < len(TOPICS) else None
        if topic is None:
            return
        if self._paused or self._held:
            self._held.append((topic, message))
            self._held_size += len(message) + HELD_COST
            if self._held_size > HELD_LIMIT:
                self._held.clear()
                self.drop(codes.FLOODED, "it sends more than can be taken")
            return
        try:
            self._deliver(self, topic, message)
        except Exception:  # noqa: BLE001  a fault of whoever takes it costs this peer, not the node
            _log.exception("the link to %s is dropped", self.device_id)
            self.drop(codes.FAULT, "a message could not be dealt with")
