"""Many seeds of the claim policy hold every invariant, and between them they meet every fault; mutants are found."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from p2pqueue.workers.claiming import rivalry
from p2pqueue.workers.claiming.lease import LeaseWatch
from p2pqueue.workers.claiming.ranking import Field, Go
from tests.simulation.claims.machine import Machine
from tests.simulation.claims.story import Outcome, run_seed

SEEDS = int(os.environ.get("P2PQUEUE_TEST_SEEDS", "120"))
EVERYTHING = (
    "a job was left to another",
    "a job was taken over",
    "a machine crashed",
    "a machine left with a goodbye",
    "a machine lost its network",
    "a machine slept",
    "a machine started again",
    "a message was lost",
    "a run was stopped: lost",
    "a run went on beside a newer claim",
    "an attempt failed",
    "an outranked run came to its end first",
    "one link was cut",
    "rows were cut off",
    "the space fell into two parts",
)
pytestmark = pytest.mark.timeout(0)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(run_seed, range(SEEDS), chunksize=5))


def test_every_seed_holds(outcomes: list[Outcome]) -> None:
    assert [(outcome.seed, outcome.problem) for outcome in outcomes if outcome.problem is not None] == []


def test_with_healthy_links_hardly_a_job_runs_twice(outcomes: list[Outcome]) -> None:
    healthy = [outcome for outcome in outcomes if outcome.healthy]
    assert 200 * sum(outcome.twice for outcome in healthy) <= sum(outcome.jobs for outcome in healthy)  # half a percent


@pytest.mark.soak  # the aim; two workers whose waits end within one delay of each other still take one job at times
def test_with_healthy_links_a_job_runs_once(outcomes: list[Outcome]) -> None:
    assert [(outcome.seed, outcome.twice) for outcome in outcomes if outcome.healthy and outcome.twice] == []


def test_between_them_the_seeds_meet_every_fault(outcomes: list[Outcome]) -> None:
    met = {marker for outcome in outcomes for marker in outcome.met}
    assert [marker for marker in EVERYTHING if marker not in met] == []


def test_a_seed_runs_the_same_each_time() -> None:
    assert run_seed(7) == run_seed(7)


def nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Field, "decide", lambda *_, **__: Go())


def everybody_waits_for_the_best_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Field.decide
    monkeypatch.setattr(Field, "decide", lambda self, *told, **_: decide(self, *told[:5], step=1e9))


def leases_never_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseWatch, "stale", lambda *_: [])
    monkeypatch.setattr(Machine, "said_goodbye", lambda *_: None)


def an_outranked_run_claims_the_job_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivalry, "course", lambda *_, **__: "holds")
    monkeypatch.setattr(Machine, "end", _end_whatever_became_of_it)


def _end_whatever_became_of_it(self: Machine, run: object) -> None:
    job = run.job  # type: ignore[attr-defined]
    if self.here.get(job) is run:
        del self.here[job]
        row = self.rows[job]
        time = self.stamp_time()
        self.put(job, row._replace(stamp=(0, 1, 0, -time, self.number), state=row.state._replace(status="failed")))


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    nobody_is_waited_for,
    everybody_waits_for_the_best_for_ever,
    leases_never_run_out,
    an_outranked_run_claims_the_job_for_ever,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_checker_bites(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in range(40):
        outcome = run_seed(seed)
        if outcome.problem is not None or (outcome.healthy and outcome.twice):
            return
    pytest.fail("none of 40 seeds sees it")
