"""Connections that only look like WebRTC: in one process, quick, and cut at will."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from p2pqueue.errors import ChannelClosed, ConnectFailed
from p2pqueue.net.webrtc.signal import RtcSignal


class Wires:
    """The network between them; `blocked` says why nothing connects, `made` counts every end."""

    def __init__(self) -> None:
        self.blocked: str | None = None
        self.made: list[End] = []
        self._names = itertools.count()
        self.offered: dict[str, End] = {}

    def connect(self, controlling: bool, high_water: int) -> End:
        end = End(self, f"wire{next(self._names):06d}", high_water)
        self.made.append(end)
        return end

    @property
    def open(self) -> list[End]:
        return [end for end in self.made if end.open]

    def cut(self, why: str = "the path to that device is gone") -> None:
        for end in self.open:
            end.lose(why)


class End:
    """One end, as the channels and `Direct` use it."""

    def __init__(self, wires: Wires, name: str, high_water: int) -> None:
        self._wires = wires
        self.name = name
        self.other: End | None = None
        self.reason: str | None = None
        self.closed = False
        self.buffered = 0
        self.high_water = high_water
        self.moved_at = asyncio.get_running_loop().time()
        self.on_message: Callable[[bytes], None] | None = None
        self.on_closed: Callable[[str], None] | None = None

    @property
    def open(self) -> bool:
        return self.other is not None and self.reason is None

    async def offer(self) -> RtcSignal:
        await asyncio.sleep(0)
        self._wires.offered[self.name] = self
        return RtcSignal(self.name, "p" * 22, (("127.0.0.1", 9),), bytes(32))

    async def connect(self, remote: RtcSignal) -> None:
        await asyncio.sleep(0.001)
        other = self._wires.offered[remote.ufrag]
        if self._wires.blocked is not None:
            self.reason = self._wires.blocked
        if self.reason is not None:
            raise ConnectFailed(self.reason)
        self.other = other

    def send(self, data: bytes) -> None:
        if not self.open:
            raise ChannelClosed(self.reason or "not open")
        asyncio.get_running_loop().call_soon(self._pass, data)

    async def drained(self, below: int) -> None:
        await asyncio.sleep(0)

    def lose(self, why: str) -> None:
        if self.reason is not None:
            return
        was_open, self.reason = self.open, why
        if was_open and self.on_closed is not None:
            self.on_closed(why)

    async def close(self) -> None:
        self.lose("closed by this device")
        self.closed = True
        if self.other is not None and self.other.open:
            asyncio.get_running_loop().call_soon(self.other.lose, "the other device closed the connection")

    def _pass(self, data: bytes) -> None:
        other = self.other
        if self.open and other is not None and other.reason is None:
            if other.on_message is None:
                asyncio.get_running_loop().call_later(0.001, self._pass, data)
            else:
                other.on_message(data)
