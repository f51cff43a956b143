"""How do large bytes travel between two devices without filling the memory of either?

A frame of up to 64 KiB with one byte before it. The receiver grants credit: what it has not yet given back
stays within 4 MiB, and the sender waits for more. The sender's own queue is bounded in the same way. What is
sent and not acknowledged for 6 s closes the channel; so does a minute in which nothing moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from p2pqueue.errors import ArgumentError, ChannelClosed, MalformedMessage
from p2pqueue.net.webrtc.accounts import Accounts
from p2pqueue.net.webrtc.credits import STALL_AFTER, Incoming, Outgoing
from p2pqueue.wire import FRAME_LIMIT

if TYPE_CHECKING:
    from p2pqueue.net.webrtc.connection import RtcConnection

WINDOW = 4 * 1024 * 1024  # bytes that may lie at the receiver unprocessed; both sides begin with it
BULK_BUFFER = 4 * 1024 * 1024  # bytes waiting to be sent, the high-water mark of a bulk connection
IDLE_AFTER = 60.0  # seconds without a frame either way

_DATA = b"\x00"
_TOTALS = b"\x01"

_log = logging.getLogger(__name__)


class BulkChannel:
    """Frames of bytes, in order, both ways, at the receiver's pace.

    Whoever takes a frame from `receive` gives its size back by `grant` once it needs no memory any more;
    without that the sender stops after 4 MiB. `on_closed` is told once why it ended by anything but `close()`.
    """

    def __init__(
        self,
        connection: RtcConnection,
        *,
        on_closed: Callable[[str], None] | None = None,
        idle: float = IDLE_AFTER,
        stall_after: float = STALL_AFTER,
    ) -> None:
        self._connection = connection
        self._on_closed = on_closed
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._accounts = Accounts(Outgoing(WINDOW, stall_after=stall_after), Incoming(WINDOW), connection, tell=self._tell)
        self._frames: deque[memoryview] = deque()
        self._news = asyncio.Event()  # a frame, credit, or the end
        self._sending = asyncio.Lock()
        self._reason: str | None = None
        self._active_at = self._loop.time()
        self._resting: asyncio.TimerHandle | None = self._loop.call_later(idle, self._rest)
        connection.on_closed = self._ended
        connection.on_message = self._received
        if connection.reason is not None:  # told later: whoever makes the channel doesn't have it yet
            self._loop.call_soon(self._ended, connection.reason)

    @property
    def open(self) -> bool:
        """Whether frames can be sent."""
        return self._reason is None and self._connection.open

    @property
    def reason(self) -> str | None:
        """Why it has ended; None while it hasn't."""
        return self._reason

    @property
    def buffered(self) -> int:
        """Bytes that wait here to be sent."""
        return self._connection.buffered

    async def send(self, *parts: bytes | memoryview) -> None:
        """Sends a frame of these parts once there is credit and room for it; raises `ChannelClosed`."""
        size = sum(map(len, parts))
        if not 0 < size <= FRAME_LIMIT:
            raise ArgumentError(f"a frame of {size} bytes where 1 to {FRAME_LIMIT} are meant")
        async with self._sending:  # in the order in which they are asked for
            while self.open and self._accounts.outgoing.credit < size:
                await self._next_news()
            room = self._connection.high_water - size
            if self.open and self.buffered > room:
                await self._connection.drained(max(0, room))
            if not self.open:
                raise ChannelClosed(self._reason or "the channel is closed")
            self._connection.send(b"".join((_DATA, *parts)))
            self._accounts.sent(size)
            self._active_at = self._loop.time()

    async def receive(self) -> memoryview:
        """The next frame; raises `ChannelClosed` when none is left and none will come."""
        while not self._frames:
            if self._reason is not None:
                raise ChannelClosed(self._reason)
            await self._next_news()
        self._active_at = self._loop.time()
        return self._frames.popleft()

    def grant(self, size: int) -> None:
        """Says that this many bytes of what was received are processed, so that as many may come."""
        self._active_at = self._loop.time()
        self._accounts.give_back(size)

    async def close(self) -> None:
        """Closes the channel and its connection, and drops what waits on either side; never raises."""
        self._finish("the channel was closed by this device")
        self._frames.clear()
        await self._connection.close()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _tell(self, totals: bytes) -> None:
        if self.open:
            self._connection.send(_TOTALS + totals)

    def _received(self, message: bytes) -> None:
        self._active_at = self._loop.time()
        try:
            self._take(message)
        except MalformedMessage as error:
            _log.warning("a bulk channel is closed: %s", error)
            self._connection.lose(f"the other device sent {error}")

    def _take(self, message: bytes) -> None:
        kind, frame = message[:1], memoryview(message)[1:]
        if kind == _DATA and 0 < len(frame) <= FRAME_LIMIT:
            self._accounts.arrived(len(frame))
            self._frames.append(frame)
        elif kind == _TOTALS:
            self._accounts.told(bytes(frame))
        else:
            raise MalformedMessage("a frame of an unknown kind or size")
        self._news.set()

    def _rest(self) -> None:
        at = self._active_at + self._idle
        if at <= self._loop.time():
            self._connection.lose(f"nothing was transferred for {self._idle:.0f} s")
        else:
            self._resting = self._loop.call_at(at, self._rest)

    def _ended(self, why: str) -> None:
        if self._finish(why) and self._on_closed is not None:
            self._on_closed(why)

    def _finish(self, why: str) -> bool:
        if self._reason is not None:
            return False
        self._reason = why
        self._accounts.close()
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._news.set()
        return True
