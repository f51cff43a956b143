"""Which chunk of a file is asked of which source next? Pure.

Chunks are given out in their order, each to one source at a time; towards the end, where nothing is left to give out,
the one that was asked longest ago is asked of a second source too. A source that doesn't have a chunk is not asked
for it again; one that sent three wrong ones is out, one that failed three times in a row rests. Times are seconds,
monotonic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

STRIKES = 3  # wrong chunks after which a source is out, failures in a row after which it rests
FIRST_REST = 1.0  # seconds; doubles
LONGEST_REST = 8.0  # seconds
TWICE_AFTER = 1.0  # seconds that a chunk must have been asked before a second source is asked for it


@dataclass
class _Standing:
    lacks: set[int] = field(default_factory=set)
    wrong: int = 0
    failures: int = 0  # in a row
    rests_until: float = 0.0

    def is_asked(self, now: float) -> bool:
        return self.wrong < STRIKES and now >= self.rests_until


class Plan:
    """Gives out the chunks of one file."""

    def __init__(self, chunks: Iterable[int]) -> None:
        self._left = deque(chunks)
        self._asked: dict[int, dict[str, float]] = {}  # by chunk: of which source, and since when
        self._undone = set(self._left)
        self._sources: dict[str, _Standing] = {}

    @property
    def finished(self) -> bool:
        """Says whether every chunk has come."""
        return not self._undone

    @property
    def undone(self) -> int:
        """How many chunks have not come."""
        return len(self._undone)

    @property
    def first_undone(self) -> int:
        """The first of them."""
        return min(self._undone)

    def take(self, source: str, now: float) -> int | None:
        """The chunk to ask of a source now; None where there is none for it."""
        standing = self._standing(source)
        if not standing.is_asked(now):
            return None
        chunk = self._fresh(standing)
        if chunk is None:
            chunk = self._again(source, standing, now)
        if chunk is not None:
            self._asked.setdefault(chunk, {})[source] = now
        return chunk

    def came(self, chunk: int, source: str) -> bool:
        """A chunk is here and right; says whether it is the first to come."""
        standing = self._standing(source)
        standing.failures, standing.rests_until = 0, 0.0
        self._asked.pop(chunk, None)
        if chunk not in self._undone:
            return False
        self._undone.remove(chunk)
        return True

    def missing(self, chunk: int, source: str) -> None:
        """A source doesn't have a chunk."""
        self._standing(source).lacks.add(chunk)
        self._back(chunk, source)

    def wrong(self, chunk: int, source: str) -> None:
        """What a source sent doesn't fit."""
        self._standing(source).wrong += 1
        self._back(chunk, source)

    def failed(self, chunk: int, source: str, now: float) -> None:
        """A source failed, or was too slow. What fails while it rests was asked before, and counts no more."""
        standing = self._standing(source)
        if now >= standing.rests_until:
            standing.failures += 1
        if standing.failures >= STRIKES and now >= standing.rests_until:
            standing.rests_until = now + min(LONGEST_REST, FIRST_REST * 2 ** (standing.failures - STRIKES))
        self._back(chunk, source)

    def has_use_for(self, source: str, now: float) -> bool:
        """Says whether some chunk that has not come may be asked of a source, now or when others gave it up."""
        standing = self._standing(source)
        return standing.is_asked(now) and not self._undone <= standing.lacks

    def _standing(self, source: str) -> _Standing:
        return self._sources.setdefault(source, _Standing())

    def _fresh(self, standing: _Standing) -> int | None:
        for _ in range(len(self._left)):
            chunk = self._left.popleft()
            if chunk not in self._undone:
                continue  # it came from elsewhere meanwhile
            if chunk not in standing.lacks:
                return chunk
            self._left.append(chunk)
        return None

    def _again(self, source: str, standing: _Standing, now: float) -> int | None:
        slow = [
            (min(asked.values()), chunk)
            for chunk, asked in self._asked.items()
            if source not in asked and len(asked) == 1 and chunk not in standing.lacks
        ]
        since, chunk = min(slow, default=(now, -1))
        return chunk if chunk >= 0 and now - since >= TWICE_AFTER else None

    def _back(self, chunk: int, source: str) -> None:
        asked = self._asked.get(chunk)
        if asked is None:
            return
        asked.pop(source, None)
        if not asked:
            del self._asked[chunk]
            if chunk in self._undone:
                self._left.appendleft(chunk)
