"""Should this worker take a job now, or is another one better placed?

Every worker ranks the live ones in the same way: by when each would have finished, ties by a hash of job and worker.
The best takes the job at once; the others wait their turn, in case the better ones don't come. So with healthy links
a job runs once, and with broken ones it still runs. Pure: jobs, workers and the time go in; a decision with its reason
comes out. Times are seconds, monotonic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from p2pqueue.jobs.waiting import Demand, unfit
from p2pqueue.workers.presence import SCORE_PER_CORE, Presence

STEP = 0.25  # seconds that each worker with a free slot before this one is given to take the job
BACKSTOP = 10.0  # seconds after which nobody is waited for any more
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
    """Take the job now."""


@dataclass(frozen=True)
class Wait:
    """Leave the job to a better placed worker, until then at most."""

    reason: str
    until: float


Decision = Go | Wait
_GO = Go()


def expected_finish(worker: Presence, candidate: Candidate) -> float:
    """Seconds until a worker would have finished a job that it took now: transfer, work, and the wait for a slot."""
    work = NOMINAL_WORK * SCORE_PER_CORE / max(1, worker.score)
    transfer = 0.0 if worker.device_id in candidate.holders else (candidate.demand.input_size or 0) / NOMINAL_RATE
    return transfer + work + (0.0 if worker.free > 0 else work)


def decide(candidate: Candidate, me: Presence, others: Iterable[Presence], now: float) -> Decision:
    """Says whether `me`, which is fit for the job and has a free slot, takes it now."""
    rivals = [worker for worker in others if _is_fit(worker, candidate)]
    if not rivals:
        return _GO
    mine = _place(me, candidate)
    better = sorted(((place, worker) for worker in rivals if (place := _place(worker, candidate)) < mine), key=itemgetter(0))
    if not better:
        return _GO
    free = [worker for _, worker in better if worker.free > 0]
    until = candidate.seen_at + STEP * len(free)
    first = free[0] if free else better[0][1]
    if any(worker.free <= 0 and place[0] < mine[0] for place, worker in better):
        until = candidate.seen_at + BACKSTOP
    return _GO if now >= until else Wait(f"left to {first.label}, which is expected to finish it earlier", until)


def rank(candidate: Candidate, workers: Sequence[Presence]) -> list[Presence]:
    """The fit workers, the best placed first."""
    return sorted((worker for worker in workers if _is_fit(worker, candidate)), key=lambda worker: _place(worker, candidate))


def _place(worker: Presence, candidate: Candidate) -> tuple[float, bytes, str]:
    lot = hashlib.blake2b(f"{candidate.job_id}\0{worker.device_id}".encode(), digest_size=8).digest()
    return expected_finish(worker, candidate), lot, worker.device_id


def _is_fit(worker: Presence, candidate: Candidate) -> bool:
    reachable = candidate.shared or worker.device_id in candidate.holders
    return worker.slots > 0 and unfit(candidate.demand._replace(input_ready=reachable), worker.ability) is None
