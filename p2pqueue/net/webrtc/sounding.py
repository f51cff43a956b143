"""Does the path between two devices bear larger packets than those that every path bears?

A heartbeat as large as they would be is sent; SCTP answers it with one as large. Only after that data comes in
such packets, so a path that eats them costs nothing (RFC 8899, with one step).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable

from p2pqueue.net.webrtc.packets import DATA_HEAD, HEAD, MARK

WIDE = 1400  # bytes of a packet: with DTLS, UDP and IPv6 around it 1,485
WIDE_PAYLOAD = WIDE - DATA_HEAD
TRIES = (0.3, 1.0, 3.0)  # seconds that each answer is waited for

_MARK = WIDE - HEAD - 8  # bytes


class Sounding:
    """One question for one path."""

    def __init__(self, send: Callable[[bytes], None], on_found: Callable[[], None]) -> None:
        """`send` sends a heartbeat with this mark; `on_found` is called once, when an answer has come."""
        self._send = send
        self._on_found = on_found
        self._mark = b""
        self._left: list[float] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Asks, and asks again a few times where nothing comes back."""
        if not self._mark:
            self._mark = os.urandom(16).ljust(_MARK, b"\0")
            self._left = list(TRIES)
            self._ask()

    def hear(self, parameters: Iterable[tuple[int, bytes]]) -> None:
        """Takes the parameters of a heartbeat that was answered."""
        if self._mark and self._left and (MARK, self._mark) in parameters:
            self.end()
            self._on_found()

    def end(self) -> None:
        """Asks no more."""
        self._left = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> None:
        self._timer = None
        if self._left:
            self._send(self._mark)
            self._timer = asyncio.get_running_loop().call_later(self._left[0], self._ask_again)

    def _ask_again(self) -> None:
        self._left = self._left[1:]
        self._ask()
