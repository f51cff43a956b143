"""A line between a sender and a receiver in simulated time: with a delay, a speed, a queue, losses, and what overtakes."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from p2pqueue.net.webrtc.congestion import Congestion
from p2pqueue.net.webrtc.flight import Flight
from p2pqueue.net.webrtc.packets import FIRST, LAST, Report
from p2pqueue.net.webrtc.reassembly import Inbound

SIZE = 1000  # bytes of data in each packet
FIRST_TSN = 2**32 - 50  # they begin anew in the middle


@dataclass
class Line:
    """`run` sends so many packets; what happened is told by the fields below."""

    packets: int
    seed: int = 1
    lost: float = 0.0  # share of the packets, and of the acknowledgements
    doubled: float = 0.0
    late: float = 0.0  # share of the packets that come up to `delay` later
    delay: float = 0.005  # seconds one way
    speed: float = 50e6  # bytes/s
    queue: int = 1000  # packets that wait before the line; more are lost
    batch: int = 1  # packets that one acknowledgement covers, if they come at the same time
    gentle: bool = False
    window: int = 1 << 20  # bytes that the receiver takes
    still: tuple[float, float] = (0.0, 0.0)  # from when to when the receiver stands still
    eats: Callable[[int, int], bool] = lambda number, time: False  # by the number of the packet and of its sending

    now: float = 0.0
    sent: int = 0  # packets, with those sent again
    timeouts: int = 0
    most_under_way: int = 0
    inbound: Inbound = field(init=False)

    def __post_init__(self) -> None:
        self.congestion = Congestion(SIZE, gentle=self.gentle)
        self.flight = Flight(FIRST_TSN, self.congestion, window=self.window)
        self.inbound = Inbound(FIRST_TSN, limit=10**9)
        self._chance = Random(self.seed)
        self._events: list[tuple[float, int, Callable[..., None], Any]] = []
        self._order = count()
        self._free_at = 0.0
        self._made = 0
        self._times: dict[int, int] = {}
        self._unacknowledged = 0
        self._collapse, self.congestion.collapse = self.congestion.collapse, self._count_timeout  # type: ignore[method-assign]

    @property
    def speed_reached(self) -> float:
        """Bytes a second that arrived."""
        return self.packets * SIZE / self.now

    def run(self, limit: float = 1000.0) -> Line:
        """Until all have arrived, and the sender knows."""
        self._pump()
        while self.now < limit and not (self._made == self.packets and self.flight.empty):
            due, expires = self._events[0][0] if self._events else float("inf"), self.flight.expires_at
            if expires is not None and expires < due:
                self.now = max(self.now, expires)
                self._put(self.flight.expire(self.now))
                self._pump()
            else:
                self.now, _, act, what = heapq.heappop(self._events)
                act(what)
        return self

    def _count_timeout(self) -> None:
        self.timeouts += 1
        self._collapse()

    def _pump(self) -> None:
        self._put(self.flight.resend(self.now, most=10_000))
        fresh = []
        while not self.flight.unsettled and self._made < self.packets and self.flight.room > 0:
            fresh.append(self._made.to_bytes(4, "big"))
            self.flight.add(fresh[-1], SIZE, self.now)
            self._made += 1
        self._put(fresh)
        self.most_under_way = max(self.most_under_way, self.flight.under_way)

    def _put(self, packets: list[bytes]) -> None:
        for packet in packets:
            number = int.from_bytes(packet, "big")
            self.sent += 1
            self._times[number] = self._times.get(number, 0) + 1
            waiting = max(0.0, self._free_at - self.now)
            if waiting * self.speed / SIZE >= self.queue:
                continue
            self._free_at = self.now + waiting + SIZE / self.speed
            if self._chance.random() < self.lost or self.eats(number, self._times[number]):
                continue
            for _ in range(2 if self._chance.random() < self.doubled else 1):
                more = self._chance.random() * self.delay if self._chance.random() < self.late else 0.0
                at = self._free_at + self.delay + more
                self._plan(self.still[1] if self.still[0] < at < self.still[1] else at, self._arrive, number)

    def _plan(self, at: float, act: Callable[..., None], what: Any) -> None:
        heapq.heappush(self._events, (at, next(self._order), act, what))

    def _arrive(self, number: int) -> None:
        self.inbound.take(((FIRST_TSN + number) % 2**32, FIRST | LAST, 0, 53, number.to_bytes(4, "big")))
        self._unacknowledged += 1
        if self._unacknowledged < self.batch and self._events and self._events[0][0] - self.now < 0.001 and not self.inbound.has_gaps:
            return
        self._unacknowledged = 0
        report = (self.inbound.next - 1) % 2**32, self.window, self.inbound.gaps(), self.inbound.duplicates
        self.inbound.duplicates = []
        if self._chance.random() >= self.lost:
            self._plan(self.now + self.delay, self._hear, report)

    def _hear(self, report: Report) -> None:
        self.flight.acknowledge(report, self.now)
        self._pump()
