"""Bad weather between two ends: their datagrams are lost, doubled and delayed, below DTLS, by a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from p2pqueue.net.webrtc.connection import RtcConnection


@dataclass
class Weather:
    """What becomes of each datagram: the delays of its copies, in seconds."""

    seed: int
    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0  # the share that others overtake ...
    by: float = 0.002  # ... at the most by so many seconds
    count: int = 0
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def __call__(self, datagram: bytes) -> Iterable[float]:
        self.count += 1
        if self._random.random() < self.lost:
            return ()
        return [self._delay() for _ in range(2 if self._random.random() < self.doubled else 1)]

    def _delay(self) -> float:
        return self._random.random() * self.by if self._random.random() < self.late else 0.0


def disturb(end: RtcConnection, fate: Callable[[bytes], Iterable[float]]) -> None:
    """Every datagram that an end sends, STUN aside, has this fate."""
    send, loop = end._path.send_together, asyncio.get_running_loop()

    def pass_on(datagram: bytes) -> None:
        send(memoryview(datagram), [len(datagram)])

    def meet(datagram: bytes) -> None:
        for delay in fate(datagram):
            if delay:
                loop.call_later(delay, pass_on, datagram)
            else:
                pass_on(datagram)

    async def alone(datagram: bytes) -> None:
        meet(datagram)

    def together(block: memoryview, lengths: Sequence[int]) -> None:
        at = 0
        for length in lengths:
            meet(bytes(block[at : at + length]))
            at += length

    end._ice._send = alone
    end._path.send_together = together  # type: ignore[method-assign]


def eating(*, above: int) -> Callable[[bytes], Iterable[float]]:
    """A path with a small MTU whose warnings are filtered: larger datagrams are gone."""
    return lambda datagram: (0.0,) if len(datagram) <= above else ()
