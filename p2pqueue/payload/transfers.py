"""Which files are on their way to this device, how far are they, and why does one stand still?

Plain values for whoever shows them. The registry is written by the event loop of the node and may be read there at
any time; `changed` wakes those who follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

SHOWN_EVERY: Final = 0.5  # seconds between two looks that a follower is given


@dataclass(frozen=True)
class SourceShare:
    """What one source has to do with a transfer, over one lane."""

    name: str  # a device's id, or an origin's address
    lane: str
    bytes: int  # of shards that came from it and were right
    rate: float  # bytes/s now, smoothed
    state: str  # "used", "idle" (another lane of its device is used, or it has nothing), "resting" (it failed), "out" (it lied)


@dataclass(frozen=True)
class Transfer:
    """One file that is being fetched, as of now."""

    root: str  # the address of its manifest in hexadecimal digits
    name: str
    size: int  # bytes of the content; 0 while its manifest is not here
    verified: int  # bytes of it that are here and checked, those of earlier fetches included
    rate: float  # bytes/s, smoothed
    eta: float | None  # seconds until it is whole at that rate; None while nothing comes
    sources: tuple[SourceShare, ...]
    why: str | None  # in one sentence, why it stands still; None while it moves

    def plain(self) -> dict[str, Any]:
        """The same as values that go over the local socket."""
        sources = [[each.name, each.lane, each.bytes, each.rate, each.state] for each in self.sources]
        told = {"root": self.root, "name": self.name, "size": self.size, "verified": self.verified, "rate": self.rate}
        return {**told, "eta": self.eta, "sources": sources, "why": self.why}


def transfer_of(told: dict[str, Any]) -> Transfer:
    """The transfer that `plain` told."""
    return Transfer(**{**told, "sources": tuple(SourceShare(*each) for each in told["sources"])})


@dataclass
class Transfers:
    """The transfers of one node that are under way."""

    _looks: dict[bytes, Callable[[], Transfer]] = field(default_factory=dict)
    _watched: set[asyncio.Event] = field(default_factory=set)

    def now(self) -> tuple[Transfer, ...]:
        """All of them."""
        return tuple(look() for look in self._looks.values())

    def of(self, root: bytes) -> Transfer | None:
        """That of one file, by the address of its manifest."""
        look = self._looks.get(root)
        return None if look is None else look()

    async def follow(self) -> AsyncIterator[tuple[Transfer, ...]]:
        """All of them again and again: when one begins or ends, and every half second while there are any."""
        changed = asyncio.Event()
        self._watched.add(changed)
        try:
            while True:
                changed.clear()
                yield self.now()
                try:
                    async with asyncio.timeout(SHOWN_EVERY if self._looks else None):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            self._watched.discard(changed)

    def begin(self, root: bytes, look: Callable[[], Transfer]) -> None:
        """One begins, or has more to tell now; `look` tells how it stands."""
        self._looks[root] = look
        self._tell()

    def end(self, root: bytes) -> None:
        """One has ended, whichever way."""
        self._looks.pop(root, None)
        self._tell()

    def _tell(self) -> None:
        for changed in self._watched:
            changed.set()
