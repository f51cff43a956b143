"""Which files are on their way to this device, how far are they, and why does one stand still?

Plain values for whoever shows them. The registry is written by the event loop of the node and may be read there at
any time; `changed` wakes those who follow it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from p2pqueue.errors import P2PQueueError

TOLD_FOR: Final = 600.0  # seconds that one is told which ended in an error
SHOWN_EVERY: Final = 0.5  # seconds between two looks that a follower is given


@dataclass(frozen=True)
class SourceShare:
    """What one source has to do with a transfer, over one lane."""

    name: str  # a device's id, or an origin's address
    lane: str
    bytes: int  # of shards that came from it and were right
    rate: float  # bytes/s now, smoothed
    state: str  # "used", "idle" (another lane of its device is used, or it has nothing), "resting" (it failed), "out" (it lied)
    label: str = ""  # what people call it


@dataclass(frozen=True)
class Transfer:
    """One file that is being fetched, as of now."""

    root: str  # its capability
    name: str
    size: int  # bytes of the content; 0 while its manifest is not here
    verified: int  # bytes of it that are here and checked, those of earlier fetches included
    rate: float  # bytes/s, smoothed
    eta: float | None  # seconds until it is whole at that rate; None while nothing comes
    sources: tuple[SourceShare, ...]
    why: str | None  # in one sentence, why it stands still; None while it moves
    failed: bool = False  # it has ended for that reason
    content: str = ""  # the hash of its content, where it is a single file

    def plain(self) -> dict[str, Any]:
        """The same as values that go over the local socket."""
        sources = [[each.name, each.lane, each.bytes, each.rate, each.state, each.label] for each in self.sources]
        told = {"root": self.root, "name": self.name, "size": self.size, "verified": self.verified, "rate": self.rate}
        return {**told, "eta": self.eta, "sources": sources, "why": self.why, "failed": self.failed, "content": self.content}


def transfer_of(told: dict[str, Any]) -> Transfer:
    """The transfer that `plain` told."""
    return Transfer(**{**told, "sources": tuple(SourceShare(*each) for each in told["sources"])})


@dataclass
class Transfers:
    """The transfers of one node that are under way."""

    _looks: dict[bytes, Callable[[], Transfer]] = field(default_factory=dict)
    _ended: dict[bytes, tuple[float, Transfer]] = field(default_factory=dict)  # in an error, and when
    _watched: set[asyncio.Event] = field(default_factory=set)

    def now(self) -> tuple[Transfer, ...]:
        """All of them."""
        self._forget()
        return tuple(look() for look in self._looks.values()) + tuple(each for _, each in self._ended.values())

    def of(self, root: bytes) -> Transfer | None:
        """That of one file, by the address of its manifest."""
        self._forget()
        if root in self._looks:
            return self._looks[root]()
        return self._ended[root][1] if root in self._ended else None

    async def follow(self) -> AsyncGenerator[tuple[Transfer, ...], None]:
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

    @contextmanager
    def under_way(self, root: bytes, look: Callable[[], Transfer]) -> Iterator[None]:
        """One is under way as long as the context; `look` tells how it stands.

        One that ended in an error is told for a while, since it may be tried again: how far it came, and why it ended.
        """
        self._ended.pop(root, None)
        self._looks[root] = look
        self._tell()
        try:
            yield
        except P2PQueueError as error:
            self._ended[root] = (time.monotonic(), replace(look(), rate=0.0, eta=None, why=str(error), failed=True))
            raise
        finally:
            del self._looks[root]
            self._tell()

    def _forget(self) -> None:
        old = time.monotonic() - TOLD_FOR
        for root in [root for root, (since, _) in self._ended.items() if since < old]:
            del self._ended[root]

    def _tell(self) -> None:
        for changed in self._watched:
            changed.set()
