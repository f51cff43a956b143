"""Which connections to one HTTP server stand between two fetches, and how do they end all at once?"""

from __future__ import annotations

import threading
from collections.abc import Callable

from p2pqueue.payload.fetching.http_line import Came, HttpLine, Place
from p2pqueue.payload.fetching.source import SourceFailed, Work


class Lines:
    """The connections to one server until they are closed. For any thread. `make` makes one."""

    def __init__(self, place: Place, make: Callable[[Place], HttpLine] = HttpLine) -> None:
        self._place = place
        self._make = make
        self._lock = threading.Lock()
        self._resting: list[HttpLine] = []
        self._busy: set[HttpLine] = set()
        self._closed = False

    def carry(self, work: Work, came: Came) -> None:
        """Does what the work gives, over a connection of its own. Raises `SourceFailed`."""
        line = self._take()
        fit = False
        try:
            line.carry(work, came)
            fit = True
        finally:
            with self._lock:
                self._busy.discard(line)
                fit = fit and not self._closed and line.is_fit
                if fit:
                    self._resting.append(line)
            if not fit:
                line.close()

    def sweep(self) -> None:
        """Closes those that have rested too long."""
        with self._lock:
            unfit = [line for line in self._resting if not line.is_fit]
            self._resting = [line for line in self._resting if line not in unfit]
        for line in unfit:
            line.close()

    def rest(self) -> None:
        """Closes those that nobody uses now."""
        with self._lock:
            resting, self._resting = self._resting, []
        for line in resting:
            line.close()

    def close(self) -> None:
        """Ends all of them, for good; whoever waits for one is told that it failed."""
        with self._lock:
            self._closed = True
            for line in self._busy:
                line.end()
        self.rest()

    def _take(self) -> HttpLine:
        with self._lock:
            if self._closed:
                raise SourceFailed("the link has ended")
            while self._resting:
                line = self._resting.pop()  # the warmest
                if line.is_fit:
                    break
                line.close()
            else:
                line = self._make(self._place)
            self._busy.add(line)
            return line
