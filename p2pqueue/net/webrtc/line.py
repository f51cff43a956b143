"""How does one of the two direct connections to a peer stand?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from p2pqueue.net.signalling import Purpose
from p2pqueue.net.webrtc.bulk import BulkChannel
from p2pqueue.net.webrtc.channel import ControlChannel
from p2pqueue.net.webrtc.signal import RtcSignal


class Connection(Protocol):
    """What is asked of `rtc.RtcConnection` here; the channels ask for more."""

    async def offer(self) -> RtcSignal: ...  # noqa: D102
    async def connect(self, remote: RtcSignal) -> None: ...  # noqa: D102
    def lose(self, why: str) -> None: ...  # noqa: D102
    async def close(self) -> None: ...  # noqa: D102


@dataclass
class Line:
    """One of the two connections, as it is now."""

    purpose: Purpose
    generation: int = 0
    channel: ControlChannel | BulkChannel | None = None
    attempt: asyncio.Task[None] | None = None
    trying: bool = False  # an attempt may still come to something
    connecting: Connection | None = None
    answer: asyncio.Future[RtcSignal] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: list[asyncio.Future[BulkChannel]] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        """Says whether there is something that can be given up."""
        return self.channel is not None or self.connecting is not None or (self.answer is not None and not self.answer.done())
