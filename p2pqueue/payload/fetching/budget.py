"""How much may be under way at once? Bytes that requests take before they begin, and give back at their end."""

from __future__ import annotations

import threading
from collections import deque

from p2pqueue.payload.memory import pages


class Budget:
    """A number of bytes. For any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._lock = threading.Lock()

    def try_take(self, size: int) -> bool:
        """Takes so many bytes, the whole budget at most; False where they aren't free."""
        size = min(size, self._size)
        with self._lock:
            if self._free < size:
                return False
            self._free -= size
            return True

    def force(self, size: int) -> None:
        """Takes so many bytes though they aren't free."""
        with self._lock:
            self._free -= min(size, self._size)

    def give(self, size: int) -> None:
        """Gives back what was taken."""
        with self._lock:
            self._free += min(size, self._size)


class Buffers:
    """Buffers that are used again and again, so that no memory is asked for and cleared for each shard. For any thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept: deque[memoryview] = deque()

    def take(self) -> memoryview:
        """A buffer whose content is anything."""
        try:
            return self._kept.pop()
        except IndexError:
            return pages(self.size)

    def give(self, buffer: memoryview) -> None:
        """Nobody uses it any more."""
        self._kept.append(buffer)
