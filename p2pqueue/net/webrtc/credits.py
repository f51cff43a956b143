"""How much may be sent to a peer, how much of it has arrived, and has it stopped arriving? Pure.

Both ends count the payload bytes of every frame. The receiver tells two totals back: what has arrived, and up
to where more may come. The sender never goes beyond the second, and what lies between the first and what it
has sent is unacknowledged: where that doesn't shrink for a while, the path has stalled.
"""

from __future__ import annotations

from dataclasses import dataclass

from p2pqueue.errors import MalformedMessage

STALL_AFTER = 6.0  # seconds without an acknowledgement of what was sent: as the heartbeat of the link
TELL_EVERY = 256 * 1024  # bytes arrived or given back after which the peer is told at once
BOUNDLESS = 2**63 - 1  # bytes that nobody sends


@dataclass
class Outgoing:
    """The sender's account of one direction."""

    granted: int
    sent: int = 0
    arrived: int = 0
    stall_after: float = STALL_AFTER
    since: float = 0.0  # when something arrived last, or when the oldest unacknowledged byte was sent

    @property
    def credit(self) -> int:
        """Bytes that may be sent now."""
        return self.granted - self.sent

    def note_sent(self, size: int, now: float) -> None:
        """Counts what goes out."""
        if self.arrived == self.sent:
            self.since = now
        self.sent += size

    def note_told(self, arrived: int, granted: int, now: float) -> None:
        """Takes the receiver's totals; raises `MalformedMessage` for totals that can't be."""
        if not self.arrived <= arrived <= self.sent or granted < self.granted:
            raise MalformedMessage("totals of arrived and granted bytes that can't be")
        if arrived > self.arrived:
            self.since = now
        self.arrived, self.granted = arrived, granted

    def stalls_at(self) -> float | None:
        """When it counts as stalled unless more arrives before; None while everything has arrived."""
        return None if self.arrived == self.sent else self.since + self.stall_after


@dataclass
class Incoming:
    """The receiver's account of one direction; `window` is what may lie here unprocessed."""

    window: int
    arrived: int = 0
    given_back: int = 0
    told_arrived: int = 0
    told_granted: int = 0

    def __post_init__(self) -> None:
        self.told_granted = self.window

    @property
    def granted(self) -> int:
        """Up to where the sender may go."""
        return self.given_back + self.window

    def note_arrived(self, size: int) -> None:
        """Counts what comes in; raises `MalformedMessage` beyond what was granted."""
        self.arrived += size
        if self.arrived > self.told_granted:
            raise MalformedMessage("more bytes than this device had granted")

    def give_back(self, size: int) -> None:
        """Counts what was processed; never more than has arrived."""
        self.given_back = min(self.given_back + size, self.arrived)

    def must_tell(self) -> bool:
        """Whether the sender has to hear of it at once, lest it waits for nothing."""
        back = self.granted - self.told_granted
        return self.arrived - self.told_arrived >= TELL_EVERY or back >= TELL_EVERY or (back > 0 and self._is_short())

    def may_tell(self) -> bool:
        """Whether there is anything that the sender doesn't know."""
        return self.arrived > self.told_arrived or self.granted > self.told_granted

    def tell(self) -> tuple[int, int]:
        """The two totals, as told from now on."""
        self.told_arrived, self.told_granted = self.arrived, self.granted
        return self.told_arrived, self.told_granted

    def _is_short(self) -> bool:
        return self.told_granted - self.arrived < self.window // 2
