"""How do messages with a topic travel over the control connection of two devices?

A frame is one byte and up to 64 KiB less one: the topic, with its highest bit set where more of the message
follows, or the totals of `credits`. No more waits to be sent than the connection's high-water mark. Whatever has been sent must be
acknowledged, or the channel counts as stalled and is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from p2pqueue.errors import ArgumentError, ChannelClosed, MalformedMessage
from p2pqueue.net.webrtc.accounts import Accounts
from p2pqueue.net.webrtc.credits import BOUNDLESS, STALL_AFTER, Incoming, Outgoing
from p2pqueue.wire import FRAME_LIMIT, MESSAGE_LIMIT

if TYPE_CHECKING:
    from p2pqueue.net.webrtc.connection import RtcConnection

CONTROL_BUFFER = 256 * 1024  # bytes, the high-water mark of a control connection; more only delays the signals behind them
TOPICS = range(0x7F)  # the topics that a frame can name

_TOTALS = 0x7F
_MORE = 0x80
_PART = FRAME_LIMIT - 1

_log = logging.getLogger(__name__)


class ControlChannel:
    """Small messages, in order, with their topics.

    `on_message(topic, message)` gets each; an exception in it is logged and closes the channel. `on_closed`
    is told once, in words, when the channel ends by anything but `close()`.
    """

    def __init__(
        self,
        connection: RtcConnection,
        *,
        on_message: Callable[[int, bytes], None],
        on_closed: Callable[[str], None],
        stall_after: float = STALL_AFTER,
    ) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_closed = on_closed
        outgoing, incoming = Outgoing(BOUNDLESS, stall_after=stall_after), Incoming(BOUNDLESS)
        self._accounts = Accounts(outgoing, incoming, connection, tell=self._tell)
        self._unfinished: list[bytes] = []
        self._topic = _TOTALS
        self._closed = False
        connection.on_closed = self._ended
        connection.on_message = self._received
        if connection.reason is not None:  # told later: whoever makes the channel doesn't have it yet
            asyncio.get_running_loop().call_soon(self._ended, connection.reason)

    @property
    def open(self) -> bool:
        """Whether messages can be sent."""
        return not self._closed and self._connection.open

    @property
    def buffered(self) -> int:
        """Bytes that wait to be sent."""
        return self._connection.buffered

    def send_soon(self, topic: int, message: bytes) -> bool:
        """Sends a message without waiting; False where the buffer has no room for it, or the channel is closed."""
        _check(topic, message)
        if not self.open or not self._has_room(len(message)):
            return False
        self._send(topic, message)
        return True

    async def send(self, topic: int, message: bytes) -> None:
        """Sends a message as soon as there is room for it; raises `ChannelClosed`."""
        _check(topic, message)
        while self.open and not self._has_room(len(message)):
            await self._connection.drained(max(0, self._connection.high_water - len(message)))
        if not self.open:
            raise ChannelClosed(self._connection.reason or "the channel is closed")
        self._send(topic, message)

    async def close(self) -> None:
        """Closes the channel and its connection; never raises."""
        self._closed = True
        self._accounts.close()
        await self._connection.close()

    def _has_room(self, size: int) -> bool:
        return self.buffered == 0 or self.buffered + size <= self._connection.high_water

    def _send(self, topic: int, message: bytes) -> None:
        for start in range(0, len(message) or 1, _PART):
            more = _MORE if start + _PART < len(message) else 0
            part = message[start : start + _PART]
            self._connection.send(bytes((topic | more,)) + part)
            self._accounts.sent(len(part) or 1)

    def _tell(self, totals: bytes) -> None:
        if self.open:
            self._connection.send(bytes((_TOTALS,)) + totals)

    def _received(self, frame: bytes) -> None:
        try:
            self._take(frame)
        except MalformedMessage as error:
            _log.warning("a control channel is closed: %s", error)
            self._connection.lose(f"the other device sent {error}")

    def _take(self, frame: bytes) -> None:
        if not frame or len(frame) > FRAME_LIMIT:
            raise MalformedMessage("a frame of a size that is none")
        head, part = frame[0], frame[1:]
        topic = head & ~_MORE
        if topic == _TOTALS:
            return self._accounts.told(part)
        if self._unfinished and topic != self._topic:
            raise MalformedMessage("a message within another")
        self._topic = topic
        if sum(map(len, self._unfinished)) + len(part) > MESSAGE_LIMIT:
            raise MalformedMessage(f"a message of more than {MESSAGE_LIMIT} bytes")
        self._accounts.arrived(len(part) or 1)
        if head & _MORE:
            if len(part) < _PART:
                raise MalformedMessage("a part that is smaller than it may be")
            self._unfinished.append(part)
            return None
        message = b"".join((*self._unfinished, part)) if self._unfinished else part
        self._unfinished = []
        self._on_message(topic, message)
        return None

    def _ended(self, why: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._accounts.close()
        self._on_closed(why)


def _check(topic: int, message: bytes) -> None:
    if topic not in TOPICS:
        raise ArgumentError(f"{topic} is no topic of a control channel")
    if len(message) > MESSAGE_LIMIT:
        raise ArgumentError(f"a message of {len(message)} bytes where {MESSAGE_LIMIT} are the most")
