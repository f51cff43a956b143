"""Whose lease has run out?

Staleness is judged by the watcher's own monotonic clock, from when *it* last saw the lease change; the times
that another device wrote are never compared with ours. Pure: observations and the time go in.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

STALE_AFTER = 45.0  # seconds without a beat: four missed beats and some slack


@dataclass
class LeaseWatch:
    """What one device has seen of the leases of others. `stale_after` and all times are seconds, monotonic."""

    stale_after: float = STALE_AFTER
    _seen: dict[str, tuple[Hashable, float]] = field(default_factory=dict)

    def observe(self, leases: Mapping[str, Hashable], now: float) -> None:
        """Takes in what the replica shows now: for each running job of another worker, a mark that each beat changes."""
        for job_id, mark in leases.items():
            known = self._seen.get(job_id)
            if known is None or known[0] != mark:
                self._seen[job_id] = (mark, now)
        for job_id in [each for each in self._seen if each not in leases]:
            del self._seen[job_id]

    def restart(self, now: float) -> None:
        """Starts all waits anew: after a sleep of this device, nothing it missed counts as silence."""
        self._seen = {job_id: (mark, now) for job_id, (mark, _) in self._seen.items()}

    def stale(self, now: float) -> list[str]:
        """The jobs whose lease has not changed for `stale_after`."""
        return [job_id for job_id, (_, since) in self._seen.items() if now - since >= self.stale_after]

    def due(self, now: float) -> float | None:
        """Seconds until the next lease could run out; None where none is watched."""
        waits = [since + self.stale_after - now for _, since in self._seen.values()]
        return max(0.0, min(waits)) if waits else None


def marks(rows: Iterable[tuple[str, int, int, int | None]]) -> dict[str, Hashable]:
    """The marks of leases from rows of (job, generation, claim, heartbeat's hlc)."""
    return {job_id: (generation, claim, beat) for job_id, generation, claim, beat in rows}
