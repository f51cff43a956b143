"""Which jobs does a worker leave alone for now, and until when?"""

from __future__ import annotations

import time
from typing import Final

FIRST: Final = 1.0  # seconds until a job whose payload can't be reached is tried again; doubles
LONGEST: Final = 60.0  # seconds


class Patience:
    """Jobs that are put off, each time for twice as long."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # by job id, monotonic
        self._last: dict[str, float] = {}  # how long each was left alone the last time

    def put_off(self, job_id: str) -> None:
        """Leaves a job alone for a while."""
        wait = min(LONGEST, 2 * self._last.get(job_id, FIRST / 2))
        self._last[job_id] = wait
        self._until[job_id] = time.monotonic() + wait

    def forget(self, job_id: str) -> None:
        """Begins anew with a job that could be run."""
        self._last.pop(job_id, None)

    def forgive(self) -> bool:
        """Lets all of them be tried at once, as what stood in the way may be gone; says whether there were any."""
        waiting = bool(self._until)
        self._until.clear()
        self._last.clear()
        return waiting

    def left_alone(self) -> list[str]:
        """The jobs that are left alone now."""
        if not self._until:
            return []
        now = time.monotonic()
        self._until = {job_id: until for job_id, until in self._until.items() if until > now}
        return list(self._until)

    def waits(self) -> list[float]:
        """Seconds until each of them may be tried again."""
        return [until - time.monotonic() for until in self._until.values()]
