from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.jobs.waiting import Ability, Demand
from p2pqueue.workers.claiming.presence import Presence
from p2pqueue.workers.claiming.ranking import BACKSTOP, STEP, Candidate, Go, Wait, decide, rank

RENDER = Demand("render", frozenset(), None, True)


def worker(name: str, score: int = 60, *, free: int = 1, tasks: tuple[str, ...] = ("render",), max_input: int | None = None) -> Presence:
    return Presence(name * 32, Ability(name, frozenset(tasks), max_input=max_input), score, slots=2, free=free)


def job(number: int = 0, demand: Demand = RENDER, **more: object) -> Candidate:
    return Candidate(f"job-{number}", demand, 100.0, **more)  # type: ignore[arg-type]


def test_the_only_fit_worker_takes_a_job_at_once() -> None:
    assert decide(job(), worker("a"), [], 100.0) == Go()
    assert decide(job(), worker("a"), [worker("b", 900, tasks=("mix",))], 100.0) == Go()


def test_the_stronger_worker_takes_it_and_the_weaker_waits_a_step() -> None:
    weak, strong = worker("a", 60), worker("b", 240)
    assert decide(job(), strong, [weak], 100.0) == Go()
    waits = decide(job(), weak, [strong], 100.0)
    assert waits == Wait("left to b, which is expected to finish it earlier", 100.0 + STEP)
    assert decide(job(), weak, [strong], 100.0 + STEP) == Go(contested=True, last=1)


def test_each_better_worker_with_a_free_slot_is_given_a_step() -> None:
    better = [worker("b", 240), worker("c", 480), worker("d", 120)]
    decision = decide(job(), worker("a"), better, 100.0)
    assert isinstance(decision, Wait)
    assert decision.until == 100.0 + 3 * STEP
    assert decision.reason.startswith("left to c")


def test_a_stronger_worker_without_a_slot_is_waited_for_while_it_would_still_be_earlier() -> None:
    weak = worker("a", 60)
    much_stronger, little_stronger = worker("b", 480, free=0), worker("b", 90, free=0)
    decision = decide(job(), weak, [much_stronger], 100.0)
    assert isinstance(decision, Wait)
    assert decision.until == 100.0 + BACKSTOP
    assert decide(job(), weak, [much_stronger], 100.0 + BACKSTOP) == Go(contested=True)
    assert decide(job(), weak, [little_stronger], 100.0) == Go(contested=True, last=1)


def test_whoever_holds_a_large_input_is_better_placed_than_a_somewhat_stronger_one() -> None:
    holder, strong = worker("a", 60), worker("b", 120)
    large = job(demand=Demand("render", frozenset(), 20_000_000_000, True), holders=frozenset({holder.device_id}))
    assert [each.label for each in rank(large, [holder, strong])] == ["a", "b"]
    assert [each.label for each in rank(job(), [holder, strong])] == ["b", "a"]


def test_a_worker_that_takes_no_inputs_of_that_size_is_not_waited_for() -> None:
    large = job(demand=Demand("render", frozenset(), 1_000, True))
    assert decide(large, worker("a", 60), [worker("b", 600, max_input=999)], 100.0) == Go()


def test_only_those_who_hold_an_input_that_is_not_shared_can_have_it() -> None:
    unshared = job(demand=Demand("render", frozenset(), 1_000, True), shared=False, holders=frozenset({"a" * 32}))
    assert decide(unshared, worker("a", 60), [worker("b", 600)], 100.0) == Go()


def test_equal_workers_share_the_jobs() -> None:
    equal = [worker(name) for name in "abc"]
    first = Counter(rank(job(number), equal)[0].label for number in range(600))
    assert set(first) == {"a", "b", "c"}
    assert min(first.values()) > 120


@given(st.lists(st.tuples(st.integers(0, 900), st.booleans()), min_size=1, max_size=12), st.integers(0, 99))
def test_whoever_asks_exactly_one_worker_with_a_slot_takes_a_job_at_once_and_all_do_in_the_end(
    told: list[tuple[int, bool]], number: int
) -> None:
    workers = [worker(chr(97 + index), score, free=int(free)) for index, (score, free) in enumerate(told)]
    idle = [each for each in workers if each.free]
    at_once = [each for each in idle if isinstance(decide(job(number), each, [other for other in workers if other is not each], 100.0), Go)]
    assert len(at_once) <= 1
    if len(idle) == len(workers):
        assert at_once == [rank(job(number), workers)[0]]
    late = 100.0 + BACKSTOP + STEP * len(workers)
    assert all(isinstance(decide(job(number), each, [other for other in workers if other is not each], late), Go) for each in idle)
