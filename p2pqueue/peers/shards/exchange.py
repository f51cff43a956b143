"""How do two linked devices pass shards over their bulk channel, both ways at once?

A frame is a kind, the number of a request, and what follows::

    ask      address, size at most     the other side wants a shard
    begin    size                      it comes, in pieces, each as large as a frame may be
    piece    bytes
    missing                            it isn't here
    failed   words                     it can't be read now

A shard is read, or sealed from a plain file, in a thread while the one before it is sent.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from p2pqueue.errors import BadShard, ChannelClosed, InputChanged, P2PQueueError, PayloadUnavailable
from p2pqueue.payload.fetching.source import Request, ShardMissing, SourceFailed
from p2pqueue.payload.format import ADDRESS_SIZE, LARGEST_SHARD
from p2pqueue.payload.limit import Limit
from p2pqueue.wire import FRAME_LIMIT

if TYPE_CHECKING:
    from collections.abc import Awaitable

MOST_ASKED: Final = 64  # shards that a peer may ask for at once; one that asks for more is dropped
AHEAD: Final = 2  # shards that are read before their turn to be sent

_HEAD = struct.Struct(">BI")
_ASK = struct.Struct(f">{ADDRESS_SIZE}sI")
_SIZE = struct.Struct(">I")
_PIECE: Final = FRAME_LIMIT - _HEAD.size
_ASKED, _BEGIN, _DATA, _MISSING, _FAILED = range(1, 6)
_WORDS: Final = 1000  # bytes of words in `failed`, and in `missing` where the original of the file changed

_log = logging.getLogger(__name__)


class Channel(Protocol):
    """What is needed of `net.bulk.BulkChannel`."""

    @property
    def open(self) -> bool: ...  # noqa: D102
    async def send(self, *parts: bytes | memoryview) -> None: ...  # noqa: D102
    async def receive(self) -> bytes | memoryview: ...  # noqa: D102
    def grant(self, size: int) -> None: ...  # noqa: D102
    async def close(self) -> None: ...  # noqa: D102


@dataclass
class _Coming:
    """A shard that was asked for. `room` gives the buffer for a size that was announced, or raises `BadShard`."""

    room: Callable[[int], memoryview]
    done: asyncio.Future[None]
    advance: Callable[[int], object] = lambda size: None
    body: memoryview | None = None
    received: int = 0

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass
class Exchange:
    """Asks for shards, and serves those that the other side asks for, over one bulk channel.

    `read` gives a shard by its address, in a thread; it raises `PayloadUnavailable` and `InputChanged`. `limit` holds
    for what is sent; `forbidden` says why nothing may be sent now, if so.
    """

    channel: Channel
    read: Callable[[bytes], bytes]
    limit: Limit = field(default_factory=Limit)
    forbidden: Callable[[], str | None] = lambda: None
    sent: int = 0  # bytes of shards
    received: int = 0
    _coming: dict[int, _Coming] = field(default_factory=dict)
    _last: int = 0
    _asked: asyncio.Queue[tuple[int, bytes, int]] = field(default_factory=asyncio.Queue)
    _ready: asyncio.Queue[tuple[int, Awaitable[bytes], int]] = field(default_factory=lambda: asyncio.Queue(AHEAD))

    async def shard(self, address: bytes, size: int) -> bytes:
        """A shard of at most `size` bytes, unchecked. Raises `ShardMissing`, `SourceFailed` and `BadShard`."""
        body = bytearray()

        def room(announced: int) -> memoryview:
            nonlocal body
            if not 0 < announced <= size:
                raise BadShard(f"a shard of {announced} bytes where one of {size} at most was to be")
            body = bytearray(announced)
            return memoryview(body)

        await self._get(address, size, _Coming(room, asyncio.get_running_loop().create_future()))
        return bytes(body)

    async def deliver(self, request: Request) -> int:
        """Fills the buffer of a request, and tells its size. Raises as `shard` does."""
        coming = _Coming(request.room, asyncio.get_running_loop().create_future(), request.advance)
        await self._get(request.address, request.size, coming)
        return coming.received

    async def _get(self, address: bytes, size: int, coming: _Coming) -> None:
        self._last = number = (self._last + 1) & 0xFFFFFFFF
        self._coming[number] = coming
        try:
            await self.channel.send(_HEAD.pack(_ASKED, number), _ASK.pack(address, size))
            await coming.done
        except ChannelClosed as error:
            raise SourceFailed(str(error)) from error
        finally:
            coming.done.cancel()
            del self._coming[number]  # what comes late has no buffer any more

    async def run(self) -> None:
        """Carries both directions until the channel ends. A peer that breaks the protocol ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                serving = [group.create_task(self._prepare()), group.create_task(self._serve())]
                await self._receive()
                for task in serving:
                    task.cancel()
        finally:
            for coming in self._coming.values():
                coming.fail(SourceFailed("the channel to the other device was closed"))
            while not self._ready.empty():
                _forget(self._ready.get_nowait()[1])
            await self.channel.close()

    async def _receive(self) -> None:
        while True:
            try:
                frame = await self.channel.receive()
            except ChannelClosed:
                return
            if not self._take(frame):
                _log.warning("a bulk channel is closed: the other device sent a frame that makes no sense")
                return
            self.channel.grant(len(frame))

    def _take(self, frame: bytes | memoryview) -> bool:
        if len(frame) < _HEAD.size:
            return False
        kind, number = _HEAD.unpack_from(frame)
        rest = memoryview(frame)[_HEAD.size :]
        if kind == _ASKED:
            if len(rest) != _ASK.size or self._asked.qsize() >= MOST_ASKED:
                return False
            self._asked.put_nowait((number, *_ASK.unpack(rest)))
            return True
        coming = self._coming.get(number)
        if coming is None or coming.done.done():
            return True  # it is not wanted any more
        if kind == _BEGIN and len(rest) == _SIZE.size:
            try:
                coming.body = coming.room(*_SIZE.unpack(rest))
            except BadShard as error:
                coming.fail(error)
        elif kind == _DATA:
            return self._add(coming, rest)
        elif kind == _MISSING:
            coming.fail(ShardMissing(_words(rest)))
        elif kind == _FAILED:
            coming.fail(SourceFailed(_words(rest)))
        return True

    def _add(self, coming: _Coming, piece: memoryview) -> bool:
        if coming.body is None or coming.received + len(piece) > len(coming.body):
            return False
        coming.body[coming.received : coming.received + len(piece)] = piece
        coming.received += len(piece)
        coming.advance(len(piece))
        if coming.received == len(coming.body):
            self.received += coming.received
            coming.done.set_result(None)
        return True

    async def _prepare(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            number, address, size = await self._asked.get()
            if (why := self.forbidden()) is not None:
                await self._tell(_FAILED, number, why.encode()[:_WORDS])
                continue
            reading = loop.run_in_executor(None, self.read, address)
            try:
                await self._ready.put((number, reading, size))
            except asyncio.CancelledError:
                _forget(reading)
                raise

    async def _serve(self) -> None:
        while True:
            number, reading, size = await self._ready.get()
            try:
                shard = await reading
                await self._send(number, shard, min(size, LARGEST_SHARD))
            except PayloadUnavailable:
                await self._tell(_MISSING, number)
            except InputChanged as error:
                _log.info("%s", error)
                await self._tell(_MISSING, number, str(error).encode()[:_WORDS])
            except ChannelClosed:
                return
            except P2PQueueError as error:
                await self._tell(_FAILED, number, str(error).encode()[:_WORDS])
            finally:
                _forget(reading)

    async def _send(self, number: int, shard: bytes, limit: int) -> None:
        if len(shard) > limit:
            await self._tell(_MISSING, number)
            return
        await self.channel.send(_HEAD.pack(_BEGIN, number), _SIZE.pack(len(shard)))
        head, body = _HEAD.pack(_DATA, number), memoryview(shard)
        for start in range(0, len(shard), _PIECE):
            piece = body[start : start + _PIECE]
            await self.limit.take(len(piece))
            await self.channel.send(head, piece)
        self.sent += len(shard)

    async def _tell(self, kind: int, number: int, rest: bytes = b"") -> None:
        try:
            await self.channel.send(_HEAD.pack(kind, number), rest)
        except ChannelClosed:
            pass  # `_receive` ends it


def _words(rest: memoryview) -> str:
    return bytes(rest[:_WORDS]).decode(errors="replace")


def _forget(reading: Awaitable[bytes]) -> None:
    """What comes of a reading that nobody waits for any more is nobody's error."""
    if isinstance(reading, asyncio.Future):
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
