"""Which chunks of a file are here, which are asked for, and which are left to ask for? Pure.

What was never asked for lies in ranges, so that a file of two million chunks takes no room; what was asked for in vain
lies beside them and is asked for first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SMALLEST_PROBED: Final = 4  # chunks in a range in whose middle a source that has only some is tried


class Chunks:
    """The chunks of one file by their numbers. `here` holds a bit for each that is here already, the lowest bit first."""

    def __init__(self, count: int, here: bytes = b"") -> None:
        self.count = count
        self._here = bytearray(-(-count // 8))
        self._here[: len(here)] = here[: len(self._here)]
        self._ranges: list[list[int]] = []  # [first, behind the last] of those never asked for
        self._back: dict[int, None] = {}  # asked for in vain, the first the longest ago
        self._gather()
        self.unasked = sum(behind - first for first, behind in self._ranges)
        self.undone = self.unasked

    def is_here(self, chunk: int) -> bool:
        """Says whether a chunk has come."""
        return bool(self._here[chunk >> 3] & (1 << (chunk & 7)))

    @property
    def first_undone(self) -> int:
        """The first that has not come."""
        start = next(number for number, byte in enumerate(self._here) if byte != 0xFF) * 8
        return next(chunk for chunk in range(start, start + 8) if not self.is_here(chunk))

    def mark(self, chunk: int) -> bool:
        """A chunk that was drawn is here; says whether it is the first time."""
        if self.is_here(chunk):
            return False
        self._here[chunk >> 3] |= 1 << (chunk & 7)
        self.undone -= 1
        if chunk in self._back:
            del self._back[chunk]
            self.unasked -= 1
        return True

    def draw(self, lacks: Callable[[int], bool], *, probing: bool = False, after: int | None = None) -> int | None:
        """The next to ask of a source that lacks some.

        `probing` looks elsewhere than where it lacked all; `after` goes on behind a chunk that it had.
        """
        for chunk in self._back:
            if not lacks(chunk):
                del self._back[chunk]
                self.unasked -= 1
                return chunk
        if not self._ranges:
            return None
        self.unasked -= 1
        if after is not None:
            for place, (first, _) in enumerate(self._ranges):
                if first == after + 1:
                    return self._first(place)
        return self._probe() if probing else self._first()

    def put_back(self, chunk: int) -> None:
        """A chunk that was drawn has not come, and nobody is asked for it any more."""
        if not self.is_here(chunk) and chunk not in self._back:
            self._back[chunk] = None
            self.unasked += 1

    def _first(self, place: int = 0) -> int:
        chunk = self._ranges[place][0]
        self._ranges[place][0] += 1
        if self._ranges[place][0] == self._ranges[place][1]:
            del self._ranges[place]
        return chunk

    def _probe(self) -> int:
        place, (first, behind) = max(enumerate(self._ranges), key=lambda each: each[1][1] - each[1][0])
        if behind - first < SMALLEST_PROBED:
            return self._first()
        middle = (first + behind) // 2
        self._ranges[place : place + 1] = [[first, middle], [middle + 1, behind]]
        return middle

    def _gather(self) -> None:
        first = None
        for chunk in range(self.count):
            if self.is_here(chunk):
                if first is not None:
                    self._ranges.append([first, chunk])
                first = None
            elif first is None:
                first = chunk
        if first is not None:
            self._ranges.append([first, self.count])
