"""Which of the jobs that can be claimed now does this worker claim, and which ones does it leave?

From the most urgent on, until its slots are full. What it can't do while its node runs leaves the index of what can be
claimed; what is better left to another worker, or put off, stays there and is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.job import Holder, JobState, Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.jobs.waiting import Demand, needs_in
from p2pqueue.replica.writer import Put, Writer
from p2pqueue.workers.claimed import DEFAULT_ATTEMPTS, ClaimedJob, Taker, is_suspect
from p2pqueue.workers.claiming import begun
from p2pqueue.workers.claiming.claim import Leave, Verdict, judge
from p2pqueue.workers.claiming.ranking import Wait
from p2pqueue.workers.states import states_of

SCAN_LIMIT = 2_000  # rows looked at in one go: what a worker can't take must not make claiming slow
PASSED_LIMIT = 20_000  # rows that may be passed over in one transaction; those before them will be gone in a while
LATER, NOT_HERE = 0, 2  # values of the column `ready`, by which rows leave the index of what can be claimed now

CANDIDATES = f"""SELECT id, task, queue, args, options, title, needs, max_attempts, timeout, stall_timeout, backoff, retry_on,
    CASE WHEN for_spec IS NOT NULL AND input_counts THEN input_size END,
    CASE WHEN for_spec IS NOT NULL AND input_counts THEN input_manifest END, checkpoint, spec_generation, due_at,
    CASE WHEN checkpoint IS NOT NULL AND beat_generation >> 16 = spec_generation >> 16 THEN beat_progress END,
    rank_priority, enqueued_by, state_generation IS NULL
    FROM jobs INDEXED BY jobs_ready
    WHERE ready = 1 AND status = 'queued' AND live = 1
    ORDER BY rank_priority, due_at, created_at LIMIT {SCAN_LIMIT} OFFSET ?"""

_NOWHERE: frozenset[str] = frozenset()


def claim(writer: Writer, taker: Taker, slots: int) -> list[ClaimedJob]:
    """Claims so many jobs, where there are other workers only for free slots; gives the claimed ones, the most urgent first."""
    if taker.survey is not None and taker.free is not None:
        slots = min(slots, taker.free)
        if not slots:
            return []
    scan = _Scan(writer, taker, slots)
    scan.run()
    if scan.steps:
        writer.put_known("jobs", "state", scan.steps)
    if scan.claimed:
        author = writer.author
        claims = [begun.begun(job, author) for job in scan.claimed]
        begun.keep(writer.connection, [*taker.begun, *claims])
        if taker.survey is not None:
            shown = [each for job, each in zip(scan.claimed, claims, strict=True) if job.recorded]
            if shown:  # where there are others, they had better hear of it at once, or they would take it too
                begun.write_begun(writer, shown)
    return scan.claimed


class _Scan:
    """One walk through the index."""

    def __init__(self, writer: Writer, taker: Taker, slots: int) -> None:
        self._connection = writer.connection
        self._now = writer.now
        self._taker = taker
        self._slots = slots
        self._free = slots if taker.free is None else taker.free
        self._survey = taker.survey
        self._suspects = False
        self._first: dict[tuple[int, int], tuple[Transition, Holder]] = {}  # how first attempts begin, by generation and limit
        self._verdicts: dict[tuple[str, str | None], tuple[Demand, Verdict]] = {}  # of jobs without an input, by task and needs
        self._last: list[tuple[int, int, tuple[Any, ...]]] = []  # rows that are taken after the others of their priority
        self._aside: list[tuple[int, str]] = []  # rows that leave the index
        self.claimed: list[ClaimedJob] = []
        self.steps: list[Put] = []

    def run(self) -> None:
        passed, complete = 0, False
        while not complete and passed < PASSED_LIMIT:
            seen = self._go(passed)
            complete = seen < SCAN_LIMIT
            passed += seen - len(self._aside)
            if self._aside:
                self._connection.executemany("UPDATE jobs SET ready = ? WHERE id = ?", self._aside)
                self._aside.clear()
            if len(self.claimed) == self._slots:
                complete = False
                break
        self._take_last()
        if self._survey is not None:
            self._survey.end([job.job_id for job in self.claimed], complete=complete, takers=self._takers)

    def _go(self, passed: int) -> int:
        """Looks at the next rows; gives how many they were."""
        seen = 0
        cursor = self._connection.execute(CANDIDATES, (passed,))
        for row in cursor:
            if self._last and row[18] != self._last[0][2][18]:
                self._take_last()
                if len(self.claimed) == self._slots:
                    break
            seen += 1
            self._consider(row)
            if len(self.claimed) == self._slots:
                break
        cursor.close()
        return seen

    def _consider(self, row: tuple[Any, ...]) -> None:
        if row[0] in self._taker.skip or self._is_foretold(row):
            return
        if len(self.claimed) >= self._free and not (row[20] and row[12] is None and self._limit(row) > 1):
            return  # a crash of the node would take with it all that is claimed ahead
        if row[16] > self._now:  # the clock was set back since the row was written
            self._aside.append((LATER, row[0]))
            return
        demand, verdict = self._judge(row)
        if isinstance(verdict, Leave):
            self._aside.append((NOT_HERE, row[0]))
            return
        if self._survey is not None:
            holders = _NOWHERE if row[12] is None else self._holders(row)
            decision = self._survey.decide(row[0], demand, shared=row[12] is None or row[13] is not None, holders=holders)
            if isinstance(decision, Wait):
                return
            if decision.last:
                if sum(1 for level, _, _ in self._last if level == decision.last) < self._slots:
                    self._last.append((decision.last, len(self._last), row))
                return
            self._take(row, shown=True)
        else:
            self._take(row)

    def _is_foretold(self, row: tuple[Any, ...]) -> bool:
        """Says whether another worker has told of a claim that this row knows nothing of yet."""
        told = self._taker.foretold.get(row[0])
        if told is None:
            return False
        state = JobState(row[15]) if row[20] else states_of(self._connection, (row[0],))[row[0]]
        return told > (state.generation, state.claim)

    def _take_last(self) -> None:
        last, self._last = self._last, []
        for _, _, row in sorted(last)[: self._slots - len(self.claimed)]:
            self._take(row, shown=True)

    def _take(self, row: tuple[Any, ...], *, shown: bool = False) -> None:
        limit = self._limit(row)
        taken = self._first.get((row[15], limit)) if row[20] else None
        if taken is None:
            state = JobState(row[15]) if row[20] else states_of(self._connection, (row[0],))[row[0]]
            if is_suspect(state.attempt + 1, limit, state.error):
                if self._taker.suspects or self._suspects:
                    return  # one at a time: which of them kills its node is seen by that
                self._suspects = True
            taken = self._step(state, limit, row[16])
            if taken is None:
                if isinstance(step := lattice.exhausted(state, max_attempts=limit, now=self._now), Transition):
                    self.steps.append(put_state(row[0], step))
                return
            if row[20]:  # it has no state of its own, so all that are like it begin alike
                self._first[row[15], limit] = taken
        self.claimed.append(_claimed(row, *taken, limit, self._now, shown))

    def _limit(self, row: tuple[Any, ...]) -> int:
        return row[7] or self._taker.max_attempts.get(row[1], DEFAULT_ATTEMPTS)

    def _step(self, state: JobState, limit: int, due_at: int) -> tuple[Transition, Holder] | None:
        taker = self._taker
        step = lattice.claim(state, taker.device_id, worker_label=taker.label, max_attempts=limit, now=self._now, due_at=due_at)
        return (step, Holder(step.generation, step.claim, taker.device_id)) if isinstance(step, Transition) else None

    def _judge(self, row: tuple[Any, ...]) -> tuple[Demand, Verdict]:
        if row[12] is not None:
            demand = Demand(row[1], needs_in(row[6]), row[12], row[13] is not None or self._is_here(row[0]))
            return demand, judge(demand, self._taker.ability)
        known = self._verdicts.get((row[1], row[6]))
        if known is None:
            demand = Demand(row[1], needs_in(row[6]), None, True)
            known = self._verdicts[row[1], row[6]] = demand, judge(demand, self._taker.ability)
        return known

    def _is_here(self, job_id: str) -> bool:
        return self._connection.execute("SELECT 1 FROM inputs WHERE job_id = ? AND parameter <> ''", (job_id,)).fetchone() is not None

    def _takers(self, jobs: Collection[str]) -> list[str | None]:
        query = "SELECT DISTINCT worker_id FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
        return [device for (device,) in self._connection.execute(query, (json.dumps(list(jobs)),))]

    def _holders(self, row: tuple[Any, ...]) -> frozenset[str]:
        """The devices that are known to hold a job's input: that which enqueued it, and this one."""
        found = {row[19]} if row[19] else set()
        if self._is_here(row[0]):
            found.add(self._taker.device_id)
        return frozenset(found)


def _claimed(row: tuple[Any, ...], step: Transition, holder: Holder, max_attempts: int, now: int, recorded: bool) -> ClaimedJob:
    state = step.state
    values = (
        *row[:6], holder, state.attempt, max_attempts, now, *row[8:12], row[13], row[12] is not None, row[14], state.error,
        recorded, row[17] or 0.0, bool(row[20]),
    )  # fmt: skip
    return ClaimedJob._make(values)
