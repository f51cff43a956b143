"""Who is asked for what, step by step; whole fetches are in tests/simulation/fetching."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.payload.fetching.chunks import Chunks
from p2pqueue.payload.fetching.pace import FEWEST, LARGEST_WINDOW, LATEST, SOONEST, Pace
from p2pqueue.payload.fetching.plan import ORIGIN_AFTER, SILENT, STUCK, Offer, Plan
from p2pqueue.payload.fetching.standing import FIRST_REST, LACKS_FOR, STRIKES
from p2pqueue.payload.format import MIB

A, B = ("a", "http"), ("b", "http")


def planned(count: int, *sources: Offer, size: int = MIB) -> Plan:
    plan = Plan(count, size)
    plan.offered(sources or [Offer("a", "http"), Offer("b", "http")], 0.0)
    return plan


def test_chunks_are_given_out_in_their_order_each_to_one_source() -> None:
    plan = planned(4)
    assert [plan.take(A, 0.0), plan.take(B, 0.0), plan.take(A, 0.0), plan.take(B, 0.0)] == [0, 1, 2, 3]
    assert plan.take(A, 0.0) is None


def test_of_a_source_that_was_not_measured_two_shards_are_asked_at_once() -> None:
    plan = planned(9)
    assert [plan.take(A, 0.0) for _ in range(3)] == [0, 1, None]
    plan.came(0, A, MIB, 0.1)
    assert plan.take(A, 0.1) == 2


def test_a_source_is_not_asked_for_a_while_for_a_chunk_that_it_lacks() -> None:
    plan = planned(2)
    assert plan.take(A, 0.0) == 0
    plan.missing(0, A, 0.0)
    assert plan.take(A, 0.0) == 1
    plan.missing(1, A, 0.0)
    assert not plan.has_use_for(A, 0.0)
    assert plan.has_use_for(B, 0.0)
    assert plan.has_use_for(A, LACKS_FOR)
    assert {plan.take(B, 0.0), plan.take(B, 0.0)} == {0, 1}


def test_a_device_that_sent_three_wrong_shards_is_out_by_every_lane() -> None:
    plan = planned(10, Offer("a", "http"), Offer("a", "webrtc"), Offer("b", "http"))
    for _ in range(STRIKES):
        chunk = plan.take(A, 0.0)
        assert chunk is not None
        plan.wrong(chunk, A, 0.0)
    assert plan.take(A, 1e9) is None
    assert plan.take(("a", "webrtc"), 1e9) is None
    assert plan.state(A, 0.0) == "out"
    assert plan.take(B, 0.0) == 0


def test_a_lane_that_fails_rests_and_is_asked_again() -> None:
    plan = planned(10, Offer("a", "http"))
    for _ in range(STRIKES):
        chunk = plan.take(A, 5.0)
        assert chunk is not None
        plan.failed(chunk, A, 5.0)
    assert plan.take(A, 5.0 + FIRST_REST - 0.01) is None
    assert plan.is_hopeless(5.1)
    assert plan.take(A, 5.0 + FIRST_REST) is not None
    assert not plan.is_hopeless(5.0 + FIRST_REST)


def test_what_a_source_was_asked_for_that_is_gone_is_asked_of_others_at_once() -> None:
    plan = planned(2)
    assert (plan.take(A, 0.0), plan.take(A, 0.0)) == (0, 1)
    assert set(plan.offered([Offer("b", "http")], 0.1)) == {(0, A), (1, A)}
    assert {plan.take(B, 0.1), plan.take(B, 0.1)} == {0, 1}


def test_the_last_chunks_are_asked_twice_what_comes_first_counts_and_the_other_is_told() -> None:
    plan = planned(3)
    assert (plan.take(A, 0.0), plan.take(B, 0.0), plan.take(B, 0.0)) == (0, 1, 2)
    assert plan.came(1, B, MIB, 0.1) == (True, [])
    assert plan.take(B, 0.12) is None  # it was asked a moment ago
    assert plan.came(2, B, MIB, 0.2) == (True, [])
    assert plan.take(B, 1.0) == 0
    assert plan.came(0, B, MIB, 1.1) == (True, [A])
    assert plan.finished
    assert plan.came(0, A, MIB, 1.2) == (False, [])


def test_no_shard_is_waited_for_without_end() -> None:
    plan = planned(2, Offer("a", "http"))
    plan.take(A, 0.0)
    plan.take(A, 0.0)
    plan.advanced(0, A, 1.0)
    assert plan.stuck(1.0 + SILENT - 0.1) == []
    assert plan.stuck(1.0 + SILENT) == [(0, A)]
    assert set(plan.stuck(STUCK)) == {(0, A), (1, A)}


def test_an_origin_is_asked_when_no_peer_has_delivered_for_two_seconds() -> None:
    plan = planned(9, Offer("a", "http"), Offer("o", "origin", True))
    origin = ("o", "origin")
    plan.take(A, 0.0)
    assert plan.take(origin, ORIGIN_AFTER - 0.1) is None
    assert plan.take(origin, ORIGIN_AFTER) is not None
    plan.came(0, A, MIB, ORIGIN_AFTER + 0.1)
    assert plan.take(origin, ORIGIN_AFTER + 0.2) is None


def test_a_way_that_is_long_and_fast_gets_more_at_once_within_limits() -> None:
    pace, now = Pace(), 0.0
    assert pace.window(MIB) == FEWEST * MIB
    for _ in range(40):
        now += 0.01
        pace.came(MIB, asked_at=now - 0.2, received_then=max(0, pace.received - 7 * MIB), now=now)
    assert pace.window(MIB) == LARGEST_WINDOW
    assert Pace().window(8 * MIB) == 2 * 8 * MIB


def test_what_takes_three_times_as_long_as_usual_is_late() -> None:
    pace = Pace()
    for took in (0.9, 1.0, 1.1):
        pace.came(MIB, asked_at=0.0, received_then=0, now=took)
    assert pace.late_after() == 3.0
    pace.forget()
    pace.came(MIB, asked_at=0.0, received_then=0, now=0.01)
    assert pace.late_after() == SOONEST
    pace.forget()
    pace.came(MIB, asked_at=0.0, received_then=0, now=100.0)
    assert pace.late_after() == LATEST


@given(st.integers(1, 60), st.integers(0, 2**60 - 1), st.integers())
def test_every_chunk_that_is_not_here_is_drawn_once_in_whatever_order(count: int, bits: int, seed: int) -> None:
    dice = Random(seed)
    here = {chunk for chunk in range(count) if bits >> chunk & 1}
    chunks, drawn = Chunks(count, bits.to_bytes(8, "little")), []
    while chunks.unasked:
        chunk = chunks.draw(lambda _: False, probing=dice.random() < 0.5, after=dice.choice([None, dice.randrange(count)]))
        assert chunk is not None
        if dice.random() < 0.2:
            chunks.put_back(chunk)
        else:
            assert chunks.first_undone <= chunk
            assert chunks.mark(chunk)
            drawn.append(chunk)
    assert sorted(drawn) == sorted(set(range(count)) - here)
    assert chunks.undone == 0
