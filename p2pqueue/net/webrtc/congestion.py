"""How much may be under way to a peer, and how long is an acknowledgement waited for? Pure (RFC 9260, 6.3 and 7).

The window grows by what is acknowledged until packets are lost, then by one packet a round trip; a loss halves
it, a time-out makes it one packet. On a `gentle` path, one that no router shares, a loss without a queue before it
takes a sixth: it was no congestion. Beyond that stands a limit: as much as fits a socket and the wire.
"""

from __future__ import annotations

import math

INITIAL_RTO = 1.0  # seconds: a lost first packet waits this long; the standard's 3 s eat up the time to connect
LEAST_RTO = 0.3  # seconds: a peer may hold an acknowledgement back for 0.2 s
LONGEST_RTO = 10.0  # seconds: after 6 s without progress a channel is closed anyway
LEAST_PROBE = 0.01  # seconds
HELD_BACK = 0.2  # seconds for which a peer may hold the acknowledgement of a single packet back
INITIAL_WINDOW = 4404  # bytes
SOCKET_ROOM = 160 * 1160  # bytes that fit a socket's buffer of 416 KiB, Linux's default limit; beyond it whole rows are lost
WIRE_SPEED = 100e6  # bytes/s: what a path with a delay may hold beside that
NEAR = 0.001  # seconds of a round trip in which the wire holds nothing to speak of
MOST = 8 * 1024 * 1024  # bytes

_GENTLEST = 5 / 6


class Congestion:
    """The window of one direction and the clock of its time-outs."""

    def __init__(self, payload: int, *, gentle: bool = False) -> None:
        """`payload` is what a full packet carries, in bytes."""
        self.payload = payload
        self.gentle = gentle
        self.window = INITIAL_WINDOW
        self.threshold = MOST
        self.limit = SOCKET_ROOM
        self.smoothed: float | None = None
        self.rto = INITIAL_RTO
        self._variation = 0.0
        self.shortest = math.inf
        self._partial = 0
        self._before: tuple[int, int] | None = None

    def hear(self, seconds: float) -> None:
        """Takes a round trip that was measured."""
        if self.smoothed is None:
            self.smoothed, self._variation = seconds, seconds / 2
        else:
            self._variation += (abs(self.smoothed - seconds) - self._variation) / 4
            self.smoothed += (seconds - self.smoothed) / 8
        self.rto = min(max(LEAST_RTO, self.smoothed + 4 * self._variation), LONGEST_RTO)
        if seconds < self.shortest:
            self.shortest = seconds
            self.limit = min(SOCKET_ROOM + int(max(0.0, seconds - NEAR) * WIRE_SPEED), MOST)

    def grow(self, acknowledged: int) -> None:
        """Takes so many bytes acknowledged while the window was full."""
        if self.window <= self.threshold:
            self.window += acknowledged
        else:
            self._partial += acknowledged
            if self._partial >= self.window:
                self._partial -= self.window
                self.window += self.payload
        self.window = min(self.window, self.limit)

    def fall(self) -> None:
        """Packets were lost, for the first time in this round trip."""
        self._before = self.window, self.threshold
        self.threshold = self.window = max(int(self.window * self._kept()), 4 * self.payload)
        self._partial = 0

    def undo(self) -> None:
        """They had not been lost after all."""
        if self._before is not None:
            self.window, self.threshold = max(self.window, self._before[0]), max(self.threshold, self._before[1])
            self._before = None

    def collapse(self) -> None:
        """Nothing came back in time."""
        self._before = self.window, self.threshold
        self.threshold, self.window = max(self.window // 2, 4 * self.payload), self.payload
        self._partial = 0

    def rest(self, seconds: float) -> None:
        """Nothing was under way for so long: what the path bears is known less well."""
        if seconds > self.rto:
            halves = min(int(seconds / self.rto), 20)
            self.window = max(min(self.window, 4 * self.payload), self.window >> halves)

    def patience(self, *, alone: bool) -> float:
        """Seconds after which the last packet is sent once more, lest its loss waits for a time-out."""
        if self.smoothed is None:
            return self.rto
        return min(max(2 * self.smoothed, LEAST_PROBE) + (HELD_BACK if alone else 0.0), self.rto)

    def _kept(self) -> float:
        if not self.gentle or self.smoothed is None:
            return 0.5
        return min(max(0.5, self.shortest / self.smoothed), _GENTLEST)
