"""Many seeds hold every invariant, and between them they meet every fault. `python -m tests.simulation SEED` repeats one."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.simulation.plan import Event, plan
from tests.simulation.runner import Outcome, run_plan, run_seed, shrink

SEEDS = int(os.environ.get("P2PQUEUE_TEST_SEEDS", "200"))
EVERYTHING = (
    "a clock jumped",
    "a clock stood beyond 2100",
    "a database was cloned",
    "a device crashed before an effect",
    "a device crashed behind an effect",
    "a device died with its disk",
    "a device started again",
    "a disk died, its device went on",
    "a disk was rolled back unseen",
    "a link carried one way only",
    "a link was cut",
    "a message of an ended session arrived",
    "a message was lost",
    "a row was dropped",
    "a row was dropped since it had ended elsewhere",
    "an old copy was restored",
    "equal heads",
    "messages changed places",
    "reported: fork",
)

pytestmark = pytest.mark.timeout(0)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(run_seed, range(SEEDS), chunksize=5))


def test_every_seed_holds(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.problem is not None]
    words = "\n".join(f"python -m tests.simulation {outcome.seed}: {outcome.problem}" for outcome in failed)
    assert not failed, f"{len(failed)} of {len(outcomes)} seeds fail\n{words}"


def test_between_them_the_seeds_meet_every_fault(outcomes: list[Outcome]) -> None:
    met = {marker for outcome in outcomes for marker in outcome.met}
    assert [marker for marker in EVERYTHING if marker not in met] == []


def test_a_seed_runs_the_same_each_time() -> None:
    first, second = run_seed(7), run_seed(7)
    assert (first.met, first.settled_after) == (second.met, second.settled_after)


def test_a_failing_plan_shrinks_to_the_events_that_matter() -> None:
    failing = plan(3)
    harm = Event(2.0, "no such event", 0, 0.5)
    failing = plan(3).without(set(range(20, len(failing.events))))
    failing = type(failing)(**{**failing.__dict__, "events": (*failing.events, harm)})
    assert run_plan(failing).problem is not None
    assert shrink(failing).events == (harm,)
