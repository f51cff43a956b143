"""Is the other device still there, how far away is it, and how does its clock differ?

Each side asks every two seconds and answers at once. Any frame that arrives proves life; six seconds without one are
the end. The answer to a question gives the round trip, and the other's wall clock in the middle of it. Pure: the
times are arguments.
"""

from __future__ import annotations

from collections import deque

EVERY = 2.0  # seconds between two questions
DEAD_AFTER = 6.0  # seconds without any frame: two questions unanswered, and some slack
LATE = 1.0  # seconds by which a timer may be late before it is the own process that slept
_SAMPLES = 8  # answers remembered: the quickest of them tells the clock's offset best


class Heartbeat:
    """The state of one connection."""

    def __init__(self, now: float, *, every: float = EVERY, dead_after: float = DEAD_AFTER) -> None:
        self._every = every
        self._dead_after = dead_after
        self._heard = now
        self._next = now
        self._number = 0
        self._asked: dict[int, float] = {}
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self.answered_at: float | None = None  # our wall clock at its latest answer

    @property
    def rtt(self) -> float | None:
        """The latest round trip in seconds; None before the first answer."""
        return self._samples[-1][0] if self._samples else None

    @property
    def shortest_rtt(self) -> float | None:
        """The shortest of the latest round trips: how long the way is, however busy the devices at its ends are."""
        return min(self._samples)[0] if self._samples else None

    @property
    def clock_offset(self) -> float | None:
        """By how many seconds the other's wall clock is ahead of ours; None before the first answer."""
        return min(self._samples)[1] if self._samples else None

    def heard(self, now: float) -> None:
        """A frame has arrived."""
        self._heard = now

    def next_due(self) -> float:
        """When to look again."""
        return min(self._next, self._heard + self._dead_after)

    def look(self, now: float) -> int | None:
        """The number of a question to ask now, if one is due.

        A look that comes much too late says nothing about the other side: this process slept, or was busy, and what
        has arrived meanwhile is yet to be read. One more question gets its time.
        """
        if now - self.next_due() > max(LATE, self._every / 2):
            self._heard = max(self._heard, now - self._dead_after + self._every)
        if now < self._next:
            return None
        self._next = now + self._every
        self._number += 1
        self._asked = {number: at for number, at in self._asked.items() if now - at < self._dead_after} | {self._number: now}
        return self._number

    def is_dead(self, now: float) -> bool:
        """Says whether nothing has come for too long."""
        return now - self._heard >= self._dead_after

    def answered(self, number: int, *, now: float, their_wall: float, wall: float) -> None:
        """The answer to a question of ours. One that was never asked, or answered already, is ignored."""
        asked = self._asked.pop(number, None)
        if asked is not None:
            rtt = max(0.0, now - asked)
            self._samples.append((rtt, their_wall + rtt / 2 - wall))
            self.answered_at = wall
