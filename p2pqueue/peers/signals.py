"""To whom does a signal go, and which ones are heard?

A device hears each signal once, whichever way it comes, never its own, and passes it on once to those of its peers
that are not linked to the source. Who is linked to whom is said by everybody's own `hello`. What is too much from
one peer is dropped: signals are hints, and losing every one of them costs only time. Pure: the clock, randomness
and the way to a peer are passed in.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from p2pqueue.errors import ArgumentError
from p2pqueue.peers.linked import LinkedPeer
from p2pqueue.peers.signal import ID_BYTES, LIST_LIMIT, Signal, unpack

HELLO_EVERY = 10.0  # seconds between two of our own
HELLO_AT_MOST = 0.2  # seconds between two, whatever changes
GONE_AFTER = 30.0  # seconds without a `hello`: three missed; what it said of its links is forgotten
SEEN_FOR = 60.0  # seconds for which an id is remembered: longer than any way round
SEEN_AT_MOST = 8_192  # ids, whatever their age
RATE = 200.0  # signals a second that are heard of one peer
BURST = 400.0  # signals at once
AT_ONCE = frozenset({"begun", "control"})  # kinds that are of little use later: their sender or their job may have ended by then

Send = Callable[[LinkedPeer, bytes], bool]  # False where there was no room
OnSignal = Callable[[Signal, LinkedPeer], None]


@dataclass
class _Neighbour:
    """A linked peer: what it may still send, and whom it said it is linked to."""

    peer: LinkedPeer
    relays: bool
    allowance: float
    counted_at: float
    links: frozenset[str] | None = None  # None: not said yet
    links_at: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter)


class Signals:
    """The signals of one device.

    `send_now` is the way for what must have left before this device does anything else: waiting behind nothing.
    `relays` says whether this device's role lets it pass on what others said; `may_relay` the same of a peer's
    role. `hello` gives the fields of our own `hello`, once there is something to say. `on_signal` hears every
    signal of a known kind, with the peer it came by.
    """

    def __init__(
        self,
        *,
        device_id: str,
        now: Callable[[], float],
        random: Callable[[int], bytes],
        send: Send,
        on_signal: OnSignal,
        send_now: Send | None = None,
        hello: Callable[[], Mapping[str, Any]] | None = None,
        relays: bool = True,
        may_relay: Callable[[str], bool] = lambda role: True,
    ) -> None:
        self.device_id = device_id
        self._now = now
        self._random = random
        self._send = send
        self._send_now = send_now or send
        self._on_signal = on_signal
        self._hello = hello
        self._relays = relays
        self._may_relay = may_relay
        self._neighbours: dict[str, _Neighbour] = {}
        self._seen: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        self._hello_at = now()
        self._said_at = 0.0

    # --- links ---

    def up(self, peer: LinkedPeer) -> None:
        """A device is linked: everybody is told at once."""
        self._neighbours[peer.device_id] = _Neighbour(peer, self._may_relay(peer.role), BURST, self._now())
        self._hello_at = self._now()
        self.tick()

    def down(self, peer: LinkedPeer) -> None:
        """A link is gone."""
        neighbour = self._neighbours.get(peer.device_id)
        if neighbour is not None and neighbour.peer is peer:
            del self._neighbours[peer.device_id]
            self._hello_at = self._now()

    # --- saying ---

    def emit(self, kind: str, **fields: Any) -> None:
        """Says something to everybody who is linked; they pass it on. Raises `ArgumentError` beyond the limits."""
        data = Signal(kind, self.device_id, self._random(ID_BYTES), fields).pack()
        send = self._send_now if kind in AT_ONCE else self._send
        for neighbour in tuple(self._neighbours.values()):
            self._pass(neighbour, data, send)

    @property
    def due(self) -> float:
        """When `tick` should be called at the latest."""
        return self._hello_at

    def hurry(self) -> None:
        """Has `hello` said as soon as it may be: there is something new to say."""
        self._hello_at = min(self._hello_at, max(self._now(), self._said_at + HELLO_AT_MOST))

    def tick(self) -> None:
        """Says `hello` when it is time."""
        now = self._now()
        if now < self._hello_at:
            return
        self._said_at, self._hello_at = now, now + HELLO_EVERY
        if self._hello is not None and self._neighbours:
            links = sorted(self._neighbours)[:LIST_LIMIT]
            try:
                self.emit("hello", **self._hello(), links=links)
            except ArgumentError:  # too much to say: at least that we are there
                self.emit("hello", links=links)

    # --- hearing ---

    def received(self, peer: LinkedPeer, data: bytes) -> None:
        """Takes a signal that a peer sent or passed on. Raises `MalformedMessage` for what is none."""
        neighbour = self._neighbours.get(peer.device_id)
        if neighbour is None or neighbour.peer is not peer:
            return
        if not self._is_allowed(neighbour):
            neighbour.dropped["too many"] += 1
            return
        signal = unpack(data)
        if signal.source != peer.device_id and not neighbour.relays:
            neighbour.dropped["not its to pass on"] += 1
            return
        if signal.source == self.device_id:
            return
        is_new, introduces = self._is_new(signal), signal.kind == "hello" and signal.source == peer.device_id
        if not is_new and not introduces:  # what others passed on before its own link was up may have been told of a stranger
            return
        if introduces:
            neighbour.links, neighbour.links_at = frozenset(signal.fields.get("links", ())), self._now()
        if self._relays and is_new:
            self._relay(signal, data, by=peer)
        if signal.is_known:
            self._on_signal(signal, peer)

    def status(self) -> dict[str, dict[str, int]]:
        """What was dropped of each linked peer, and why."""
        return {device_id: dict(neighbour.dropped) for device_id, neighbour in self._neighbours.items()}

    # --- inside ---

    def _relay(self, signal: Signal, data: bytes, *, by: LinkedPeer) -> None:
        for device_id, neighbour in tuple(self._neighbours.items()):
            if device_id not in (by.device_id, signal.source) and not self._hears(neighbour, signal.source):
                self._pass(neighbour, data, self._send)

    def _hears(self, neighbour: _Neighbour, source: str) -> bool:
        """Says whether a peer is linked to a source itself, as it said not long ago."""
        return neighbour.links is not None and source in neighbour.links and self._now() - neighbour.links_at < GONE_AFTER

    def _pass(self, neighbour: _Neighbour, data: bytes, send: Send) -> None:
        if not send(neighbour.peer, data):
            neighbour.dropped["no room"] += 1

    def _is_allowed(self, neighbour: _Neighbour) -> bool:
        now = self._now()
        neighbour.allowance = min(BURST, neighbour.allowance + (now - neighbour.counted_at) * RATE)
        neighbour.counted_at = now
        if neighbour.allowance < 1:
            return False
        neighbour.allowance -= 1
        return True

    def _is_new(self, signal: Signal) -> bool:
        now, name = self._now(), (signal.source, signal.id)
        while self._seen:
            oldest, seen_at = next(iter(self._seen.items()))
            if len(self._seen) <= SEEN_AT_MOST and now - seen_at <= SEEN_FOR:
                break
            del self._seen[oldest]
        if name in self._seen:
            return False
        self._seen[name] = now
        return True


__all__ = ["Signal", "Signals"]
