from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.payload.plan import FIRST_REST, STRIKES, TWICE_AFTER, Plan


def test_chunks_are_given_out_in_their_order_each_to_one_source() -> None:
    plan = Plan(range(4))
    assert [plan.take("a", 0.0), plan.take("b", 0.0), plan.take("a", 0.0), plan.take("b", 0.0)] == [0, 1, 2, 3]
    assert plan.take("a", 0.0) is None


def test_a_source_is_not_asked_again_for_a_chunk_that_it_lacks() -> None:
    plan = Plan(range(2))
    assert plan.take("a", 0.0) == 0
    plan.missing(0, "a")
    assert plan.take("a", 0.0) == 1
    plan.missing(1, "a")
    assert not plan.has_use_for("a", 0.0)
    assert plan.has_use_for("b", 0.0)
    assert {plan.take("b", 0.0), plan.take("b", 0.0)} == {0, 1}


def test_a_source_that_sent_three_wrong_chunks_is_out_for_good() -> None:
    plan = Plan(range(10))
    for _ in range(STRIKES):
        chunk = plan.take("liar", 0.0)
        assert chunk == 0
        plan.wrong(chunk, "liar")
    assert plan.take("liar", 1e9) is None
    assert not plan.has_use_for("liar", 1e9)
    assert plan.take("b", 0.0) == 0


def test_a_source_that_fails_rests_and_is_asked_again() -> None:
    plan = Plan(range(10))
    for _ in range(STRIKES):
        chunk = plan.take("a", 5.0)
        assert chunk is not None
        plan.failed(chunk, "a", 5.0)
    assert plan.take("a", 5.0 + FIRST_REST - 0.01) is None
    chunk = plan.take("a", 5.0 + FIRST_REST)
    assert chunk == 0
    plan.came(chunk, "a")
    assert plan.has_use_for("a", 5.0)


def test_at_the_end_a_chunk_that_is_long_under_way_is_asked_of_a_second_source_and_counts_once() -> None:
    plan = Plan(range(1))
    assert plan.take("slow", 0.0) == 0
    assert plan.take("quick", TWICE_AFTER - 0.01) is None
    assert plan.take("quick", TWICE_AFTER) == 0
    assert plan.take("third", 10.0) is None  # two are enough
    assert plan.came(0, "quick")
    assert plan.finished
    assert not plan.came(0, "slow")


@given(st.integers(0, 30), st.lists(st.sampled_from(["came", "missing", "failed", "wrong"]), max_size=300), st.data())
def test_whatever_sources_do_a_good_one_brings_every_chunk_once(count: int, fates: list[str], data: st.DataObject) -> None:
    plan, came, now = Plan(range(count)), [], 0.0
    for fate in fates:
        now += data.draw(st.sampled_from([0.0, 0.5, 2.0]))
        source = data.draw(st.sampled_from(["a", "b", "c"]))
        chunk = plan.take(source, now)
        if chunk is None:
            continue
        if fate == "came":
            came += [chunk] if plan.came(chunk, source) else []
        elif fate == "failed":
            plan.failed(chunk, source, now)
        else:
            getattr(plan, fate)(chunk, source)
    while not plan.finished:
        now += TWICE_AFTER
        chunk = plan.take("good", now)
        assert chunk is not None
        came += [chunk] if plan.came(chunk, "good") else []
    assert sorted(came) == list(range(count))
