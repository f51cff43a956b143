"""How do the accounts of a channel stay up to date: who is told when, and who notices a stall?

`Accounts` owns the timers: one that tells the peer what has arrived at the latest 0.2 s later, one that
notices that nothing is acknowledged any more. An idle channel has neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from p2pqueue.errors import MalformedMessage
from p2pqueue.net.webrtc.credits import Incoming, Outgoing

TELL_AFTER = 0.2  # seconds an acknowledgement may wait for more to acknowledge
LATE = 1.0  # seconds by which a timer may be late before it says more of this process than of the path

_TOTALS = Struct("!QQ")
_LARGEST = 2**63 - 1


STALLED = "what is sent to that device doesn't arrive any more; it may be gone, or its path loses large packets"


class Carrier(Protocol):
    """A connection, as far as its accounts care."""

    @property
    def moved_at(self) -> float:
        """When the peer last acknowledged a packet, by the loop's clock."""

    def lose(self, why: str) -> None:
        """Ends the connection."""


class Accounts:
    """Both directions of one channel; `tell` sends the packed totals. A stall ends the connection, in words."""

    def __init__(self, outgoing: Outgoing, incoming: Incoming, connection: Carrier, *, tell: Callable[[bytes], None]) -> None:
        self.outgoing = outgoing
        self.incoming = incoming
        self._tell = tell
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._telling: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None

    def sent(self, size: int) -> None:
        """Counts what was sent."""
        self.outgoing.note_sent(size, self._loop.time())
        if self._watching is None:
            self._watch()

    def arrived(self, size: int) -> None:
        """Counts what has come; raises `MalformedMessage` beyond what was granted."""
        self.incoming.note_arrived(size)
        self._plan()

    def give_back(self, size: int) -> None:
        """Counts what was processed and may come again."""
        self.incoming.give_back(size)
        self._plan()

    def told(self, totals: bytes) -> None:
        """Takes what the peer tells; raises `MalformedMessage`."""
        if len(totals) != _TOTALS.size:
            raise MalformedMessage("totals of another size")
        arrived, granted = _TOTALS.unpack(totals)
        if granted > _LARGEST:
            raise MalformedMessage("totals that nobody reaches")
        self.outgoing.note_told(arrived, granted, self._loop.time())

    def close(self) -> None:
        """Ends the timers."""
        for timer in (self._telling, self._watching):
            if timer is not None:
                timer.cancel()
        self._telling = self._watching = None

    def _plan(self) -> None:
        if self.incoming.must_tell():
            self._tell_now()
        elif self._telling is None:
            self._telling = self._loop.call_later(TELL_AFTER, self._tell_now)

    def _tell_now(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self.incoming.may_tell():
            self._tell(_TOTALS.pack(*self.incoming.tell()))

    def _watch(self) -> None:
        stalls_at = self._stalls_at()
        self._watching = None if stalls_at is None else self._loop.call_at(stalls_at, self._look, stalls_at)

    def _look(self, planned: float) -> None:
        now = self._loop.time()
        stalls_at = self._stalls_at()
        if stalls_at is None or stalls_at > now:
            self._watch()
        elif now > planned + LATE:  # the loop stood still: what has come meanwhile is read first
            self._watching = self._loop.call_later(LATE, self._look, now + LATE)
        else:
            self._watching = None
            self._connection.lose(STALLED)

    def _stalls_at(self) -> float | None:
        # A large frame over a slow path arrives only at its end; packet by packet it is acknowledged before.
        stalls_at = self.outgoing.stalls_at()
        return None if stalls_at is None else max(stalls_at, self._connection.moved_at + self.outgoing.stall_after)
