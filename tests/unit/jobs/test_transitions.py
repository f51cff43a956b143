"""Each step of the state lattice: from which state, with which outcome, and why."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.job import RANK, Decision, Holder, JobState, Refused, Transition, read_state

NOW = 1_700_000_000_000  # milliseconds
LIFE = 3 << 16  # generation of a job made for the fourth time

QUEUED = JobState(LIFE)
RUNNING = JobState(LIFE, "running", attempt=1, claim=1, worker_id="w", worker_label="studio", claimed_at=NOW)
LAST = RUNNING._replace(attempt=3, claim=5)
FAILED = RUNNING._replace(status="failed", finished_at=NOW, error="boom")
SUCCEEDED = RUNNING._replace(status="succeeded", finished_at=NOW, result_id="r")
CANCELLED = RUNNING._replace(status="cancelled", finished_at=NOW)
ENDED = (FAILED, SUCCEEDED, CANCELLED)

HOLDER = Holder(LIFE, 1, "w")
OLDER_CLAIM = Holder(LIFE, 0, "w")
OTHER_WORKER = Holder(LIFE, 1, "x")
EARLIER_GENERATION = Holder(LIFE - 1, 1, "w")


def claim(state: JobState, *, due_at: int = 0, held: bool = False, stale: bool = False, max_attempts: int = 3) -> Decision:
    return lattice.claim(
        state, "w", worker_label="studio", max_attempts=max_attempts, now=NOW, due_at=due_at, held=held, stale=stale
    )  # fmt: skip


Step = Callable[[], Decision]

ACCEPTED: list[tuple[str, Step, tuple[str, int, int, int, int, bool]]] = [
    # reason, step, (status, generation, rank, claim of the stamp, attempt, earliest)
    ("a claim counts the attempt and the claim", lambda: claim(QUEUED), ("running", LIFE, 0, 1, 1, False)),
    ("a claim after a release has a number above", lambda: claim(QUEUED._replace(claim=4)), ("running", LIFE, 0, 5, 1, False)),
    ("a job that is due is claimed", lambda: claim(QUEUED, due_at=NOW), ("running", LIFE, 0, 1, 1, False)),
    ("a stale job is taken again", lambda: claim(RUNNING, stale=True), ("running", LIFE, 0, 2, 2, False)),
    ("a release gives the attempt back", lambda: lattice.release(RUNNING, HOLDER), ("queued", LIFE, 0, 1, 0, False)),
    (
        "a release never goes below no attempt",
        lambda: lattice.release(RUNNING._replace(attempt=0), HOLDER),
        ("queued", LIFE, 0, 1, 0, False),
    ),
    (
        "a retry spends the attempt",
        lambda: lattice.requeue(RUNNING, HOLDER, error="x", max_attempts=3),
        ("queued", LIFE, 0, 1, 1, False),
    ),
    (
        "a recovery spends the attempt",
        lambda: lattice.recover(RUNNING, "w", max_attempts=3, now=NOW),
        ("queued", LIFE, 0, 1, 1, False),
    ),
    (
        "a recovery of the last attempt fails the job, so that one which kills its worker ends",
        lambda: lattice.recover(LAST, "w", max_attempts=3, now=NOW),
        ("failed", LIFE, 1, 0, 3, True),
    ),
    (
        "while held nothing fails as exhausted",
        lambda: lattice.recover(LAST, "w", max_attempts=3, now=NOW, held=True),
        ("queued", LIFE, 0, 5, 3, False),
    ),
    ("a lost worker's job runs again", lambda: lattice.worker_lost(RUNNING, max_attempts=3, now=NOW), ("queued", LIFE, 0, 1, 1, False)),
    ("a lost worker's last attempt fails", lambda: lattice.worker_lost(LAST, max_attempts=3, now=NOW), ("failed", LIFE, 1, 0, 3, True)),
    (
        "a success ends the job with claim 0 and the earlier clock",
        lambda: lattice.succeed(RUNNING, HOLDER, now=NOW, result_id="r"),
        ("succeeded", LIFE, 2, 0, 1, True),
    ),
    (
        "a success beats the failure of a rival attempt",
        lambda: lattice.succeed(FAILED, OTHER_WORKER, now=NOW, result_id="r"),
        ("succeeded", LIFE, 2, 0, 1, True),
    ),
    (
        "a worker that ran on, being further, ends the job first",
        lambda: lattice.succeed(RUNNING, OTHER_WORKER, now=NOW, result_id="r", rival=True),
        ("succeeded", LIFE, 2, 0, 1, True),
    ),
    ("a failure ends the job", lambda: lattice.fail(RUNNING, HOLDER, now=NOW, error="x"), ("failed", LIFE, 1, 0, 1, True)),
    (
        "a queued job without attempts left fails by whoever sees it",
        lambda: lattice.exhausted(QUEUED._replace(attempt=3), max_attempts=3, now=NOW),
        ("failed", LIFE, 1, 0, 3, True),
    ),
    (
        "a job of an unknown task fails unrun",
        lambda: lattice.give_up(QUEUED, now=NOW, reason="unknown task"),
        ("failed", LIFE, 1, 0, 0, True),
    ),
    ("a queued job is cancelled", lambda: lattice.cancel(QUEUED, now=NOW), ("cancelled", LIFE, 3, 0, 0, True)),
    ("a running job is cancelled", lambda: lattice.cancel(RUNNING, now=NOW), ("cancelled", LIFE, 3, 0, 1, True)),
    *[
        (f"a retry of what is {s.status} opens a generation", lambda s=s: lattice.retry(s), ("queued", LIFE + 1, 0, 0, 0, False))
        for s in ENDED
    ],
]

REFUSED: list[tuple[str, Step, str]] = [
    ("two workers, one job", lambda: claim(RUNNING), "is running"),
    ("no claim while held", lambda: claim(QUEUED, held=True), "is paused; resume it first"),
    ("nothing is taken over while held", lambda: claim(RUNNING, stale=True, held=True), "is paused; resume it first"),
    ("run_at is a promise", lambda: claim(QUEUED, due_at=NOW + 1), "is not due yet"),
    ("and so is a backoff", lambda: claim(QUEUED._replace(retry_at=NOW + 1)), "is not due yet"),
    ("attempts are a limit", lambda: claim(QUEUED._replace(attempt=3)), "has no attempts left (3 of 3)"),
    ("a stale lease is no new attempt", lambda: claim(LAST, stale=True), "has no attempts left (3 of 3)"),
    *[(f"no claim of what has {s.status}", lambda s=s: claim(s), "has already") for s in ENDED],
    ("only the holder releases", lambda: lattice.release(RUNNING, OTHER_WORKER), "was lost to studio (claim 1)"),
    ("a newer claim is another's", lambda: lattice.release(RUNNING, OLDER_CLAIM), "was lost to studio (claim 1)"),
    ("a retry ends all holds", lambda: lattice.fail(RUNNING, EARLIER_GENERATION, now=NOW, error="x"), "was retried or made anew since"),
    ("a failure after a cancel", lambda: lattice.fail(CANCELLED, HOLDER, now=NOW, error="x"), "has already been cancelled"),
    ("a failure doesn't beat a success", lambda: lattice.fail(SUCCEEDED, OTHER_WORKER, now=NOW, error="x"), "has already succeeded"),
    (
        "a result that arrives after a cancel is discarded",
        lambda: lattice.succeed(CANCELLED, HOLDER, now=NOW, result_id="r", rival=True),
        "has already been cancelled",
    ),
    (
        "the first success stands",
        lambda: lattice.succeed(SUCCEEDED, OTHER_WORKER, now=NOW, result_id="r", rival=True),
        "has already succeeded",
    ),
    (
        "an outranked worker doesn't end the job unless it ran on as a rival",
        lambda: lattice.succeed(RUNNING, OTHER_WORKER, now=NOW, result_id="r"),
        "was lost to studio (claim 1)",
    ),
    (
        "a success of an earlier generation is not this one's",
        lambda: lattice.succeed(RUNNING, EARLIER_GENERATION, now=NOW, result_id="r", rival=True),
        "was retried or made anew since",
    ),
    (
        "no attempt, no retry",
        lambda: lattice.requeue(LAST, Holder(LIFE, 5, "w"), error="x", max_attempts=3),
        "has no attempts left (3 of 3)",
    ),
    ("a node recovers only its own", lambda: lattice.recover(RUNNING, "x", max_attempts=3, now=NOW), "was lost to studio (claim 1)"),
    ("nothing to recover", lambda: lattice.recover(QUEUED, "w", max_attempts=3, now=NOW), "is queued"),
    (
        "while held nothing fails as stale",
        lambda: lattice.worker_lost(LAST, max_attempts=3, now=NOW, held=True),
        "is paused; nothing is taken over while it is",
    ),
    ("a cancel of a lost race", lambda: lattice.worker_lost(CANCELLED, max_attempts=3, now=NOW), "has already been cancelled"),
    ("attempts are left", lambda: lattice.exhausted(QUEUED, max_attempts=3, now=NOW), "has attempts left (0 of 3 spent)"),
    (
        "while held nothing fails as exhausted",
        lambda: lattice.exhausted(QUEUED._replace(attempt=3), max_attempts=3, now=NOW, held=True),
        "is paused; it doesn't fail while it is",
    ),
    ("a running job is its worker's to fail", lambda: lattice.give_up(RUNNING, now=NOW, reason="x"), "is running"),
    ("cancelling what succeeded", lambda: lattice.cancel(SUCCEEDED, now=NOW), "has already succeeded"),
    ("cancelling what failed", lambda: lattice.cancel(FAILED, now=NOW), "has already failed"),
    ("cancelling twice", lambda: lattice.cancel(CANCELLED, now=NOW), "has already been cancelled"),
    ("retrying what runs", lambda: lattice.retry(RUNNING), "is running; only a job that has ended can be retried"),
    ("retrying what waits", lambda: lattice.retry(QUEUED), "is queued; only a job that has ended can be retried"),
    (
        "a retry never spills into the next life",
        lambda: lattice.retry(FAILED._replace(generation=LIFE | 0xFFFF)),
        "was retried 65535 times; enqueue it anew",
    ),
]


@pytest.mark.parametrize(("step", "expected"), [pytest.param(step, expected, id=reason) for reason, step, expected in ACCEPTED])
def test_a_step_that_may_be_taken_has_the_stamp_of_its_row_in_the_table(step: Step, expected: tuple[str, int, int, int, int, bool]) -> None:
    decision = step()
    assert isinstance(decision, Transition)
    got = (decision.status, decision.generation, decision.rank, decision.claim, decision.state.attempt, decision.earliest)
    assert got == expected


@pytest.mark.parametrize(("step", "words"), [pytest.param(step, words, id=reason) for reason, step, words in REFUSED])
def test_a_step_that_may_not_be_taken_is_refused_in_words(step: Step, words: str) -> None:
    decision = step()
    assert isinstance(decision, Refused)
    assert decision.reason.startswith(words)


@pytest.mark.parametrize("seed", range(20))
def test_every_step_outranks_the_state_it_starts_from(seed: int) -> None:
    random = Random(seed)
    state, stamp = QUEUED, (LIFE, 0, 0, 0)
    steps: list[Callable[[JobState, Holder], Decision]] = [
        lambda s, h: lattice.claim(s, random.choice("wx"), worker_label=None, max_attempts=3, now=NOW, stale=random.random() < 0.5),
        lambda s, h: lattice.release(s, h),
        lambda s, h: lattice.requeue(s, h, error="x", max_attempts=3),
        lambda s, h: lattice.recover(s, "w", max_attempts=3, now=NOW),
        lambda s, h: lattice.worker_lost(s, max_attempts=3, now=NOW, held=random.random() < 0.5),
        lambda s, h: lattice.succeed(s, h, now=NOW, result_id="r", rival=random.random() < 0.5),
        lambda s, h: lattice.fail(s, h, now=NOW, error="x"),
        lambda s, h: lattice.exhausted(s, max_attempts=3, now=NOW),
        lambda s, h: lattice.cancel(s, now=NOW),
        lambda s, h: lattice.retry(s, fresh=random.random() < 0.5),
    ]
    taken = 0
    for hlc in range(1, 2000):
        holder = Holder(state.generation, random.randint(max(0, state.claim - 1), state.claim), random.choice("wx"))
        decision = random.choice(steps)(state, holder)
        if isinstance(decision, Transition):
            after = (decision.generation, decision.rank, decision.claim, -hlc if decision.earliest else hlc)
            assert after > stamp, f"{state.status} to {decision.status}"
            state, stamp, taken = decision.state, after, taken + 1
    assert taken > 100


def test_the_values_of_a_step_are_the_columns_of_the_register() -> None:
    from p2pqueue.jobs.tables import STATE

    decision = claim(QUEUED)
    assert isinstance(decision, Transition)
    assert list(decision.values) == [column.name for column in STATE.columns]


def test_a_claim_forgets_who_held_the_job_and_when_it_shall_run_again() -> None:
    decision = claim(RUNNING._replace(status="queued", retry_at=NOW - 1, checkpoint_stamp="s", result_id="r"))
    assert isinstance(decision, Transition)
    state = decision.state
    assert (state.retry_at, state.finished_at, state.result_id, state.checkpoint_stamp) == (None, None, None, "s")
    assert (state.worker_id, state.worker_label, state.claimed_at) == ("w", "studio", NOW)


def test_a_retry_keeps_the_checkpoint_and_clears_the_hold() -> None:
    decision = lattice.retry(FAILED._replace(checkpoint_stamp="s"))
    assert isinstance(decision, Transition)
    assert decision.clears_hold
    assert not decision.clears_checkpoint
    assert decision.state.checkpoint_stamp == "s"


def test_a_fresh_retry_forgets_the_checkpoint() -> None:
    decision = lattice.retry(FAILED._replace(checkpoint_stamp="s"), fresh=True)
    assert isinstance(decision, Transition)
    assert decision.clears_checkpoint
    assert decision.state == JobState(LIFE + 1)


def test_a_retry_waits_for_its_backoff() -> None:
    decision = lattice.requeue(RUNNING, HOLDER, error="boom", max_attempts=3, retry_at=NOW + 5000)
    assert isinstance(decision, Transition)
    assert (decision.state.retry_at, decision.state.error, decision.state.worker_id) == (NOW + 5000, "boom", None)


def test_a_success_forgets_the_error_of_earlier_attempts() -> None:
    decision = lattice.succeed(RUNNING._replace(error="earlier"), HOLDER, now=NOW, result_id="r")
    assert isinstance(decision, Transition)
    assert (decision.state.error, decision.state.result_id, decision.state.finished_at) == (None, "r", NOW)


def test_the_words_of_a_refusal_name_the_job_and_its_state() -> None:
    decision = lattice.cancel(SUCCEEDED, now=NOW)
    assert isinstance(decision, Refused)
    assert decision.about("0190") == "job 0190 has already succeeded"


@pytest.mark.parametrize("state", ENDED)
def test_pausing_what_has_ended_is_refused_with_its_state(state: JobState) -> None:
    refused = lattice.check_hold(state)
    assert refused is not None
    assert "has already" in refused.reason


@pytest.mark.parametrize("state", [QUEUED, RUNNING])
def test_what_has_not_ended_can_be_paused_and_resumed(state: JobState) -> None:
    assert lattice.check_hold(state) is None
    assert lattice.check_resume(state, held=True) is None


def test_resuming_what_is_not_paused_is_refused() -> None:
    assert lattice.check_resume(QUEUED, held=False) == Refused("is queued, not paused")


def test_a_job_without_a_state_is_queued_in_the_life_of_its_spec() -> None:
    assert read_state(LIFE, None, {}) == QUEUED


def test_a_state_of_an_earlier_life_counts_for_nothing() -> None:
    """A re-created unique key was born "succeeded"."""
    assert read_state(LIFE, LIFE - 1, SUCCEEDED.values()) == QUEUED


def test_a_state_is_read_as_it_was_written() -> None:
    assert read_state(LIFE, LIFE + 2, RUNNING.values()) == RUNNING._replace(generation=LIFE + 2)


def test_ranks_order_the_ends_of_a_job() -> None:
    assert RANK == {"queued": 0, "running": 0, "failed": 1, "succeeded": 2, "cancelled": 3}
