"""Whose lease has run out?

Staleness is judged by the watcher's own monotonic clock, from when *it* last saw the lease change; the times
that another device wrote are never compared with ours. Pure: observations and the time go in.
"""

from __future__ import annotations

import math
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


@dataclass
class Vigil:
    """Says when one device may judge: only while it could have heard of what it does not know.

    After its start, a wake, a new network or a first link it waits for one finished round of replication; where none
    comes, for as long as any lease lasts. Times are seconds, monotonic.
    """

    watch: LeaseWatch
    since: float  # a round must have been finished after this
    _usable: bool = False
    _waits: bool = False  # for the first round of a link

    def woke(self, now: float) -> None:
        """This device slept, or could not work for a while."""
        self.watch.restart(now)
        self.since = now

    def may_judge(self, now: float, *, usable: bool, synced: float | None) -> bool:
        """Says whether what seems stale is stale.

        `usable`: there is a network, or none is needed; `synced`: when a round was finished last with any device that
        is linked now, None while none is linked, minus infinity while none was finished.
        """
        waits = synced == -math.inf
        if usable and not self._usable:
            self.woke(now)
        elif waits and not self._waits:
            self.since = now
        self._usable, self._waits = usable, waits
        if synced is None:
            return usable
        # Since two that hold the same say no more, a round of a new link may be older than the look that finds it.
        return usable and (synced >= self.since or now - self.since >= self.watch.stale_after)


def marks(rows: Iterable[tuple[str, int, int, int | None]]) -> dict[str, Hashable]:
    """The marks of leases from rows of (job, generation, claim, heartbeat's hlc)."""
    return {job_id: (generation, claim, beat) for job_id, generation, claim, beat in rows}
