"""How does a node read from a child and write to it without ever waiting?

Bytes that can't be sent yet wait here, a few messages at most; what comes is bounded by not reading on while the
messages before are still being dealt with.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from p2pqueue.errors import MalformedMessage
from p2pqueue.workers.children.protocol import Decoder, Message, encode

_READ = 64 * 1024


class Endpoint:
    """The node's end of a socket pair. `deliver` gets each message, `closed` the reason when no more will come."""

    def __init__(self, connection: socket.socket, deliver: Callable[[Message], None], closed: Callable[[str], None]) -> None:
        self._connection = connection
        self._descriptor = connection.fileno()
        self._deliver = deliver
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        self._waiting = bytearray()
        self._reading = False
        self._open = True
        self._ended = False
        self.resume()

    def send(self, message: Message) -> bool:
        """Sends a message, now or as soon as there is room; False where the child can't be reached any more."""
        if not self._open:
            return False
        data = encode(message)
        if not self._waiting:
            try:
                data = data[self._connection.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                return False
        if data:
            if not self._waiting:
                self._loop.add_writer(self._descriptor, self._writable)
            self._waiting += data
        return True

    def pause(self) -> None:
        """Reads nothing more until `resume`: what the child goes on sending fills its own buffer."""
        if self._reading:
            self._loop.remove_reader(self._descriptor)
            self._reading = False

    def resume(self) -> None:
        """Reads again."""
        if self._open and not self._ended and not self._reading:
            self._loop.add_reader(self._descriptor, self._readable)
            self._reading = True

    def close(self) -> None:
        """Closes the connection; the child sees it at once."""
        if self._open:
            self.pause()
            self._loop.remove_writer(self._descriptor)
            self._open = False
            self._connection.close()

    def _readable(self) -> None:
        try:
            data = self._connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or "the connection broke")
            return
        if not data:
            self._end("it closed the connection to its node")
            return
        self._decoder.feed(data)
        try:
            while (message := self._decoder.next()) is not None:
                self._deliver(message)
        except MalformedMessage as error:
            self._end(f"it sent its node {error}")

    def _writable(self) -> None:
        try:
            del self._waiting[: self._connection.send(self._waiting)]
        except BlockingIOError:
            return
        except OSError:
            self._waiting.clear()  # the reading side tells of the end
        if not self._waiting:
            self._loop.remove_writer(self._descriptor)

    def _end(self, reason: str) -> None:
        self._ended = True
        self.pause()
        self._closed(reason)
