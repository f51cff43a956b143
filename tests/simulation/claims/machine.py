"""One machine of the simulation: a replica of the jobs, and a worker that decides by the modules that nodes use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.job import Holder, JobState, Transition
from p2pqueue.jobs.waiting import Ability, Demand
from p2pqueue.workers.claiming import rivalry
from p2pqueue.workers.claiming.contest import Contest
from p2pqueue.workers.claiming.lease import LeaseWatch, Vigil
from p2pqueue.workers.claiming.presence import TELL_EVERY, Presence, Roster
from p2pqueue.workers.claiming.ranking import LONGEST, STEP, Wait
from tests.simulation.claims.world import Broken

if TYPE_CHECKING:
    from tests.simulation.claims.world import World

STALE_AFTER = 10.0  # seconds; beats are five times as frequent
BEAT_EVERY = 2.0
RECORD_AFTER = 0.05
COMMIT = 0.003  # seconds
ATTEMPTS = 100

Stamp = tuple[int, int, int, float, int]


class Row(NamedTuple):
    """A job as one replica holds it."""

    demand: Demand
    work: float  # seconds that it takes on one core
    fails: int  # of its first attempts
    created: float
    stamp: Stamp
    state: JobState
    author: int = -1  # the machine that wrote last
    beat: tuple[int, int, float, float] = (0, 0, 0.0, 0.0)  # generation, claim, hlc, progress

    @property
    def progress(self) -> float:
        """As far as the holder of the job has told."""
        return self.beat[3] if self.beat[:2] == (self.state.generation, self.state.claim) else 0.0


@dataclass
class Run:
    """A job that runs on a machine."""

    job: str
    holder: Holder
    state: JobState
    begun: float
    seconds: float
    recorded: bool = False
    outranked: bool = False
    stopped: bool = False
    beaten: float = 0.0

    def progress(self, now: float) -> float:
        """0 to 1."""
        return min(1.0, (now - self.begun) / self.seconds)


@dataclass
class Machine:
    """A device with a worker."""

    world: World
    number: int
    score: int
    slots: int
    tasks: frozenset[str]
    skew: float = 0.0  # seconds by which its wall clock is wrong
    usable: bool = True
    rows: dict[str, Row] = field(default_factory=dict)
    runs: bool = True  # it is switched on and its node runs
    asleep_until: float = 0.0

    def __post_init__(self) -> None:
        self.id = f"{self.number:032x}"
        self.slept = self.asleep_since = 0.0
        self.hlc = 0.0
        self.held_back: list[Callable[[], None]] = []
        self.life = 0
        self._begin()

    # -- its clock, its life ------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Its monotonic clock, which stands while it sleeps."""
        return min(self.world.now, self.asleep_since if self.asleep_until > self.world.now else self.world.now) - self.slept

    def stamp_time(self) -> float:
        """The next time that it stamps a write with."""
        self.hlc = max(self.world.now + self.skew, self.hlc + 1e-6)
        return self.hlc

    def _begin(self) -> None:
        self.here: dict[str, Run] = {}
        self.peers: set[int] = set()
        self.synced: float | None = None
        self.roster = Roster(started=self.now, others=True)
        self.contest = Contest()
        self.watch = LeaseWatch(STALE_AFTER)
        self.vigil = Vigil(self.watch, since=self.now)
        self.gone: set[str] = set()
        self.told_free = True
        self.wakes_at: float | None = None
        self.looks_soon = False
        self.later(0.0, self.hello)
        self.later(self.world.random.uniform(0, 1), self.look_at_leases)
        self.later(0.0, self.claim)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Does something after so many seconds of its own clock, in this life."""
        life = self.life

        def event() -> None:
            if self.life == life and self.runs:
                self.awake(do)

        self.world.after(seconds, event)

    def awake(self, do: Callable[[], None]) -> None:
        """Does something now, or when it is awake again."""
        if self.asleep_until > self.world.now:
            self.held_back.append(do)
        else:
            do()

    def sleep(self, seconds: float) -> None:
        """Closes its lid."""
        if not self.runs or self.asleep_until > self.world.now:
            return
        self.world.met["a machine slept"] += 1
        self.asleep_since, self.asleep_until = self.world.now, self.world.now + seconds
        for run in self.here.values():
            run.begun += seconds

        def wake() -> None:
            self.slept += seconds
            if seconds > STALE_AFTER / 2:
                self.vigil.woke(self.now)
            waiting, self.held_back = self.held_back, []
            for do in waiting:
                do()

        self.world.at(self.asleep_until, wake)

    def crash(self) -> None:
        """Loses all that is not in its replica; what a claim kept locally is there at its next start."""
        self.world.met["a machine crashed"] += 1
        self.off()

    def off(self) -> None:
        """Ends its node."""
        self.kept = [run for run in self.here.values() if not run.recorded]
        self.life += 1
        self.runs = False
        self.here = {}
        self.held_back = []
        self.world.settle_links()

    def leave(self) -> None:
        """Stops in an orderly way: releases what runs, says goodbye."""
        self.world.met["a machine left with a goodbye"] += 1
        for run in list(self.here.values()):
            self.record(run)
            row = self.rows[run.job]
            self.step(run.job, lattice.release(row.state, run.holder))
        targets = [self.world.machines[number] for number in self.peers]
        for target in targets:
            self.world.met["somebody heard the goodbye"] += 1
            target.awake(lambda target=target: target.said_goodbye(self.number))
        self.here = {}
        self.off()

    def start(self) -> None:
        """Starts its node again: its own running jobs are queued again."""
        if self.runs:
            return
        self.world.met["a machine started again"] += 1
        self.runs = True
        self.asleep_until = 0.0
        kept, self.here = self.kept, {}
        for run in kept:
            self.record(run)
        for job, row in list(self.rows.items()):
            if row.state.status == "running" and row.state.worker_id == self.id:
                self.step(job, lattice.recover(row.state, self.id, max_attempts=ATTEMPTS, now=0))
        self._begin()
        self.world.settle_links()

    # -- what links say -----------------------------------------------------------------------------------------

    def up(self, peer: Machine) -> None:
        """A link is there: all rows go over it, which is a round."""
        self.peers.add(peer.number)
        self.gone.discard(peer.id)
        self.roster.linked(self.now)
        if self.synced is None:
            self.synced = float("-inf")
        self.world.send_rows(self, peer, list(self.rows), then=peer.round_done)
        self.hello()

    def round_done(self) -> None:
        """A peer has given all that it holds."""
        self.synced = self.now

    def down(self, number: int) -> None:
        """A link is gone, and this machine knows."""
        if not self.runs or self.world.linked(self.number, number):
            return
        self.peers.discard(number)
        self.roster.gone(self.world.machines[number].id)
        if not self.peers:
            self.synced = None
        self.claim()

    def said_goodbye(self, number: int) -> None:
        """A device has left."""
        self.gone.add(self.world.machines[number].id)
        self.roster.gone(self.world.machines[number].id)
        self.later(0.0, self.judge)

    def hello(self) -> None:
        """Tells of itself, now and every ten seconds."""
        self.tell()
        self.later(TELL_EVERY, self.hello)

    def tell(self) -> None:
        """Tells of itself."""
        presence = self.presence
        for number in self.peers:
            target = self.world.machines[number]
            self.world.send_signal(self, target, lambda target=target: target.heard(presence))

    def heard(self, presence: Presence) -> None:
        """A peer has told of itself."""
        if self.roster.heard(presence, self.now):
            self.claim()

    # -- the replica --------------------------------------------------------------------------------------------

    def enqueue(self, job: str, demand: Demand, work: float, fails: int = 0) -> None:
        """Makes a job."""
        self.put(job, Row(demand, work, fails, self.world.now, (0, 0, 0, 0.0, 0), JobState(0)))

    def step(self, job: str, decision: Any) -> bool:
        """Takes a step of the lattice, where it is allowed."""
        if not isinstance(decision, Transition):
            return False
        time = self.stamp_time()
        stamp = (decision.generation, decision.rank, decision.claim, -time if decision.earliest else time, self.number)
        self.put(job, self.rows[job]._replace(stamp=stamp, state=decision.state))
        return True

    def put(self, job: str, row: Row) -> None:
        """Writes a row here and sends it to all peers."""
        self.merge({job: row._replace(author=self.number)}, local=True)

    def merge(self, rows: dict[str, Row], *, local: bool = False) -> None:
        """Merges rows, passes on what was new, and looks at what it means for this worker."""
        new = []
        for job, row in rows.items():
            mine = self.rows.get(job)
            merged = row if mine is None else _merged(mine, row)
            if mine is None or (merged.stamp, merged.beat) != (mine.stamp, mine.beat):
                self.hlc = max(self.hlc, abs(row.stamp[3]), row.beat[2])
                if mine is not None:
                    _check_rise(job, mine, merged)
                self.rows[job] = merged
                new.append(job)
        if not new:
            return
        for number in self.peers:
            sent = [job for job in new if local or not self.world.linked(self.rows[job].author, number)]
            if sent and self.world.linked(self.number, number):
                self.world.send_rows(self, self.world.machines[number], sent)
        for job in new:
            self.heed(job)
        if not local or any(self.rows[job].state.status == "queued" for job in new):
            self.look_soon()

    # -- claiming -----------------------------------------------------------------------------------------------

    @property
    def presence(self) -> Presence:
        """What it tells of itself."""
        return Presence(self.id, Ability(f"m{self.number}", self.tasks), self.score, self.slots, self.slots - len(self.here))

    def look_soon(self) -> None:
        """Claims with the next commit."""
        if not self.looks_soon:
            self.looks_soon = True
            self.later(COMMIT, self.claim)

    def claim(self) -> None:
        """Claims what it can for its free slots."""
        self.looks_soon = False
        free = self.slots - len(self.here)
        if free <= 0:
            return
        until = self.roster.waits_until(self.now)
        if until is not None:
            self.wake_at(until)
            return
        others = [each for each in self.roster.live(self.now) if each.slots > 0]
        survey = self.contest.begin(self.presence, others, self.now, self.roster.turned) if others else None
        if survey is None:
            self.contest.clear()
        taken: list[str] = []
        last: list[tuple[int, float, str]] = []
        queued = [(row.created, job) for job, row in self.rows.items() if row.state.status == "queued" and job not in self.here]
        complete = True
        for created, job in sorted(queued):
            if len(taken) == free:
                complete = False
                break
            row = self.rows[job]
            if row.demand.task not in self.tasks:
                continue
            decision = survey.decide(job, row.demand, shared=True, holders=frozenset()) if survey is not None else None
            if isinstance(decision, Wait):
                self._check_wait(decision)
            else:
                if decision is not None and decision.last:
                    last.append((decision.last, created, job))
                else:
                    taken.append(job)
        taken += [job for _, _, job in sorted(last)[: free - len(taken)]]
        if survey is not None:
            survey.end(taken, complete=complete, takers=lambda jobs: [self.rows[job].state.worker_id for job in jobs])
        for job in taken:
            self.begin(job, COMMIT if survey is not None else RECORD_AFTER)
        if self.contest.until is not None:
            self.wake_at(self.contest.until)
        self.fills()

    def _check_wait(self, decision: Wait) -> None:
        self.world.met["a job was left to another"] += 1
        if decision.until > self.now + LONGEST + STEP * len(self.world.machines):
            raise Broken(f"m{self.number} waits {decision.until - self.now} s")

    def wake_at(self, time: float) -> None:
        """Claims again at a time."""
        if self.wakes_at is not None and self.now < self.wakes_at <= time:
            return
        self.wakes_at = time

        def wake() -> None:
            if self.wakes_at == time:
                self.wakes_at = None
                self.claim()

        self.later(max(0.0, time - self.now) + 1e-6, wake)

    def begin(self, job: str, record_after: float) -> None:
        """Begins a run: its claim stands in the row a moment later."""
        row = self.rows[job]
        step = lattice.claim(row.state, self.id, worker_label=None, max_attempts=ATTEMPTS, now=0)
        if not isinstance(step, Transition):
            raise Broken(f"{job} can't be claimed: {step}")
        self.world.starts[job] += 1
        seconds = row.work * 30 / self.score
        run = Run(job, Holder(step.generation, step.claim, self.id), step.state, self.world.now, seconds, beaten=self.now)
        self.here[job] = run
        self.later(record_after, lambda: self.record(run))
        self.later(seconds, lambda: self.end(run))
        self.later(BEAT_EVERY, lambda: self.beat(run))

    def record(self, run: Run) -> None:
        """Writes that a job runs, where nothing else has become of it."""
        row = self.rows[run.job]
        if run.stopped or run.recorded:
            return
        run.recorded = True
        if row.state.status == "queued" and (row.state.generation, row.state.claim + 1) == run.holder.claimed:
            self.step(run.job, Transition(run.state))

    def beat(self, run: Run) -> None:
        """Renews a lease."""
        if run.stopped or self.here.get(run.job) is not run:
            return
        if not run.outranked:
            beat = (run.holder.generation, run.holder.claim, self.stamp_time(), run.progress(self.world.now))
            self.put(run.job, self.rows[run.job]._replace(beat=beat))
        self.later(BEAT_EVERY, lambda: self.beat(run))

    def end(self, run: Run) -> None:
        """The handler has come to its end."""
        if run.stopped or self.here.get(run.job) is not run:
            return
        if run.progress(self.world.now) < 1.0 - 1e-9:  # it slept meanwhile
            self.later(run.seconds - (self.world.now - run.begun), lambda: self.end(run))
            return
        self.record(run)
        del self.here[run.job]
        row = self.rows[run.job]
        if row.state.attempt <= row.fails:
            self.world.met["an attempt failed"] += 1
            self.step(run.job, lattice.requeue(row.state, run.holder, error="boom", max_attempts=ATTEMPTS))
        else:
            if run.outranked:
                self.world.met["an outranked run came to its end first"] += 1
            self.step(run.job, lattice.succeed(row.state, run.holder, now=0, result_id=f"{self.id}", rival=run.outranked))
        self.look_soon()
        self.later(2 * COMMIT, self.fills)

    def heed(self, job: str) -> None:
        """Looks what became of a job that runs here."""
        run, state = self.here.get(job), self.rows[job].state
        if run is None:
            return
        found = rivalry.Found(state.status, state.generation, state.claim, state.worker_id, self.rows[job].progress)
        course = rivalry.course(run.holder, found, progress=run.progress(self.world.now), recorded=run.recorded)
        run.outranked = course in ("beside", "lost")
        if course == "beside":
            self.world.met["a run went on beside a newer claim"] += 1
        if course in ("lost", "cancelled", "held"):
            self.world.met[f"a run was stopped: {course}"] += 1
            run.stopped = True
            del self.here[job]
            self.look_soon()

    def fills(self) -> None:
        """Tells others when its last slot filled or the first came free."""
        free = len(self.here) < self.slots
        if free != self.told_free:
            self.told_free = free
            self.tell()

    # -- leases -------------------------------------------------------------------------------------------------

    def look_at_leases(self) -> None:
        """Looks at what others run, over and over."""
        self.judge()
        self.later(STALE_AFTER / 8, self.look_at_leases)

    def judge(self) -> None:
        """Queues again what others have let lie."""
        foreign = {job: row for job, row in self.rows.items() if row.state.status == "running" and row.state.worker_id != self.id}
        self.watch.observe({job: (row.state.claim, row.beat) for job, row in foreign.items()}, self.now)
        if not self.vigil.may_judge(self.now, usable=self.usable, synced=self.synced):
            return
        left = [job for job, row in foreign.items() if row.state.worker_id in self.gone]
        for job in {*self.watch.stale(self.now), *left}:
            if self.step(job, lattice.worker_lost(self.rows[job].state, max_attempts=ATTEMPTS, now=0)):
                self.world.met["a job was taken over"] += 1


def _merged(mine: Row, theirs: Row) -> Row:
    newer = theirs if theirs.stamp > mine.stamp else mine
    author = mine.author if (mine.stamp, mine.beat) >= (theirs.stamp, theirs.beat) else theirs.author
    return newer._replace(beat=max(mine.beat, theirs.beat), author=author)


def _check_rise(job: str, before: Row, after: Row) -> None:
    if after.stamp < before.stamp:
        raise Broken(f"{job} fell from {before.stamp} to {after.stamp}")
    if before.state.is_terminal and after.state.generation == before.state.generation and after.state.rank < before.state.rank:
        raise Broken(f"{job} had {before.state.status}, and is {after.state.status}")
