"""What does an origin hold, how much is it, and when was each object read last?

Kept in memory, and written down at times: what a crash loses is when something was read, which is made up for by the
time that it was written. Whatever the place itself lists counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from p2pqueue.payload.origins.objects import Listed
from p2pqueue.private import write_private

UNREAD: Final = 30 * 86_400.0  # seconds after which what nobody read is removed
COARSE: Final = 3_600.0  # seconds by which the times of reading are off at most; they need no more


class Ledger:
    """The objects of one origin. `path` keeps when they were read; None forgets it."""

    def __init__(self, path: Path | None, listed: Iterable[Listed], *, now: float | None = None) -> None:
        self._path = path
        self.used = 0
        self._held: dict[str, tuple[int, float]] = {}
        self._changed = False
        read = _load(path)
        now = time.time() if now is None else now
        for each in listed:
            at = min(now, max(each.modified, read.get(each.name, 0.0)))
            self._held[each.name] = (each.size, at)
            self.used += each.size

    def enter(self, name: str, size: int, *, now: float | None = None) -> None:
        """Something was put."""
        self.forget(name)
        self._held[name] = (size, time.time() if now is None else now)
        self.used += size
        self._changed = True

    def size(self, name: str) -> int | None:
        """How much an object is known to take."""
        return self._held[name][0] if name in self._held else None

    def touch(self, name: str, *, now: float | None = None) -> None:
        """Something was read, or asked after by somebody who needs it."""
        now = time.time() if now is None else now
        if name in self._held and now - self._held[name][1] > COARSE:
            self._held[name] = (self._held[name][0], now)
            self._changed = True

    def forget(self, name: str) -> None:
        """Something was removed."""
        self.used -= self._held.pop(name, (0, 0.0))[0]
        self._changed = True

    def unread(self, *, now: float | None = None) -> list[str]:
        """What nobody has read for so long that it goes."""
        before = (time.time() if now is None else now) - UNREAD
        return [name for name, (_, at) in self._held.items() if at < before]

    def save(self) -> None:
        """Writes down what was read when. Raises `WorldError`."""
        if self._changed and self._path is not None:
            self._changed = False
            write_private(self._path, json.dumps({name: round(at) for name, (_, at) in self._held.items()}).encode())


def _load(path: Path | None) -> dict[str, float]:
    try:
        found = {} if path is None else json.loads(path.read_bytes())
        return {str(name): float(at) for name, at in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # it only costs that something is kept longer
        return {}
