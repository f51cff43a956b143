"""How do frames go over one WebSocket, whichever side opened it, and how does it surely end?"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from typing import Any, Protocol

import aiohttp
from aiohttp import WSMsgType, web

from p2pqueue.errors import LinkRefused, MalformedMessage
from p2pqueue.net import codes
from p2pqueue.wire import FRAME_LIMIT

CLOSE_WAIT = 1.0  # seconds for the other side to answer a closing frame
UNSENT_LIMIT = 64 * 1024  # bytes that the kernel may hold unsent: what waits here can still be overtaken

_RESET = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)  # SO_LINGER of nothing: no buffer outlives its connection
_GONE = (OSError, aiohttp.ClientError, RuntimeError)  # what aiohttp raises when a connection has gone


class PipeClosed(LinkRefused):
    """The other side closed the connection."""


class AnyPipe(Protocol):
    """What a greeting and a link ask of what carries their frames: a `Pipe`, or `webrtc.pipe.RtcPipe`."""

    @property
    def address(self) -> tuple[str, int]: ...  # noqa: D102
    async def send(self, frame: bytes) -> None: ...  # noqa: D102
    async def receive(self) -> bytes: ...  # noqa: D102
    async def close(self, code: int) -> None: ...  # noqa: D102
    def cut(self) -> None: ...  # noqa: D102


class Pipe:
    """One WebSocket that carries binary frames."""

    def __init__(self, ws: web.WebSocketResponse | aiohttp.ClientWebSocketResponse, address: tuple[str, int]) -> None:
        self._ws = ws
        self.address = address
        self._socket: Any = ws.get_extra_info("socket")
        self._closing: asyncio.Task[None] | None = None
        _tune(self._socket)

    async def send(self, frame: bytes) -> None:
        """Hands a frame to the kernel, and waits while that has no room. Raises `OSError` when the connection has gone."""
        try:
            await self._ws.send_bytes(frame)
        except (aiohttp.ClientError, RuntimeError) as error:
            raise ConnectionResetError("the connection was lost") from error

    async def receive(self) -> bytes:
        """The next frame. Raises `PipeClosed` with the code of a closing, and `MalformedMessage` for what is no frame."""
        message = await self._ws.receive()
        if message.type is WSMsgType.BINARY:
            frame: bytes = message.data
            if len(frame) > FRAME_LIMIT:
                raise MalformedMessage(f"a frame beyond {FRAME_LIMIT} bytes")
            return frame
        if message.type is WSMsgType.TEXT:
            raise MalformedMessage("a text where frames are binary")
        if message.type is WSMsgType.ERROR:
            raise MalformedMessage("bytes that are no WebSocket's")
        code = self._ws.close_code or 0
        raise PipeClosed(codes.words(code), code=code)

    async def close(self, code: int) -> None:
        """Ends the connection, with a closing frame where it still gets through. Never raises, takes a second at most."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(code), name="p2pqueue-close")
        await asyncio.shield(self._closing)

    async def _close(self, code: int) -> None:
        try:
            async with asyncio.timeout(CLOSE_WAIT):
                await self._ws.close(code=code)
        except (TimeoutError, *_GONE):
            pass
        finally:
            self.cut()

    def cut(self) -> None:
        """Ends the connection at once: what is still in its buffers is lost."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._socket.shutdown(socket.SHUT_RDWR)


def _tune(connection: Any) -> None:
    if connection is None:
        return
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_LIMIT)
