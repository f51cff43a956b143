"""How many bytes a second may be used, of whom may nothing be asked now, and does money count?

People set this, at any time. One `Limits` holds for all transfers and lanes of a node, in both directions.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

BURST: Final = 0.25  # seconds at the rate that may come at once after a pause
LONGEST_LOOK: Final = 0.5  # seconds that a waiter sleeps at most before it looks whether the rate was changed
ALL_PAUSED: Final = "all transfers are paused"
ONE_PAUSED: Final = "transfers with that device are paused"


class Limit:
    """A number of bytes a second, shared by whoever takes from it. For any thread; may be changed at any time.

    What is larger than the bucket is let through when the bucket is full, and pays afterwards: on the average the rate
    holds, whatever the size of one take.
    """

    def __init__(self, rate: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._held = 0.0 if rate is None else rate * BURST  # below 0: taken in advance
        self._seen = clock()

    @property
    def rate(self) -> float | None:
        """Bytes a second; None for no limit."""
        return self._rate

    def set(self, rate: float | None) -> None:
        """Holds from now on, for those too who wait already."""
        if rate is not None and rate <= 0:
            raise ValueError(f"a rate of {rate} bytes a second")
        with self._lock:
            self._fill()
            if rate is not None and self._rate is not None:
                self._held *= rate / self._rate  # a debt of so many seconds stays one of so many seconds
            self._rate = rate

    def try_take(self, size: int) -> float:
        """Takes that many bytes and gives 0, or takes none and gives the seconds after which to try again."""
        with self._lock:
            self._fill()
            if self._rate is None:
                return 0.0
            full = self._rate * BURST
            if self._held < min(size, full):
                return max(0.001, min(LONGEST_LOOK, (min(size, full) - self._held) / self._rate))
            self._held -= size
            return 0.0

    def give_back(self, size: int) -> None:
        """What was taken was not used."""
        with self._lock:
            if self._rate is not None:
                self._held += size

    async def take(self, size: int) -> None:
        """Waits until that many bytes may go."""
        while wait := self.try_take(size):  # noqa: ASYNC110 - nothing but time is waited for
            await asyncio.sleep(wait)

    def _fill(self) -> None:
        now = self._clock()
        if self._rate is None:
            self._held = 0.0
        else:
            self._held = min(self._rate * BURST, self._held + (now - self._seen) * self._rate)
        self._seen = now


@dataclass
class Limits:
    """What people set of transfers. Changed by the event loop of the node."""

    download: Limit = field(default_factory=Limit)
    upload: Limit = field(default_factory=Limit)
    paused: frozenset[str] = frozenset()  # the ids of devices of which nothing is asked, and to which nothing is given
    all_paused: bool = False
    metered: bool = False  # whether ways that cost money are used

    def pause(self, devices: Iterable[str] = (), *, everything: bool = False) -> None:
        """Asks nothing of these devices any more, or of nobody."""
        self.paused |= frozenset(devices)
        self.all_paused |= everything

    def resume(self, devices: Iterable[str] = (), *, everything: bool = False) -> None:
        """Takes a pause back; `everything` takes back all."""
        self.paused = frozenset() if everything else self.paused - frozenset(devices)
        self.all_paused = self.all_paused and not everything

    def forbids(self, device: str, *, metered: bool = False) -> str | None:
        """Why nothing may be asked of a device, or sent to it, in words; None where it may."""
        if self.all_paused:
            return ALL_PAUSED
        if device in self.paused:
            return ONE_PAUSED
        return "that way is metered" if metered and not self.metered else None


def tells_of_pause(words: str) -> bool:
    """Says whether another device, which answers with what forbids it to send, is paused and may go on later."""
    return words.endswith((ALL_PAUSED, ONE_PAUSED))
