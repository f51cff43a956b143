"""How much memory may shards take that are being sent, and who gets it?

Buffers are used again: fresh ones cost as much as sealing. All together they take a bounded room, of which one peer
gets a half at most, so that one that reads slowly doesn't keep the others waiting.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
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
        self._changed = threading.Condition()

    @contextmanager
    def of(self, size: int, holder: str) -> Iterator[memoryview]:
        """A buffer of at least that size while the block runs. Raises `WorldError` where none comes free in time."""
        whole = -(-size // _GRAIN) * _GRAIN
        buffer = self._take(whole, holder)
        try:
            yield buffer
        finally:
            self._give(buffer, holder)

    def clear(self) -> None:
        """Nobody fetches any more: what is kept is given back to the system."""
        with self._changed:
            self._kept.clear()
            self._kept_bytes = 0

    @property
    def used(self) -> int:
        """Bytes that are in use now."""
        return self._used

    def _take(self, size: int, holder: str) -> memoryview:
        until = time.monotonic() + self._patience
        with self._changed:
            while not self._fits(size, holder):
                if not self._changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    raise WorldError("it has no memory for more shards at once; it will be asked again")
            self._used += size
            self._by_holder[holder] += size
            if self._kept[size]:
                self._kept_bytes -= size
                return self._kept[size].pop()
        return pages(size)

    def _fits(self, size: int, holder: str) -> bool:
        held = self._by_holder[holder]
        return self._used == 0 or (self._used + size <= self._room and (held == 0 or held + size <= self._room // 2))

    def _give(self, buffer: memoryview, holder: str) -> None:
        size = len(buffer)
        with self._changed:
            self._used -= size
            self._by_holder[holder] -= size
            if not self._by_holder[holder]:
                del self._by_holder[holder]
            if self._kept_bytes + size <= KEPT:
                self._kept[size].append(buffer)
                self._kept_bytes += size
            self._changed.notify_all()
