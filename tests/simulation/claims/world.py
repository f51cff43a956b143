"""Virtual time, machines and the links between them: what the claim policy lives in.

Rows reach every linked machine after a delay, a lost message a second later; signals may be lost for good. A machine
that sleeps or has crashed does nothing, and its own clock stands meanwhile. Whoever is linked passes rows on.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.claims.machine import Machine

AGAIN = 1.0  # seconds until a row that was lost on its way is sent again
NOTICED = 4.0  # seconds after which both sides of a silent cut know


class Broken(AssertionError):
    """An invariant does not hold."""


class World:
    """Everything in one process, in the order of virtual time; the same for the same seed."""

    def __init__(self, seed: int, *, delay: tuple[float, float], loss: float = 0.0) -> None:
        self.random = Random(seed)
        self.delay = delay
        self.loss = loss
        self.now = 1000.0
        self.machines: list[Machine] = []
        self.met: Counter[str] = Counter()
        self.starts: Counter[str] = Counter()  # runs begun, by job
        self.cut: set[frozenset[int]] = set()  # pairs between which nothing passes
        self.links: set[frozenset[int]] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Lets something happen at a time."""
        heapq.heappush(self._events, (max(time, self.now), next(self._order), event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Lets something happen in so many seconds."""
        self.at(self.now + seconds, event)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Goes on until a time, or until `done` says so, asked twice a second."""
        look = self.now
        while self._events and self._events[0][0] <= until:
            time, _, event = heapq.heappop(self._events)
            self.now = max(self.now, time)
            event()
            if self.now >= look:
                if done():
                    return
                look = self.now + 0.5
        self.now = until

    # -- links --------------------------------------------------------------------------------------------------

    def settle_links(self) -> None:
        """Links whoever can be linked, and parts whom nothing connects any more, once both have noticed."""
        for one, other in itertools.combinations(self.machines, 2):
            pair = frozenset((one.number, other.number))
            able = one.runs and other.runs and pair not in self.cut
            if able and pair not in self.links:
                self.links.add(pair)
                for machine, peer in ((one, other), (other, one)):
                    machine.up(peer)
            elif not able and pair in self.links:
                self.links.discard(pair)
                for machine, peer in ((one, other), (other, one)):
                    self.after(NOTICED, lambda machine=machine, peer=peer: self._part(machine, peer))

    def _part(self, machine: Machine, peer: Machine) -> None:
        """A machine notices that a peer is gone; what that did not get from it any more comes from the others."""
        if not self.linked(machine.number, peer.number):
            machine.down(peer.number)
            for other in self.machines:
                if other.runs and self.linked(other.number, peer.number):
                    self.send_rows(other, peer, list(other.rows))

    def linked(self, one: int, other: int) -> bool:
        """Says whether two machines are linked."""
        return frozenset((one, other)) in self.links

    def send_rows(self, source: Machine, target: Machine, jobs: list[str], then: Callable[[], None] | None = None) -> None:
        """Brings rows as they stand now to a linked machine; `then` is called when they are there."""
        rows = {job: source.rows[job] for job in jobs if job in source.rows}

        def arrive() -> None:
            if not self.linked(source.number, target.number) or not target.runs:
                self.met["rows were cut off"] += 1
                return
            if self.random.random() < self.loss:
                self.met["a message was lost"] += 1
                self.after(AGAIN, arrive)
                return
            target.awake(lambda: target.merge(rows))
            if then is not None:
                target.awake(then)

        self.after(self.random.uniform(*self.delay), arrive)

    def send_signal(self, source: Machine, target: Machine, heard: Callable[[], None]) -> None:
        """Brings a signal, or loses it."""

        def arrive() -> None:
            if self.linked(source.number, target.number) and target.runs and self.random.random() >= self.loss:
                target.awake(heard)

        self.after(self.random.uniform(*self.delay), arrive)
