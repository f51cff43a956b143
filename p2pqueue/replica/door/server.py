"""How does a node answer the processes of its own user?

Three kinds of messages come in, length-prefixed MessagePack maps: a ring, a request with one answer, and a request
for a stream of events, which lasts until either side closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from p2pqueue.errors import MalformedMessage, P2PQueueError
from p2pqueue.replica.door.doorbell import answer_here
from p2pqueue.replica.door.local_socket import FRAME_LIMIT, LENGTH, TOKEN_SIZE, frame, is_own_user, is_token, listen, unframe

MOST_CONNECTIONS = 256
TOKEN_WAIT = 5.0  # seconds to show the token, where one is asked for

Fields = dict[str, Any]
Request = Callable[[Fields], Awaitable[Fields]]
Stream = Callable[[Fields], AsyncIterator[Fields]]
_log = logging.getLogger(__name__)


class DoorbellServer:
    """The node's end of the local socket."""

    def __init__(
        self,
        socket_path: Path,
        *,
        on_ring: Callable[[], Any],
        requests: Mapping[str, Request] | None = None,
        streams: Mapping[str, Stream] | None = None,
    ) -> None:
        self.path = Path(socket_path)
        self._on_ring = on_ring
        self._requests = dict(requests or {})
        self._streams = dict(streams or {})
        self._token: bytes | None = None
        self._server: asyncio.Server | None = None
        self._inode: int | None = None
        self._handlers: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Begins to listen. Raises in words what stands in the way."""
        listening, self._token = listen(self.path)
        self._inode = os.stat(self.path).st_ino
        if listening.family == getattr(socket, "AF_UNIX", None):
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=FRAME_LIMIT + LENGTH.size)
        else:
            self._server = await asyncio.start_server(self._serve, sock=listening, limit=FRAME_LIMIT + LENGTH.size)
        answer_here(self.path, partial(asyncio.get_running_loop().call_soon_threadsafe, self._on_ring))

    async def close(self) -> None:
        """Ends every connection and takes the socket away."""
        if self._server is None:
            return
        answer_here(self.path, None)
        server, self._server = self._server, None
        server.close()
        handlers = tuple(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await server.wait_closed()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            if len(self._handlers) <= MOST_CONNECTIONS and await self._is_welcome(reader, writer):
                await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except MalformedMessage as error:
            _log.warning("the local socket got a message that can't be read: %s", error)
        except asyncio.CancelledError:
            pass  # `close` cancels; the connection ends below, and nobody awaits this task's outcome
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _is_welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if not is_own_user(writer.get_extra_info("socket")):
            _log.warning("another user tried to reach the local socket")
            return False
        if self._token is None:
            return True
        try:
            async with asyncio.timeout(TOKEN_WAIT):
                return is_token(await reader.readexactly(TOKEN_SIZE), self._token)
        except TimeoutError:
            return False

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            if length > FRAME_LIMIT:
                raise MalformedMessage(f"{length} bytes announced")
            message = unframe(await reader.readexactly(length))
            name, fields = message.get("name"), message.get("fields")
            fields = fields if isinstance(fields, dict) else {}
            match message.get("kind"):
                case "ring":
                    self._on_ring()
                case "request":
                    writer.write(await self._answer(name, fields))
                    await writer.drain()
                case "stream":
                    await self._tell(name, fields, reader, writer)
                    return
                case _:
                    writer.write(frame({"error": "this node doesn't know that kind of message", "type": "MisuseError"}))

    async def _answer(self, name: Any, fields: Fields) -> bytes:
        handler = self._requests.get(name) if isinstance(name, str) else None
        if handler is None:
            return frame({"error": f"this node doesn't answer {name!r}", "type": "MisuseError"})
        try:
            return frame({"value": await handler(fields)})
        except Exception as error:  # noqa: BLE001 - one bad request must not end the node
            return _failure(error)

    async def _tell(self, name: Any, fields: Fields, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = self._streams.get(name) if isinstance(name, str) else None
        if handler is None:
            writer.write(frame({"error": f"this node has no stream {name!r}", "type": "MisuseError"}))
            await writer.drain()
            return
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(self._pump(handler(fields), writer))
            gone = group.create_task(_until_gone(reader))
            await asyncio.wait((telling, gone), return_when=asyncio.FIRST_COMPLETED)
            telling.cancel()
            gone.cancel()

    async def _pump(self, events: AsyncIterator[Fields], writer: asyncio.StreamWriter) -> None:
        try:
            async with contextlib.aclosing(events) as source:  # type: ignore[type-var]
                async for event in source:
                    writer.write(frame({"value": event}))
                    await writer.drain()
            writer.write(frame({"end": True}))
            await writer.drain()
        except ConnectionError:
            pass  # the listener went away
        except Exception as error:  # noqa: BLE001 - one bad stream must not end the node
            with contextlib.suppress(ConnectionError):
                writer.write(_failure(error))
                await writer.drain()


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Returns when the other side closes; what it still sends is dropped."""
    try:
        while await reader.read(1 << 12):
            pass
    except ConnectionError:
        pass


def _failure(error: Exception) -> bytes:
    if isinstance(error, P2PQueueError):
        return frame({"error": str(error), "type": type(error).__name__})
    _log.error("a handler of the local socket failed", exc_info=error)
    return frame({"error": f"the node failed at this request: {type(error).__name__}", "type": "WorldError"})
