"""A planner and its sources in virtual time: what do they do to it, and what comes of it?"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from p2pqueue.payload.fetching.plan import Key, Offer, Plan

LOOK_EVERY = 0.1  # seconds between two looks at what there is
LONGEST = 3600.0  # seconds after which a fetch will never end


@dataclass
class Site:
    """One source. Rates in bytes a second, times in seconds since the beginning."""

    name: str
    lane: str = "http"
    rate: float = 10e6
    delay: float = 0.01
    has: Callable[[int], bool] = lambda chunk: True
    there: tuple[tuple[float, float], ...] = ((0.0, LONGEST),)
    silent: tuple[tuple[float, float], ...] = ()  # when it takes requests and answers none
    slow: tuple[tuple[float, float], float] | None = None  # when, and by what it is slower then
    lies: float = 0.0  # share of wrong shards
    fails: float = 0.0  # share of failures
    parallel: int = 16
    last: bool = False
    busy_until: float = 0.0

    def is_there(self, now: float) -> bool:
        return any(begin <= now < end for begin, end in self.there)

    def is_silent(self, now: float) -> bool:
        return any(begin <= now < end for begin, end in self.silent)

    def rate_at(self, now: float) -> float:
        return self.rate / self.slow[1] if self.slow is not None and self.slow[0][0] <= now < self.slow[0][1] else self.rate


@dataclass
class World:
    """One fetch of `count` chunks of `size` bytes."""

    count: int
    size: int
    sites: list[Site]
    seed: int = 0
    now: float = 0.0
    carried: Counter[Key] = field(default_factory=Counter)  # bytes, whatever became of them
    came: Counter[int] = field(default_factory=Counter)  # how often a chunk came first
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)  # by device and kind
    asked_after: list[tuple[float, Key]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = Plan(self.count, self.size)
        self._random = random.Random(self.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._under_way: dict[tuple[int, Key], int] = {}  # which asking it is

    def run(self) -> float:
        """Fetches, and tells how long it took. Raises `TimeoutError` where it doesn't end."""
        self._at(0.0, self._look)
        while not self.plan.finished:
            self.now, _, happen = heapq.heappop(self._events)
            if self.now > LONGEST:
                raise TimeoutError(f"{self.plan.chunks.undone} chunks are left")
            happen()
            self._ask()
        return self.now

    @property
    def wasted(self) -> int:
        """Bytes that were carried beyond the file's own."""
        return sum(self.carried.values()) - self.count * self.size

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    def _look(self) -> None:
        present = [site for site in self.sites if site.is_there(self.now)]
        self._cancel(self.plan.offered([Offer(site.name, site.lane, site.last) for site in present], self.now))
        for chunk, key in self.plan.stuck(self.now):
            self._cancel([(chunk, key)])
            self.plan.failed(chunk, key, self.now)
        self._at(self.now + LOOK_EVERY, self._look)

    def _cancel(self, asks: list[tuple[int, Key]]) -> None:
        for ask in asks:
            self._under_way.pop(ask, None)

    def _ask(self) -> None:
        for site in self.sites:
            key = (site.name, site.lane)
            while site.is_there(self.now) and sum(1 for _, other in self._under_way if other == key) < site.parallel:
                chunk = self.plan.take(key, self.now)
                if chunk is None:
                    break
                self.asked_after.append((self.now, key))
                number = self._under_way[chunk, key] = next(self._numbers)
                self._answer(site, chunk, key, number)

    def _answer(self, site: Site, chunk: int, key: Key, number: int) -> None:
        if site.is_silent(self.now):
            return
        if not site.has(chunk):
            self._at(self.now + site.delay, lambda: self._end(chunk, key, number, "missing"))
            return
        dice = self._random.random()
        if dice < site.fails:
            self._at(self.now + site.delay, lambda: self._end(chunk, key, number, "failed"))
            return
        begun = max(self.now + site.delay / 2, site.busy_until)
        site.busy_until = begun + self.size / site.rate_at(self.now)
        kind = "wrong" if dice < site.fails + site.lies else "came"
        self._at(site.busy_until + site.delay / 2, lambda: self._end(chunk, key, number, kind))

    def _end(self, chunk: int, key: Key, number: int, kind: str) -> None:
        if self._under_way.get((chunk, key)) != number:
            return
        site = next(site for site in self.sites if (site.name, site.lane) == key)
        if site.is_silent(self.now) or not site.is_there(self.now):
            return
        del self._under_way[chunk, key]
        self.answers[key[0], kind] += 1
        if kind in ("came", "wrong"):
            self.carried[key] += self.size
        if kind == "came":
            first, others = self.plan.came(chunk, key, self.size, self.now)
            self.came[chunk] += first
            self._cancel([(chunk, other) for other in others])
        else:
            getattr(self.plan, kind)(chunk, key, self.now)
