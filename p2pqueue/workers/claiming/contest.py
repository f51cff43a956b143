"""Which jobs are left to other workers, since when, and when does this one look at them again?

Ranking is pure; this remembers what it needs between two looks: when this device saw each job claimable first, to whom
it left it, and when each other worker was last seen to take something. Used inside the transaction that claims, one
at a time; times are seconds, monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from p2pqueue.jobs.waiting import Demand
from p2pqueue.workers.claiming.presence import Presence
from p2pqueue.workers.claiming.ranking import STEP, Decision, Field, Wait

REMEMBERED = 50_000  # jobs whose first sight is remembered: some megabytes
TOLD = 1_000  # reasons that are kept for those who ask why a job waits


class Contest:
    """What one worker remembers of jobs for which others may be better placed."""

    def __init__(self) -> None:
        self.until: float | None = None  # when the first of the jobs left to others may be taken here
        self.reasons: dict[str, tuple[str, float]] = {}  # by job: to whom it is left, in words, and until when
        self._seen: dict[str, float] = {}  # by job: since when
        self._active: dict[str, float] = {}

    @property
    def waiting(self) -> int:
        """How many jobs are left to others."""
        return len(self._seen)

    def begin(self, me: Presence, others: Sequence[Presence], now: float, turned: Mapping[str, float], *, step: float = STEP) -> Survey:
        """Begins a look at all jobs that can be claimed; `turned` says when slots of others filled or came free."""
        for device_id, at in turned.items():
            self._active[device_id] = max(at, self._active.get(device_id, at))
        return Survey(self, me, others, now, step)

    def lose_sight(self, begun: Mapping[str, tuple[str, float]]) -> None:
        """Others have begun these jobs, at that time: should one be free again, it is seen for the first time, and waits its turn."""
        for job_id, (device_id, at) in begun.items():
            self._seen.pop(job_id, None)
            self._active[device_id] = max(at, self._active.get(device_id, at))

    def clear(self) -> None:
        """Forgets everything: there is nobody to leave anything to."""
        self.until = None
        self.reasons = {}
        self._seen = {}
        self._active = {}


class Survey:
    """One look at the jobs that can be claimed, from the most urgent on."""

    def __init__(self, contest: Contest, me: Presence, others: Sequence[Presence], now: float, step: float) -> None:
        self._step = step
        self._contest = contest
        self._me = me
        self._others = others
        self._now = now
        self._fields: dict[tuple[Demand, bool, frozenset[str]], Field] = {}
        self._shares: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self._until: float | None = None
        self._reasons: dict[str, tuple[str, float]] = {}

    def decide(self, job_id: str, demand: Demand, *, shared: bool, holders: frozenset[str]) -> Decision:
        """Says whether this worker, which could, takes the job now."""
        kind = demand, shared, holders
        field = self._fields.get(kind)
        if field is None:
            field = self._fields[kind] = Field(demand, self._me, self._others, shared=shared, holders=holders)
        known = self._contest._seen.get(job_id)
        seen_at = self._now if known is None else known
        decision = field.decide(job_id, seen_at, self._now, self._contest._active, self._shares, self._step)
        if isinstance(decision, Wait):
            self._left[job_id] = seen_at
            self._until = decision.until if self._until is None else min(self._until, decision.until)
            if len(self._reasons) < TOLD:
                self._reasons[job_id] = decision.reason, decision.until
        elif known is not None:
            self._left[job_id] = known  # it may not be taken after all, and is no new sight then
        return decision

    def end(self, taken: Sequence[str], *, complete: bool, takers: Callable[[Collection[str]], Iterable[str | None]]) -> None:
        """Ends the look; `complete` if it came to the last of the jobs that can be claimed.

        `takers` tells which devices have jobs now that can't be claimed any more.
        """
        contest, before = self._contest, self._contest._seen
        for job_id in taken:
            self._left.pop(job_id, None)
        if complete:
            gone = before.keys() - self._left.keys() - set(taken)
            if gone:
                contest._active.update(dict.fromkeys((device for device in takers(gone) if device), self._now))
            contest._seen = self._left
        else:
            contest._seen = {**before, **self._left}
            for job_id in taken:
                contest._seen.pop(job_id, None)
        if len(contest._seen) > REMEMBERED:
            contest._seen = dict(list(contest._seen.items())[:REMEMBERED])
        contest.until, contest.reasons = self._until, self._reasons
