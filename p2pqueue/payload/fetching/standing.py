"""How does one device, and each of its lanes, stand in the fetch of one file: may it be asked, and by which lane? Pure.

One lane of a device is used at a time, the *main* one. Another is tried for a few shards where that may pay, and takes
over when it is clearly faster, or when the main one fails or falls silent. Times are seconds, monotonic.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from p2pqueue.payload.fetching.pace import Pace

STRIKES: Final = 3  # wrong shards after which a device is out for that file, failures in a row after which a lane rests
FIRST_REST: Final = 1.0  # seconds; doubles
LONGEST_REST: Final = 8.0  # seconds
LACKS_FOR: Final = 10.0  # seconds after which a device may have got what it lacked
MISSES: Final = 4  # in a row, after which it is tried elsewhere in the file; four times as many, and it rests
ORDER: Final = ("http", "webrtc", "link", "origin")  # of lanes that are not measured
TRIAL: Final = 4  # shards
LONGEST_TRIAL: Final = 10.0  # seconds
TRIAL_AFTER: Final = 1.0  # seconds that the main lane must have been used
TRIAL_PAYS: Final = 4.0  # seconds that the rest of the file would take: below that no trial is worth its cost
TRIAL_AGAIN: Final = 60.0  # seconds; doubles with each trial that brought nothing
TRIAL_SOON: Final = 5.0  # seconds, where the main lane is half as fast now as the other one was
FASTER: Final = 1.3  # times as fast another lane must be to take over


@dataclass
class Ask:
    """One request that is under way."""

    asked_at: float
    alive_at: float  # when bytes of it came last
    received_then: int
    is_told: bool = False  # whether this lane tells of bytes as they come


@dataclass
class LaneStanding:
    """One lane to one device."""

    name: str
    pace: Pace = field(default_factory=Pace)
    asks: dict[int, Ask] = field(default_factory=dict)  # by chunk
    failures: int = 0  # in a row
    rests_until: float = 0.0
    delivered_at: float = 0.0
    tried_at: float | None = None  # the last trial
    tried_from: int = 0  # how many shards it had brought then
    trials: int = 0  # in vain, in a row
    known_rate: float = 0.0  # bytes/s, when it was used last

    def late(self, chunk: int, now: float, elsewhere: float | None) -> bool:
        """Says whether something may be asked of others as well."""
        return now - self.asks[chunk].asked_at >= self.pace.late_after(elsewhere)

    def is_silent(self, now: float, elsewhere: float | None) -> bool:
        """Says whether nothing came of what was asked for some time."""
        if not self.asks:
            return False
        alive_at = max(self.delivered_at, *(ask.alive_at for ask in self.asks.values()))
        return now - alive_at >= self.pace.late_after(elsewhere)

    def rest(self, now: float) -> None:
        """It is not asked for a while."""
        again = max(0, self.failures - STRIKES)
        self.rests_until = now + min(LONGEST_REST, FIRST_REST * 2**again)


@dataclass
class DeviceStanding:
    """One device, or one origin."""

    name: str
    is_last_resort: bool
    lanes: dict[str, LaneStanding] = field(default_factory=dict)
    present: frozenset[str] = frozenset()  # the lanes that there are now
    main: str | None = None
    main_since: float = 0.0
    trial: str | None = None
    trial_left: int = 0
    wrong: int = 0
    misses: int = 0  # in a row
    rests_until: float = 0.0
    lacks: dict[int, float] = field(default_factory=dict)  # since when
    had: int | None = None  # the chunk that came last

    @property
    def is_out(self) -> bool:
        """Says whether it lied too often."""
        return self.wrong >= STRIKES

    def is_usable(self, now: float) -> bool:
        """Says whether it is there and may be asked now."""
        return not self.is_out and now >= self.rests_until and any(now >= self.lanes[lane].rests_until for lane in self.present)

    def lacks_now(self, chunk: int, now: float) -> bool:
        """Says whether it didn't have a chunk a moment ago."""
        since = self.lacks.get(chunk)
        return since is not None and now - since < LACKS_FOR

    def missed(self, chunk: int, now: float) -> None:
        """It doesn't have a chunk."""
        self.lacks[chunk] = now
        self.misses += 1
        if self.misses % (4 * MISSES) == 0:
            rests = self.misses // (4 * MISSES) - 1
            self.rests_until = now + min(LONGEST_REST, FIRST_REST * 2 ** min(rests, 8))

    def asked_lanes(self, now: float, *, rest: int, elsewhere: float | None) -> tuple[str, ...]:
        """The lanes of which something may be asked now, where `rest` bytes are to come in all."""
        usable = [lane for lane in self.present if now >= self.lanes[lane].rests_until]
        if self.is_out or now < self.rests_until or not usable:
            return ()
        if self.main is not None and self.main in usable and len(usable) > 1 and self.lanes[self.main].is_silent(now, elsewhere):
            silent = self.lanes[self.main]
            silent.failures = max(silent.failures, STRIKES)
            silent.rest(now)
            usable.remove(self.main)
        if self.main not in usable:
            self._use(self._best(usable), now)
        self._weigh(usable, now, rest)
        return tuple(lane for lane in (self.main, self.trial) if lane is not None)

    def took(self, lane: str) -> None:
        """Something is asked by a lane."""
        if lane == self.trial:
            self.trial_left -= 1

    def _best(self, usable: Collection[str]) -> str:
        return max(usable, key=lambda lane: (self.lanes[lane].pace.rate or 0.0, -ORDER.index(lane)))

    def _use(self, lane: str, now: float) -> None:
        if self.main is not None:
            self.lanes[self.main].known_rate = self.lanes[self.main].pace.rate or 0.0
        self.main, self.main_since = lane, now
        self.trial = None if self.trial == lane else self.trial

    def _weigh(self, usable: Collection[str], now: float, rest: int) -> None:
        assert self.main is not None
        main = self.lanes[self.main]
        if self.trial is not None:
            self._end_trial(main, usable, now)
            return
        if main.pace.rate is None or now - self.main_since < TRIAL_AFTER or rest / main.pace.rate < TRIAL_PAYS:
            return
        others = [self.lanes[lane] for lane in usable if lane != self.main]
        for other in others:
            waits = TRIAL_SOON if other.known_rate > 2 * main.pace.rate else TRIAL_AGAIN * 2 ** min(other.trials, 4)
            if other.tried_at is None or now - other.tried_at >= waits:
                other.pace.forget()
                other.tried_at, other.tried_from = now, other.pace.shards
                self.trial, self.trial_left = other.name, TRIAL
                return

    def _end_trial(self, main: LaneStanding, usable: Collection[str], now: float) -> None:
        assert self.trial is not None
        tried = self.lanes[self.trial]
        assert tried.tried_at is not None
        longest = max(LONGEST_TRIAL, 3 * (main.pace.median or 0.0))
        if self.trial in usable and tried.pace.shards - tried.tried_from < TRIAL and now - tried.tried_at < longest:
            return
        if tried.pace.rate is not None and main.pace.rate is not None and tried.pace.rate > FASTER * main.pace.rate:
            tried.trials, main.trials, main.tried_at = 0, 0, now
            self._use(tried.name, now)
        else:
            tried.trials += 1
            tried.known_rate = tried.pace.rate or 0.0
        self.trial = None
