"""How much memory may shards take that are being sent, and who gets it?

Buffers are used again: fresh ones cost as much as sealing. All together they take a bounded room, of which one peer
gets a half at most, so that one that reads slowly doesn't keep the others waiting.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import Final

from p2pqueue.errors import WorldError
from p2pqueue.payload.format import MIB
from p2pqueue.payload.memory import pages

ROOM: Final = 48 * MIB
KEPT: Final = 12 * MIB  # bytes that stay for the next while somebody fetches
PATIENCE: Final = 15.0  # seconds that a shard waits for its room
_GRAIN: Final = 64 * 1024  # bytes; sizes are rounded up to it, so that few different ones are kept


class Buffers:
    """Memory for shards on their way out. For any thread."""

    def __init__(self, room: int = ROOM, *, patience: float = PATIENCE) -> None:
        self._room = room
        self._patience = patience
        self._used = 0
        self._by_holder: Counter[str] = Counter()
        self._kept: defaultdict[int, list[memoryview]] = defaultdict(list)
        self._kept_bytes = 0
        self._waiting = 0  # threads
        self._changed = threading.Condition(threading.Lock())

    def of(self, size: int, holder: str) -> Loan:
        """A buffer of at least that size while the block runs. Entering it raises `WorldError` where none comes free in time."""
        return Loan(self, -(-size // _GRAIN) * _GRAIN, holder)

    def clear(self) -> None:
        """Nobody fetches any more: what is kept is given back to the system."""
        with self._changed:
            self._kept.clear()
            self._kept_bytes = 0

    @property
    def used(self) -> int:
        """Bytes that are in use now."""
        return self._used

    def take(self, size: int, holder: str) -> memoryview:
        """A buffer of that size, a multiple of the grain. Raises `WorldError` where none comes free in time."""
        with self._changed:
            if not self._fits(size, holder):
                self._wait_for(size, holder)
            self._used += size
            self._by_holder[holder] += size
            if self._kept[size]:
                self._kept_bytes -= size
                return self._kept[size].pop()
        return pages(size)

    def give(self, buffer: memoryview, holder: str) -> None:
        """Takes back what `take` gave."""
        size = len(buffer)
        with self._changed:
            self._used -= size
            self._by_holder[holder] -= size
            if not self._by_holder[holder]:
                del self._by_holder[holder]
            if self._kept_bytes + size <= KEPT:
                self._kept[size].append(buffer)
                self._kept_bytes += size
            if self._waiting:
                self._changed.notify_all()

    def _wait_for(self, size: int, holder: str) -> None:
        until = time.monotonic() + self._patience
        self._waiting += 1
        try:
            while not self._fits(size, holder):
                if not self._changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    raise WorldError("it has no memory for more shards at once; it will be asked again")
        finally:
            self._waiting -= 1

    def _fits(self, size: int, holder: str) -> bool:
        held = self._by_holder[holder]
        return self._used == 0 or (self._used + size <= self._room and (held == 0 or held + size <= self._room // 2))


class Loan:
    """A buffer while a block runs. A class, since it is asked for with each shard and a generator takes twice as long."""

    def __init__(self, buffers: Buffers, size: int, holder: str) -> None:
        self._buffers, self._size, self._holder = buffers, size, holder

    def __enter__(self) -> memoryview:
        self._buffer = self._buffers.take(self._size, self._holder)
        return self._buffer

    def __exit__(self, *_: object) -> None:
        self._buffers.give(self._buffer, self._holder)
