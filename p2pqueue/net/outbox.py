"""Which frame goes next on a connection, and how much may wait for it?

Notes and signals go before rows and shards, frame by frame, so that they never wait for the rest of a long answer. What
may wait is bounded for each of the two apart.
"""

from __future__ import annotations

import asyncio
from collections import deque

from p2pqueue.errors import PeerGone
from p2pqueue.net.framing import Topic, split

BUFFER_LIMIT = 256 * 1024  # bytes of rows and shards that wait, and one message more where nothing waits
URGENT_LIMIT = 64 * 1024  # bytes of signals that wait
NOTES_LIMIT = 128 * 1024  # bytes of signals and notes: a peer that asks and asks and never reads gets no more answers

_URGENT = ("signal", "net")


class _Lane:
    """Messages that go in order."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting = 0  # bytes
        self.frames: deque[bytes] = deque()

    def has_room(self, size: int) -> bool:
        return self.waiting == 0 or self.waiting + size <= self.limit


class Outbox:
    """What one connection has still to send."""

    def __init__(self) -> None:
        self._urgent = _Lane(URGENT_LIMIT)
        self._plain = _Lane(BUFFER_LIMIT)
        self._room: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._why_closed: str | None = None

    @property
    def waiting(self) -> int:
        """How many bytes wait."""
        return self._urgent.waiting + self._plain.waiting

    def offer(self, topic: Topic, message: bytes) -> bool:
        """Takes a message if there is room for it now; says whether there was. Notes of the link itself have their own."""
        lane = self._urgent if topic in _URGENT else self._plain
        room = lane.waiting < NOTES_LIMIT if topic == "net" else lane.has_room(len(message))
        if self._why_closed is not None or not room:
            return False
        self._put(lane, topic, message)
        return True

    async def put(self, topic: Topic, message: bytes) -> None:
        """Takes a message as soon as there is room. Raises `PeerGone`."""
        lane = self._urgent if topic in _URGENT else self._plain
        while self._why_closed is None and not lane.has_room(len(message)):
            waiter = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await waiter
        if self._why_closed is not None:
            raise PeerGone(self._why_closed)
        self._put(lane, topic, message)

    async def next(self) -> bytes:
        """The next frame, as soon as there is one."""
        while True:
            for lane in (self._urgent, self._plain):
                if lane.frames:
                    return self._take(lane)
            self._wake_all()
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    async def emptied(self) -> None:
        """Waits until everything has been taken."""
        while self.waiting and self._why_closed is None:
            waiter = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await waiter

    def close(self, why: str) -> None:
        """Nothing is taken any more; whoever waits for room is told why."""
        self._why_closed = why
        self._wake_all()

    def _put(self, lane: _Lane, topic: Topic, message: bytes) -> None:
        for frame in split(topic, message):
            lane.frames.append(frame)
            lane.waiting += len(frame)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _take(self, lane: _Lane) -> bytes:
        frame = lane.frames.popleft()
        lane.waiting -= len(frame)
        if self._room and lane.waiting <= lane.limit // 2:
            self._wake_all()
        return frame

    def _wake_all(self) -> None:
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
