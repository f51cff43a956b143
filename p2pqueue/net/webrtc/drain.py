"""How are UDP datagrams taken from the kernel quickly without starving the rest of the loop?

Plain asyncio reads one datagram per turn of the loop. `Drain` stands between a datagram transport and its
protocol and reads on until the socket is empty, at most a few at a time. It also drops what is neither STUN
nor DTLS: an empty datagram from any stranger would end aiortc's receiving otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from p2pqueue.net.webrtc.burst import Burst, gather, parted, second_socket

DRAINED = 8  # datagrams a wake-up: 16 are no faster with the stock SCTP transport, 64 make signals wait 10 ms
GATHERED = 32  # datagrams a wake-up where they come together and the tuned transport takes them: a fifth less work than 8
LONGEST = 65535  # bytes that come at once: one datagram, or several in one buffer

_log = logging.getLogger(__name__)
Address = tuple[Any, ...]
Handler = Callable[[Sequence[bytes], Address], None]


class Drain(asyncio.DatagramProtocol):
    """Hands STUN to the protocol it stands before, and DTLS, what came together at once, to `on_data`; closes with its transport."""

    def __init__(self, transport: asyncio.DatagramTransport, before: asyncio.DatagramProtocol, *, on_data: Handler, limit: int) -> None:
        self._transport = transport
        self._before = before
        self._on_data = on_data
        self._limit = limit
        self._socket = second_socket(transport) if limit > 1 else None
        self._parts = False
        self.burst = Burst(transport, self._socket)
        transport.set_protocol(self)

    def gather(self) -> bool:
        """From now on, all that comes is STUN and DTLS 1.2, and may come in one buffer. Says whether several come at once at all."""
        if self._socket is not None:
            self._limit = max(self._limit, GATHERED)
            self._parts = self._parts or gather(self._socket)
        return self._socket is not None

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Takes this datagram and those behind it."""
        records: list[bytes] = []
        sender, taken = addr, 0
        while True:
            if addr != sender and records:
                self._on_data(records, sender)
                records = []
            sender = addr
            taken += self._take(data, addr, records)
            if taken >= self._limit or self._socket is None or self._transport.is_closing():
                break
            try:
                data, addr = self._socket.recvfrom(LONGEST)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._before.error_received(error)
                break
        if records:
            self._on_data(records, sender)

    def error_received(self, exc: Exception) -> None:
        """Passes on what the kernel says of earlier datagrams."""
        self._before.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the second descriptor and passes it on."""
        self.burst.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._before.connection_lost(exc)

    def _take(self, data: bytes, addr: Address, records: list[bytes]) -> int:
        """Sorts what came in one buffer; gives the number of its datagrams."""
        count = 0
        for part in parted(data) if self._parts else (data,):
            first = part[0] if part else -1
            if 19 < first < 64:
                records.append(part)
            elif 0 <= first < 4:
                self._pass_on(part, addr)
            count += 1
        return max(count, 1)

    def _pass_on(self, data: bytes, addr: Address) -> None:
        try:
            self._before.datagram_received(data, addr)
        except Exception as error:  # noqa: BLE001  whoever reaches the port can send anything
            _log.debug("a datagram from %s that STUN can't read: %r", addr[0], error)
