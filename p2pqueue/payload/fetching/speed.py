"""How fast does something grow, smoothed so that people can read it? Pure."""

from __future__ import annotations

import math
from typing import Final

MEMORY: Final = 3.0  # seconds after which what was measured counts a third
LEAST_STEP: Final = 0.2  # seconds between two measurements


class Speed:
    """The rate at which a count grows. It may be looked at as often as one likes."""

    def __init__(self, count: int, now: float) -> None:
        self._begun_at = self._seen_at = self._grew_at = now
        self._count = count
        self._rate = 0.0

    def at(self, now: float, count: int) -> float:
        """Units a second, where the count is that now."""
        passed = now - self._seen_at
        if count > self._count:
            self._grew_at = now
        if passed >= LEAST_STEP:
            rate = (count - self._count) / passed
            since_begun = max(now - self._begun_at, passed)
            even = passed / since_begun if since_begun < MEMORY else 0.0  # at the beginning all that there is counts alike
            self._rate += max(1 - math.exp(-passed / MEMORY), even) * (rate - self._rate)
            self._seen_at, self._count = now, count
        return self._rate if now - self._grew_at < 4 * MEMORY else 0.0

    def still_for(self, now: float) -> float:
        """Seconds since the count was seen to grow last."""
        return now - self._grew_at
