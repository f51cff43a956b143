"""What is known of a device that tells in a mailbox how to meet it, and when is it worth an offer again?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from p2pqueue.peers.mail.telling import Told

RETRY_FIRST: Final = 60.0  # seconds between two offers; doubled by each that came to nothing
RETRY_LAST: Final = 3600.0  # seconds


@dataclass
class Acquaintance:
    """One device. Times in seconds, monotonic."""

    told: Told
    apart_since: float | None = None  # when it was first seen not to be linked
    again_at: float = 0.0
    pause: float = RETRY_FIRST
    offering: asyncio.Task[None] | None = None
    why: str | None = None  # the last offer came to nothing

    @property
    def is_offering(self) -> bool:
        """Says whether an offer lies there, or is being connected."""
        return self.offering is not None and not self.offering.done()

    def begin_anew(self) -> None:
        """There is something new to try."""
        self.again_at, self.pause = 0.0, RETRY_FIRST

    def stop_offering(self) -> None:
        """Nobody needs an answer any more."""
        if self.offering is not None:
            self.offering.cancel()

    def put_off(self, now: float, stretch: float, why: str) -> None:
        """An offer came to nothing: the next one waits, for about the pause."""
        self.why = why
        self.again_at, self.pause = now + self.pause * stretch, min(2 * self.pause, RETRY_LAST)
