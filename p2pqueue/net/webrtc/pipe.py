"""How does a link go over a direct connection, where no TCP gets through?

The frames of a link, which are sealed before they come here, each with a byte before it; and the code with which the
link is closed, as WebSocket's closing frame has it. The receiver's pace is that of a bulk channel.
"""

from __future__ import annotations

import asyncio
import contextlib
from struct import Struct
from typing import Final

from p2pqueue.errors import ChannelClosed, MalformedMessage
from p2pqueue.net import codes
from p2pqueue.net.pipe import CLOSE_WAIT, PipeClosed
from p2pqueue.net.webrtc.bulk import BulkChannel
from p2pqueue.net.webrtc.connection import RtcConnection

LINK_BUFFER: Final = 128 * 1024  # bytes that wait to be sent: what waits before can still be overtaken

_FRAME: Final = b"\x00"
_CLOSE: Final = b"\x01"
_CODE: Final = Struct("!H")


class RtcPipe:
    """Carries the frames of one link over an open connection, which it closes in the end."""

    def __init__(self, connection: RtcConnection) -> None:
        self._connection = connection
        self._channel = BulkChannel(connection)
        self._closing: asyncio.Task[None] | None = None
        ends = connection.ends
        self.address = (ends[1][0] if ends is not None else "", 0)  # nothing is known to listen there

    async def send(self, frame: bytes) -> None:
        """Sends a frame as soon as there is room. Raises `OSError` when the connection has gone."""
        try:
            await self._channel.send(_FRAME, frame)
        except ChannelClosed as error:
            raise ConnectionResetError(str(error)) from error

    async def receive(self) -> bytes:
        """The next frame. Raises `PipeClosed` with the code of a closing, and `MalformedMessage` for what is no frame."""
        try:
            message = await self._channel.receive()
        except ChannelClosed as error:
            raise PipeClosed(str(error), code=0) from error
        self._channel.grant(len(message))
        kind, frame = bytes(message[:1]), bytes(message[1:])
        if kind == _FRAME:
            return frame
        if kind == _CLOSE and len(frame) == _CODE.size:
            (code,) = _CODE.unpack(frame)
            raise PipeClosed(codes.words(code), code=code)
        raise MalformedMessage("a frame of a link over WebRTC that is none")

    async def close(self, code: int) -> None:
        """Ends the connection, and says why where that still gets through. Never raises, takes a second or two at most."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(code), name="p2pqueue-close")
        await asyncio.shield(self._closing)

    def cut(self) -> None:
        """Ends the connection at once."""
        self._connection.lose("closed by this device")

    async def _close(self, code: int) -> None:
        try:
            async with asyncio.timeout(CLOSE_WAIT):
                await self._channel.send(_CLOSE, _CODE.pack(code))
                with contextlib.suppress(MalformedMessage):
                    while True:  # until the other side has read it, and closes
                        await self.receive()
        except (TimeoutError, ChannelClosed, PipeClosed):
            pass
        finally:
            await self._channel.close()
