"""What happens next? Virtual time: a heap of actions, each at its moment."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Schedule:
    """Runs actions in the order of their time; equal times in the order in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        self._added = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Adds an action; one in the past runs next."""
        self._added += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._added, action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Adds an action some seconds from now."""
        self.at(self.now + delay, action)

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Runs everything up to a moment, or until `stop` says so; says whether it did."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
            if stop():
                return True
        self.now = until
        return False
