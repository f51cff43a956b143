"""How do two devices of a test replicate, with no network and no wait?

Both sides hold a session as linked nodes do; its messages go through their own form on the wire. The time of the
sessions is made up: where both wait for a moment, it has come.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Final

from p2pqueue.errors import MisuseError
from p2pqueue.identity.roles import relays
from p2pqueue.replica.syncing.effects import Effect, Report, Send
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.syncing.sync import Session
from p2pqueue.replica.wire.codec import decode, encode

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access

MOST_MOMENTS: Final = 10_000  # at which sessions may act until both sides are equal


class _End:
    """One side: its session, and the messages that have come for it."""

    def __init__(self, access: Access, other: Access, now: float) -> None:
        here, there = relays(access.identity.role), relays(other.identity.role)
        self._peering = Peering(access.replica, other.identity.device_id, peer_relays=there)
        self.session = Session(os.urandom(8), jitter=lambda: 0.5, now=now, relays=here, peer_relays=there)
        self.inbox: deque[bytes] = deque()
        self.other: _End

    def do(self, effects: list[Effect], now: float) -> None:
        """Carries out what the session wants."""
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            if isinstance(effect, Send):
                self.other.inbox.append(encode(effect.message))
            elif not isinstance(effect, Report):
                waiting += self.session.answered(effect, self._peering.answer(effect), now)

    def read(self, now: float) -> bool:
        """Takes in one message; says whether there was one."""
        if not self.inbox:
            return False
        message = decode(self.inbox.popleft())
        if message is not None:
            self.do(self.session.received(message, now), now)
        return True


class Pipe:
    """What joins two devices, until it is cut."""

    def __init__(self, one: Access, two: Access) -> None:
        self.ends = (one, two)
        self._now = 0.0
        self._sides: tuple[_End, _End] | None = None
        self.join()

    def join(self) -> None:
        """Lets them replicate; with a new session, as after every link."""
        if self._sides is None:
            one, two = self.ends
            here, there = _End(one, two, self._now), _End(two, one, self._now)
            here.other, there.other = there, here
            self._sides = (here, there)
            for side in self._sides:
                side.do(side.session.start(self._now), self._now)

    @property
    def is_joined(self) -> bool:
        """Says whether the two are joined."""
        return self._sides is not None

    def cut(self) -> None:
        """Parts them; what is under way is lost."""
        self._sides = None

    def carry(self) -> bool:
        """Brings both to the same rows, where they are joined; says whether anything was carried."""
        if self._sides is None or self._is_level():
            return False
        for side in self._sides:
            side.do(side.session.committed(self._now, local=True), self._now)
        for _ in range(MOST_MOMENTS):
            while any(side.read(self._now) for side in self._sides):
                pass
            if self._is_level():
                return True
            self._now = max(self._now + 0.001, min(side.session.due for side in self._sides))
            for side in self._sides:
                side.do(side.session.tick(self._now), self._now)
        raise MisuseError("two devices of a test do not become equal: please report it, with the test")

    def _is_level(self) -> bool:
        one, two = self.ends
        return one.replica.heads() == two.replica.heads()
