"""Should this worker take a job now, or is another one better placed?

Every worker ranks the live ones in the same way: by when each would have finished, ties by a hash of job and worker.
The best takes the job at once; the others wait their turn, in case the better ones don't come. So with healthy links
a job runs once, and with broken ones it still runs. Pure: jobs, workers and the time go in; a decision with its reason
comes out. Times are seconds, monotonic.

A claim is seen elsewhere some hundredths of a second later. So a worker that goes from job to job without a pause is
left its share of a backlog, though it has no slot free at the moment that others look: they would take what it takes
next. Its share are the jobs for which it would be the best if its slots were free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from p2pqueue.jobs.waiting import Demand, unfit
from p2pqueue.workers.claiming.presence import SCORE_PER_CORE, Presence

STEP = 0.25  # seconds that each worker with a free slot before this one is given to take the job
BACKSTOP = 10.0  # seconds after which no better worker without a free slot is waited for any more
LONGEST = 3 * BACKSTOP  # seconds after which nobody is waited for, however busy it is
TURNOVER = 2.0  # seconds since it last took something within which a worker without a free slot takes the next of its share
NOMINAL_WORK = 60.0  # seconds that a job is thought to take on one core, where nothing else is known
NOMINAL_RATE = 40e6  # bytes a second at which an input is thought to come from another device


@dataclass(frozen=True)
class Candidate:
    """A job that could be taken, as far as ranking needs it. `seen_at` is when this device saw it claimable first."""

    job_id: str
    demand: Demand
    seen_at: float
    shared: bool = True  # its input can be had from elsewhere, or it has none
    holders: frozenset[str] = frozenset()  # devices that hold its input


@dataclass(frozen=True)
class Go:
    """Take the job now.

    `contested`: another worker is better placed, and had better hear of the claim at once; `last`: therefore it is
    taken after the others of its priority, and where it is what a busy worker takes next, 2, after those.
    """

    contested: bool = False
    last: int = 0


@dataclass(frozen=True)
class Wait:
    """Leave the job to a better placed worker, until then at most."""

    reason: str
    until: float


Decision = Go | Wait
_GO = Go()
_CONTESTED = tuple(Go(contested=True, last=last) for last in (0, 1, 2))
_NONE: Mapping[str, float] = MappingProxyType({})


def expected_finish(worker: Presence, candidate: Candidate) -> float:
    """Seconds until a worker would have finished a job that it took now: transfer, work, and the wait for a slot."""
    return _finish(worker, candidate.demand.input_size, candidate.holders, queued=worker.free <= 0)


def decide(
    candidate: Candidate, me: Presence, others: Iterable[Presence], now: float, active: Mapping[str, float] = _NONE
) -> Decision:  # fmt: skip
    """Says whether `me`, which is fit for the job and has a free slot, takes it now.

    `active` says when each device was last seen to take something, or to have a slot come free.
    """
    field = Field(candidate.demand, me, others, shared=candidate.shared, holders=candidate.holders)
    return field.decide(candidate.job_id, candidate.seen_at, now, active)


class Field:
    """The workers that are fit for jobs of one kind, as they stand to `me`: worked out once for all jobs of that kind."""

    def __init__(
        self, demand: Demand, me: Presence, others: Iterable[Presence], *, shared: bool = True, holders: frozenset[str] = frozenset()
    ) -> None:  # fmt: skip
        size = demand.input_size
        mine = _finish(me, size, holders, queued=False)
        self._me = me.device_id
        self._ahead: list[Presence] = []  # have a free slot, and finish earlier
        self._level: list[Presence] = []  # have a free slot, and finish at the same time
        self._worth: list[Presence] = []  # have no slot, and finish earlier all the same
        self._turning: list[tuple[Presence, bool]] = []  # would be ahead (or level: False) with a free slot
        for worker in others:
            if worker.device_id == me.device_id or not is_fit(worker, demand, shared=shared, holders=holders):
                continue
            at_once = _finish(worker, size, holders, queued=False)
            if at_once > mine:
                continue
            if worker.free > 0:
                (self._ahead if at_once < mine else self._level).append(worker)
            elif _finish(worker, size, holders, queued=True) < mine:
                self._worth.append(worker)
            else:
                self._turning.append((worker, at_once < mine))
        self._ahead.sort(key=lambda worker: _finish(worker, size, holders, queued=False))

    @property
    def is_empty(self) -> bool:
        """Says whether nobody else could be better placed for any job of this kind."""
        return not (self._ahead or self._level or self._worth or self._turning)

    @cached_property
    def _reasons(self) -> dict[str, str]:
        known = [*self._ahead, *self._level, *self._worth, *(worker for worker, _ in self._turning)]
        return {worker.device_id: f"left to {worker.label}, which is expected to finish it earlier" for worker in known}

    def decide(
        self, job_id: str, seen_at: float, now: float, active: Mapping[str, float] = _NONE, shares: dict[str, int] | None = None,
        step: float = STEP,
    ) -> Decision:  # fmt: skip
        """Says whether `me` takes this job now.

        `shares` counts the jobs that were left to each worker without a free slot, among those asked for before; `step`
        is longer than usual where everything takes longer.
        """
        if self.is_empty:
            return _GO
        my_lot = _lot(job_id, self._me)
        free = self._ahead + [worker for worker in self._level if _lot(job_id, worker.device_id) < my_lot]
        turning = self._worth + [worker for worker, ahead in self._turning if ahead or _lot(job_id, worker.device_id) < my_lot]
        lately = {each.device_id: active[each.device_id] for each in turning if each.device_id in active}
        freed = max((active.get(worker.device_id, seen_at) for worker in free), default=seen_at)
        until, last = seen_at + (BACKSTOP if self._worth else 0.0), False
        if turning:
            until, last = self._turn(job_id, seen_at, until, turning, lately, shares, step)
        until = max(until, min(freed, seen_at + BACKSTOP)) + step * len(free)
        if now < until:
            first = free[0] if free else turning[0]
            return Wait(self._reasons[first.device_id], until)
        if not free and not turning:
            return _GO
        return _CONTESTED[0 if now >= seen_at + BACKSTOP else 2 if last else 1]

    def _turn(
        self, job_id: str, seen_at: float, until: float, turning: list[Presence], lately: Mapping[str, float],
        shares: dict[str, int] | None, step: float,
    ) -> tuple[float, bool]:  # fmt: skip
        """Until when a job is left to those without a free slot, and whether it is taken after the others."""
        turning.sort(key=lambda worker: _lot(job_id, worker.device_id))
        owner, next_of_its = turning[0], False
        if shares is not None:
            shares[owner.device_id] = place = shares.get(owner.device_id, 0) + 1
            next_of_its = place <= owner.slots
        if lately:  # what it took last may have been this job
            until = max(until, min(max(lately.values()) + step, seen_at + LONGEST))
        if next_of_its and owner.device_id in lately:
            until = max(until, min(lately[owner.device_id] + TURNOVER, seen_at + BACKSTOP))
        return until, next_of_its


def rank(candidate: Candidate, workers: Sequence[Presence]) -> list[Presence]:
    """The fit workers, the best placed first."""
    fit = [worker for worker in workers if is_fit(worker, candidate.demand, shared=candidate.shared, holders=candidate.holders)]
    return sorted(fit, key=lambda worker: (expected_finish(worker, candidate), _lot(candidate.job_id, worker.device_id)))


def is_fit(worker: Presence, demand: Demand, *, shared: bool = True, holders: frozenset[str] = frozenset()) -> bool:
    """Says whether a worker takes jobs at all, can run this one, and can have its input."""
    reachable = shared or worker.device_id in holders
    return worker.slots > 0 and unfit(demand._replace(input_ready=reachable), worker.ability) is None


def _finish(worker: Presence, size: int | None, holders: frozenset[str], *, queued: bool) -> float:
    work = NOMINAL_WORK * SCORE_PER_CORE / max(1, worker.score)
    transfer = 0.0 if worker.device_id in holders else (size or 0) / NOMINAL_RATE
    return transfer + work + (work if queued else 0.0)


def _lot(job_id: str, device_id: str) -> tuple[bytes, str]:
    return hashlib.blake2b(f"{job_id}\0{device_id}".encode(), digest_size=8).digest(), device_id
