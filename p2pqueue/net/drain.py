"""How are UDP datagrams taken from the kernel quickly without starving the rest of the loop?

Plain asyncio reads one datagram per turn of the loop. `Drain` stands between a datagram transport and its
protocol and reads on until the socket is empty, at most a few at a time. It also drops what is neither STUN
nor DTLS: an empty datagram from any stranger would end aiortc's receiving otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

DRAINED = 8  # datagrams a wake-up: 16 are no faster with the stock SCTP transport, 64 make signals wait 10 ms
LONGEST = 4096  # bytes: our packets end at 1,500, a browser's at about 1,200

_log = logging.getLogger(__name__)
Handler = Callable[[bytes, tuple[Any, ...]], None]


class Drain(asyncio.DatagramProtocol):
    """Hands STUN to the protocol it stands before, and DTLS to `on_data`; closes with its transport."""

    def __init__(self, transport: asyncio.DatagramTransport, before: asyncio.DatagramProtocol, *, on_data: Handler, limit: int) -> None:
        self._transport = transport
        self._before = before
        self._on_data = on_data
        self._more = limit - 1
        self._socket = _readable(transport) if limit > 1 else None
        transport.set_protocol(self)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Takes this datagram and those behind it."""
        self._take(data, addr)
        if self._socket is None:
            return
        for _ in range(self._more):
            if self._transport.is_closing():
                return
            try:
                data, addr = self._socket.recvfrom(LONGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._before.error_received(error)
                return
            self._take(data, addr)

    def error_received(self, exc: Exception) -> None:
        """Passes on what the kernel says of earlier datagrams."""
        self._before.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the second descriptor and passes it on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._before.connection_lost(exc)

    def _take(self, data: bytes, addr: tuple[Any, ...]) -> None:
        first = data[0] if data else -1
        if 19 < first < 64:
            self._on_data(data, addr)
        elif 0 <= first < 4:
            try:
                self._before.datagram_received(data, addr)
            except Exception as error:  # noqa: BLE001  whoever reaches the port can send anything
                _log.debug("a datagram from %s that STUN can't read: %r", addr[0], error)


def _readable(transport: asyncio.DatagramTransport) -> socket.socket | None:
    """A socket of our own on the transport's descriptor; None where the loop itself reads ahead (Windows)."""
    if not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
        return None
    shared: socket.socket | None = transport.get_extra_info("socket")
    if shared is None:
        return None
    own = shared.dup()
    own.setblocking(False)
    return own
