"""The queue's transactions against a model of them, in every order that hypothesis finds.

The model knows jobs, claims and runs as plain values. One device, whose node may die and start again at any moment;
an attempt may end long after its job was cancelled, retried, deleted, made anew or recovered.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from p2pqueue.errors import NoSuchJob, WrongState
from p2pqueue.jobs import ledger
from p2pqueue.jobs.ledger import unique_id
from p2pqueue.workers.claimed import ClaimedJob, How
from p2pqueue.workers.claiming import begun
from tests.conftest import FUZZ
from tests.unit.jobs.desk import SPACE, Desk, new_job

TERMINAL = ("succeeded", "failed", "cancelled")
RUN_WORDS: dict[How, str] = {"retry": "failed", "crashed": "failed"}


@dataclass
class Model:
    """A job as it should stand."""

    generation: int
    priority: int
    created: int
    run_at: int
    max_attempts: int
    status: str = "queued"
    attempt: int = 0
    claim: int = 0
    retry_at: int = 0
    held: bool = False
    checkpoint: bytes | None = None
    lost: bool = False  # the worker of its last attempt was
    crashes: dict[int, tuple[int, bool]] = field(default_factory=dict)  # of this generation, by claim: attempt, whether it crashed

    @property
    def shown(self) -> str:
        return "paused" if self.held and self.status not in TERMINAL else self.status

    @property
    def due(self) -> int:
        return max(self.run_at, self.retry_at)

    def crashed_before(self, attempt: int) -> bool:
        earlier = [claim for claim, (number, _) in self.crashes.items() if number < attempt]
        return bool(earlier) and self.crashes[max(earlier)][1]


VERBS = ["cancel", "hold", "hold", "resume", "resume", "retry it", "retry it", "retry fresh", "delete"]
WORK = ["claim", "claim", "record", "record", "record", "die", "crashed", "crashed", "retry", "released"]
WORK += ["unstarted", "succeeded", "failed"]
WHICH = st.integers(0, 50)


class QueueMachine(RuleBasedStateMachine):
    """Does things to the queue and to the model, and compares."""

    @initialize()
    def begin(self) -> None:
        self.desk = Desk()
        self.jobs: dict[str, Model] = {}
        self.lives: dict[str, int] = {}  # the last life of each unique key's job
        self.runs: dict[str, dict[tuple[int, int], str]] = {}  # by job, by (generation, claim)
        self.working: dict[str, ClaimedJob] = {}  # what the worker has under way, by job
        self.unrecorded: set[str] = set()  # keys of claims that their rows don't tell yet
        self.kept: list[ClaimedJob] = []  # claims as they were kept aside last
        self.ids: list[str] = []
        self.ghosts: list[ClaimedJob] = []  # attempts whose node died

    # -- asking -----------------------------------------------------------------------------------------------

    @rule(priority=st.integers(-1, 1), delay=st.sampled_from([0, 0, 0, 5, 50]), limit=st.sampled_from([1, 3, 5]))
    def enqueue(self, priority: int, delay: int, limit: int) -> None:
        self.desk.wait(1)
        now = self.desk.clock.now
        run_at = now + delay if delay else None
        job_id = self.desk.enqueue(priority=priority, run_at=run_at, max_attempts=limit)
        self.jobs[job_id] = Model(0, priority, now, run_at or 0, limit)
        self.ids.append(job_id)

    @rule(count=st.integers(0, 4), priority=st.integers(-1, 1))
    def enqueue_many(self, count: int, priority: int) -> None:
        for _ in range(count):  # all at one moment would leave their order open
            self.desk.wait(1)
            (made,) = self.desk.write(lambda writer: ledger.enqueue_many(writer, [new_job(priority=priority, max_attempts=2)]))
            self.jobs[made.id] = Model(0, priority, self.desk.clock.now, 0, 2)
            self.ids.append(made.id)

    @rule(key=st.sampled_from("ab"), priority=st.integers(-1, 1))
    def enqueue_unique(self, key: str, priority: int) -> None:
        self.desk.wait(1)
        made = self.desk.write(lambda writer: ledger.enqueue(writer, new_job(unique_key=key, priority=priority, max_attempts=4)))
        known = self.jobs.get(made.id)
        assert made.id == unique_id(SPACE, "work", key)
        assert made.created == (known is None or known.status in TERMINAL)
        if made.created:
            life = self.lives[made.id] = self.lives.get(made.id, -1) + 1
            self.jobs[made.id] = Model(life << 16, priority, self.desk.clock.now, 0, 4)
            self.ids.append(made.id)

    @precondition(lambda self: self.ids)
    @rule(which=WHICH, verbs=st.lists(st.sampled_from(VERBS), min_size=1, max_size=4))
    def ask(self, which: int, verbs: list[str]) -> None:
        for verb in verbs:
            self.ask_once(self.ids[-1 - which % len(self.ids)], verb)

    def ask_once(self, job_id: str, verb: str) -> None:
        allowed = {
            "cancel": lambda model: model.status not in TERMINAL,
            "hold": lambda model: model.status not in TERMINAL,
            "resume": lambda model: model.held and model.status not in TERMINAL,
            "delete": lambda model: True,
        }.get(verb, lambda model: model.status in TERMINAL)
        model = self.act(verb.split()[0], job_id, allowed, **({"fresh": True} if verb == "retry fresh" else {}))
        if model is None:
            return
        if verb == "cancel":
            for job in self.kept:
                if job.job_id == job_id and self.begun(model, job):
                    model.attempt, model.claim = job.attempt, job.holder.claim
            model.status = "cancelled"
        elif verb in ("hold", "resume"):
            model.held = verb == "hold"
        elif verb == "delete":
            del self.jobs[job_id]
        else:
            model.generation += 1
            model.lost = False
            model.status, model.attempt, model.claim, model.retry_at, model.held, model.crashes = "queued", 0, 0, 0, False, {}
            model.checkpoint = None if verb == "retry fresh" else model.checkpoint

    def act(self, verb: str, job_id: str, allowed: Any, **more: Any) -> Model | None:
        """Does what is asked, or sees it refused; gives the model where it was done."""
        model = self.jobs.get(job_id)
        fn = getattr(self.desk, verb)
        if model is None:
            with pytest.raises(NoSuchJob):
                fn(job_id, **more)
            return None
        if not allowed(model):
            with pytest.raises(WrongState, match=job_id):
                fn(job_id, **more)
            return None
        fn(job_id, **more)
        return model

    # -- working ----------------------------------------------------------------------------------------------

    @rule(slots=st.integers(1, 3))
    def claim(self, slots: int) -> None:
        self.take(slots)

    def take(self, slots: int) -> list[ClaimedJob]:
        unrecorded = [job for job in self.working.values() if job.key in self.unrecorded]
        kept = tuple(begun.begun(job, self.desk.replica.author) for job in unrecorded)
        claimed = self.desk.settle(slots=slots, skip=frozenset(self.working), begun=kept)
        assert [job.job_id for job in claimed] == self.expected(slots)
        for job in claimed:
            model = self.jobs[job.job_id]
            assert (job.holder.generation, job.holder.claim) == (model.generation, model.claim + 1)
            assert (job.attempt, job.max_attempts, job.checkpoint) == (model.attempt + 1, model.max_attempts, model.checkpoint)
            self.working[job.job_id] = job
            self.unrecorded.add(job.key)
        if claimed:
            self.kept = [*unrecorded, *claimed]
        return claimed

    def expected(self, slots: int) -> list[str]:
        now = self.desk.clock.now
        waiting = [job_id for job_id, model in self.jobs.items() if model.shown == "queued" and model.due <= now]
        waiting.sort(key=lambda job_id: (-self.jobs[job_id].priority, self.jobs[job_id].due, self.jobs[job_id].created))
        taken: list[str] = []
        suspected = False
        for job_id in waiting:
            model = self.jobs[job_id]
            if job_id in self.working:
                continue
            if model.attempt >= model.max_attempts:
                model.status = "failed"
                continue
            if model.lost and model.attempt + 1 >= model.max_attempts:
                if suspected:
                    continue  # their last attempts are made one at a time
                suspected = True
            taken.append(job_id)
            if len(taken) == slots:
                break
        return taken

    @precondition(lambda self: self.working)
    @rule(which=WHICH)
    def record(self, which: int) -> None:
        job = self.attempt(which)
        self.desk.record(job)
        self.write_begun(job)

    def write_begun(self, job: ClaimedJob) -> None:
        """The row of a claimed job tells that it runs, where nothing else has become of it."""
        model = self.jobs.get(job.job_id)
        if model is not None and self.begun(model, job):
            model.status, model.attempt, model.claim, model.retry_at = "running", job.attempt, job.holder.claim, 0
            self.note_run(job, "running")
        self.unrecorded.discard(job.key)

    @precondition(lambda self: self.working or self.ghosts)
    @rule(which=WHICH, state=st.binary(min_size=1, max_size=3))
    def checkpoint(self, which: int, state: bytes) -> None:
        job = self.attempt(which, late=True)
        self.write_begun(job)
        model = self.jobs.get(job.job_id)
        holds = model is not None and self.holds(model, job)
        assert self.desk.checkpoint(job, state) == holds
        if model is not None and holds:
            model.checkpoint = state

    @precondition(lambda self: self.working or self.ghosts)
    @rule(which=WHICH, progress=st.floats(0, 1))
    def beat(self, which: int, progress: float) -> None:
        job = self.attempt(which, late=True)
        model = self.jobs.get(job.job_id)
        recorded = model is not None and model.status == "running" and self.holds(model, job)
        before = self.desk.find(job.job_id)
        self.desk.beat(job, progress)
        after = self.desk.find(job.job_id)
        if recorded:
            assert after is not None
            assert after.progress == progress
        elif model is None or (model.generation, model.claim) != (job.holder.generation, job.holder.claim):
            assert (after and after.progress) == (before and before.progress), "a worker that lost the job can't touch its progress"

    @precondition(lambda self: self.working or self.ghosts)
    @rule(
        which=WHICH,
        how=st.sampled_from(["succeeded", "failed", "retry", "crashed", "released", "unstarted", "stopped"]),
        delay=st.sampled_from([None, 0, 20]),
        state=st.one_of(st.none(), st.just(b"given back")),
    )
    def end(self, which: int, how: Any, delay: int | None, state: bytes | None) -> None:
        self.finish(self.attempt(which, late=True), how, delay, state)

    def attempt(self, which: int, *, late: bool = False) -> ClaimedJob:
        """One that is under way; with `late` perhaps one whose node has died."""
        known = [*self.working.values(), *(self.ghosts if late else [])]
        return known[which % len(known)]

    def finish(self, job: ClaimedJob, how: Any, delay: int | None, state: bytes | None) -> None:
        model = self.jobs.get(job.job_id)
        unstarted, how = how == "unstarted", "released" if how == "unstarted" else how
        if how == "stopped":
            how = self.why_stopped(model, job)
        retry_at = self.desk.clock.now + delay if delay is not None and how == "retry" else None
        self.desk.end(job, how, retry_at=retry_at, checkpoint=state if how == "released" else None, unstarted=unstarted)
        if unstarted and model is not None and self.begun(model, job):
            self.forget(job)
            self.kept = [each for each in self.kept if each.key != job.key]
            return
        word = RUN_WORDS.get(how, how)
        if model is not None and self.holds(model, job):
            self.step(model, job, how, retry_at or 0)
            if how == "released" and state is not None:
                model.checkpoint = state
        elif model is not None and how == "succeeded" and (model.generation, model.status) == (job.holder.generation, "failed"):
            model.status = "succeeded"
        elif model is not None and model.status == "running" and model.generation == job.holder.generation and how != "cancelled":
            word = "lost"
        elif how == "released":
            word = "cancelled"
        self.note_run(job, word)
        if model is not None and model.generation == job.holder.generation:
            model.crashes[job.holder.claim] = (job.attempt, how == "crashed")
        self.forget(job)

    def forget(self, job: ClaimedJob) -> None:
        if self.working.get(job.job_id) is job:
            del self.working[job.job_id]
        if job in self.ghosts:
            self.ghosts.remove(job)
        self.unrecorded.discard(job.key)

    def why_stopped(self, model: Model | None, job: ClaimedJob) -> How:
        if model is None or model.status == "cancelled":
            return "cancelled"
        return "lost" if model.generation != job.holder.generation else "released"

    def step(self, model: Model, job: ClaimedJob, how: How, retry_at: int) -> None:
        model.attempt, model.claim, model.retry_at, model.lost = job.attempt, job.holder.claim, 0, False
        again = how == "retry" or (how == "crashed" and not model.crashed_before(job.attempt))
        if how == "succeeded":
            model.status = "succeeded"
        elif how == "released":
            model.status, model.attempt = "queued", job.attempt - 1
        elif again and job.attempt < job.max_attempts:
            model.status, model.retry_at = "queued", retry_at
        else:
            model.status = "failed"

    @precondition(lambda self: self.ids)
    @rule(which=WHICH, acts=st.lists(st.sampled_from(VERBS + WORK), min_size=3, max_size=10))
    def tell_a_story(self, which: int, acts: list[Any]) -> None:
        """Much happens, mostly to one job: what a single rule at a time seldom brings about."""
        for act in acts:
            if act in VERBS:
                self.ask_once(self.ids[-1 - which % len(self.ids)], act)
            elif act == "die":
                self.die_and_start_again()
            elif act in ("claim", "record"):
                for job in self.take(1):
                    if act == "record":
                        self.desk.record(job)
                        self.write_begun(job)
            elif self.working or self.ghosts:
                self.finish(self.attempt(which, late=True), act, None, None)

    @rule()
    def die_and_start_again(self) -> None:
        """What was under way is lost; its endings may still come, as no ending of another process would."""
        for job in self.kept:
            self.write_begun(job)
        expected = []
        for job_id, model in self.jobs.items():
            if model.status == "running":
                expected.append(job_id)
                self.note_run_at(job_id, model.generation, model.claim, "lost")
                model.crashes[model.claim] = (model.attempt, False)
                model.lost = True
                spent = model.attempt >= model.max_attempts and not model.held
                model.status, model.retry_at = "failed" if spent else "queued", 0
        for job_id, runs in self.runs.items():
            gone = job_id not in self.jobs or self.jobs[job_id].status == "cancelled"
            for key, word in runs.items():
                if word == "running":
                    runs[key] = "cancelled" if gone else "lost"
        assert sorted(self.desk.recover()) == sorted(expected)
        self.ghosts += self.working.values()
        self.working, self.unrecorded = {}, set()

    @rule(ms=st.sampled_from([1, 10, 100]))
    def let_time_pass(self, ms: int) -> None:
        self.desk.wait(ms)

    def begun(self, model: Model, job: ClaimedJob) -> bool:
        return model.status == "queued" and (model.generation, model.claim + 1) == (job.holder.generation, job.holder.claim)

    def holds(self, model: Model, job: ClaimedJob) -> bool:
        running = model.status == "running" and (model.generation, model.claim) == (job.holder.generation, job.holder.claim)
        return running or self.begun(model, job)

    def note_run(self, job: ClaimedJob, word: str) -> None:
        self.note_run_at(job.job_id, job.holder.generation, job.holder.claim, word)

    def note_run_at(self, job_id: str, generation: int, claim: int, word: str) -> None:
        self.runs.setdefault(job_id, {})[generation, claim] = word

    # -- comparing --------------------------------------------------------------------------------------------

    @invariant()
    def every_job_stands_as_in_the_model(self) -> None:
        query = """SELECT id, status, coalesce(state_generation, spec_generation), coalesce(attempt, 0), coalesce(claim, 0),
            coalesce(retry_at, 0), coalesce(priority, 0) FROM jobs WHERE live = 1"""
        found = {row[0]: row[1:] for row in self.select(query)}
        wanted = {
            job_id: (model.shown, model.generation, model.attempt, model.claim, self.shown_retry(model), model.priority)
            for job_id, model in self.jobs.items()
        }
        assert found == wanted

    def shown_retry(self, model: Model) -> int:
        return model.retry_at if model.status == "queued" else 0

    def select(self, query: str) -> list[tuple[Any, ...]]:
        return self.desk.replica.read(lambda connection: connection.execute(query).fetchall())

    @invariant()
    def the_counters_are_right(self) -> None:
        shown = Counter(model.shown for model in self.jobs.values())
        assert self.desk.counts() == dict.fromkeys(self.desk.counts(), 0) | shown

    @invariant()
    def every_run_is_there(self) -> None:
        found = {run_id.rpartition("/")[0]: status for run_id, status in self.select("SELECT id, status FROM runs")}
        runs = ((job_id, key, word) for job_id, runs in self.runs.items() for key, word in runs.items())
        assert found == {f"{job_id}/{generation}/{claim}": word for job_id, (generation, claim), word in runs}

    @invariant()
    def the_next_due_job_is_known(self) -> None:
        later = [model.due for model in self.jobs.values() if model.shown == "queued" and model.due > self.desk.clock.now]
        due = self.desk.next_due()
        assert due is not None or not later
        assert due is None or due <= min(later, default=due)


EXAMPLES = 5_000 if os.environ.get(FUZZ) else 60
QueueMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=50)
TestQueue = QueueMachine.TestCase
