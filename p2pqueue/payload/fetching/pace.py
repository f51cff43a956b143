"""How fast is one lane to one device, how much is asked of it at once, and when is it too slow? Pure.

Measured by what it delivers: the rate of a shard is what came between the moment it was asked for and its arrival,
whatever else was under way. Times are seconds, monotonic.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final

from p2pqueue.payload.format import MIB

LEAST_WINDOW: Final = 256 * 1024  # bytes under way
LARGEST_WINDOW: Final = 8 * MIB
FEWEST: Final = 2  # shards under way, however large: one comes while the other is checked and written
REMEMBERED: Final = 16  # shards by which it is judged
SMOOTHING: Final = 0.25  # share of the newest shard in the rate
PATIENCE: Final = 3.0  # times the median after which a shard is late
SOONEST: Final = 1.0  # seconds before which none is late
LATEST: Final = 20.0  # seconds after which any is
UNKNOWN: Final = 4.0  # seconds after which the first of a lane is late


class Pace:
    """What was measured of one lane."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=REMEMBERED)  # seconds
        self._rates: deque[float] = deque(maxlen=REMEMBERED)  # bytes/s
        self.median: float | None = None  # seconds that a shard takes
        self.rate: float | None = None  # bytes/s, smoothed
        self.received = 0  # bytes
        self.shards = 0

    def came(self, size: int, *, asked_at: float, received_then: int, now: float) -> None:
        """A shard came that was asked for when `received_then` bytes had been received."""
        self.received += size
        self.shards += 1
        took = max(now - asked_at, 1e-4)
        self._note(took, (self.received - received_then) / took)

    def was_slow(self, size: int, *, asked_at: float, received_then: int, now: float) -> None:
        """Somebody else brought what was asked for here: it would have taken longer than this."""
        took = max(now - asked_at, 1e-4)
        self._note(took, (self.received - received_then + size / 2) / took)

    def forget(self) -> None:
        """What was measured counts no more: it was long ago."""
        self._took.clear()
        self._rates.clear()
        self.rate = self.median = None

    def window(self, shard: int) -> int:
        """How many bytes may be under way: twice what fills the way to the device and back, within limits."""
        if not self._took:
            return max(FEWEST * shard, LEAST_WINDOW)
        wanted = 2 * max(self._rates) * min(self._took)
        return max(FEWEST * shard, LEAST_WINDOW, min(int(wanted), LARGEST_WINDOW))

    def late_after(self, elsewhere: float | None = None) -> float:
        """Seconds after which a shard may be asked of others too; `elsewhere` is what it takes from other lanes."""
        median = self.median if self.median is not None else elsewhere
        return UNKNOWN if median is None else min(max(PATIENCE * median, SOONEST), LATEST)

    def _note(self, took: float, rate: float) -> None:
        self._took.append(took)
        self.median = statistics.median(self._took)
        self._rates.append(rate)
        self.rate = rate if self.rate is None else self.rate + SMOOTHING * (rate - self.rate)
