"""Everything arrives over any line, and no loss waits for a time-out while anything arrives; in simulated time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pqueue.net.webrtc.congestion import LEAST_RTO, SOCKET_ROOM, Congestion
from p2pqueue.net.webrtc.flight import Flight
from tests.unit.net.wire_line import FIRST_TSN, SIZE, Line


def arrived(line: Line) -> list[int]:
    return [int.from_bytes(data, "big") for _, _, data in line.inbound.messages]


def test_a_clean_line_is_filled_and_nothing_is_sent_twice() -> None:
    line = Line(packets=5000, speed=20e6).run()
    assert arrived(line) == list(range(5000))
    assert line.sent == 5000
    assert line.speed_reached > 0.8 * line.speed


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("lost", "at_least"), [(0.001, 3e6), (0.02, 0.6e6), (0.1, 0.2e6)])
def test_what_is_lost_is_sent_again_without_waiting_for_a_timeout(lost: float, at_least: float, seed: int) -> None:
    """Stock SCTP waits a second for each retransmission that is lost: 0.07 MB/s at a tenth, and 0.7 at 2 %."""
    line = Line(packets=1000, seed=seed, lost=lost).run()
    assert arrived(line) == list(range(1000))
    assert line.timeouts <= (1 if lost == 0.1 else 0)  # an acknowledgement or two may be lost at the very end
    assert line.sent < 1000 * (1 + 2 * lost) + 20
    assert line.speed_reached > at_least or line.timeouts


def test_on_a_path_without_routers_a_loss_without_a_queue_costs_little() -> None:
    ordinary, gentle = (Line(packets=10_000, lost=0.001, gentle=kind).run() for kind in (False, True))
    assert gentle.speed_reached > 1.5 * ordinary.speed_reached


def test_on_a_path_without_routers_too_a_full_queue_is_given_way_to() -> None:
    line = Line(packets=10_000, queue=40, speed=10e6, gentle=True).run()
    assert arrived(line) == list(range(10_000))
    assert line.sent < 1.02 * 10_000
    assert line.speed_reached > 0.8 * line.speed


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    lost=st.sampled_from([0.0, 0.01, 0.05, 0.3]),
    doubled=st.sampled_from([0.0, 0.1]),
    late=st.sampled_from([0.0, 0.05, 0.5]),
    batch=st.sampled_from([1, 4, 40]),
    queue=st.sampled_from([8, 1000]),
    gentle=st.booleans(),
)
def test_everything_arrives_in_order_whatever_happens(
    seed: int, lost: float, doubled: float, late: float, batch: int, queue: int, gentle: bool
) -> None:
    line = Line(packets=300, seed=seed, lost=lost, doubled=doubled, late=late, batch=batch, queue=queue, gentle=gentle).run()
    assert arrived(line) == list(range(300))
    assert line.flight.under_way == 0
    assert line.flight.expires_at is None


def test_a_path_that_reorders_is_learned_and_not_taken_for_one_that_loses() -> None:
    line = Line(packets=5000, late=0.1).run()
    assert line.sent < 1.1 * 5000
    assert Line(packets=5000, late=0.1, lost=0.01).run().timeouts == 0


def test_the_last_packets_are_asked_after_soon() -> None:
    line = Line(packets=20, eats=lambda number, time: number >= 17 and time == 1).run()
    assert line.timeouts == 0
    assert line.now < LEAST_RTO


def test_a_packet_that_is_lost_again_and_again_holds_up_nothing_but_itself() -> None:
    line = Line(packets=500, eats=lambda number, time: number == 50 and time <= 4).run()
    assert (line.timeouts, line.sent) == (0, 504)


def test_where_nothing_arrives_the_pace_slows_down() -> None:
    line = Line(packets=5, eats=lambda number, time: True).run(limit=60.0)
    assert 6 <= line.timeouts <= 9  # after 2, 4, 8, 16, 26, 36 seconds, and so on
    assert line.congestion.window == SIZE


def test_a_receiver_that_stood_still_is_not_taken_for_a_line_that_loses() -> None:
    line = Line(packets=3000, still=(0.1, 0.7), speed=20e6).run()
    assert arrived(line) == list(range(3000))
    assert line.timeouts == 1
    assert line.sent < 3000 + 20  # rather than half of them once more
    assert line.now < 0.7 + 3000 * SIZE / line.speed + 0.1


def test_a_peer_may_take_back_what_it_had_received() -> None:
    flight = Flight(FIRST_TSN, Congestion(SIZE), window=10**6)
    for _ in range(3):
        flight.add(b"packet", SIZE, 0.0)
    flight.acknowledge((FIRST_TSN, 10**6, [(2, 2)], []), 0.01)
    now = 0.01
    sent = 0
    while sent < 3:  # the third is asked for as well, though it was reported
        expires = flight.expires_at
        assert expires is not None
        now = max(now, expires)
        sent += len(flight.expire(now)) + len(flight.resend(now, most=10))
        assert now < 30


def test_the_window_of_the_peer_is_kept() -> None:
    line = Line(packets=500, window=10 * SIZE).run()
    assert line.most_under_way <= 10 * SIZE
    full = Line(packets=3, window=0).run()
    assert arrived(full) == [0, 1, 2]
    assert full.most_under_way == SIZE


def test_no_more_is_under_way_than_fits_a_socket_and_the_wire() -> None:
    near, far = (Line(packets=3000, delay=delay, speed=1e9).run() for delay in (0.0001, 0.02))
    assert near.most_under_way <= SOCKET_ROOM + SIZE
    assert SOCKET_ROOM < far.most_under_way <= 1 << 20


@pytest.mark.parametrize(
    "report",
    [
        (FIRST_TSN + 5, 0, [], []),
        (FIRST_TSN - 2, 0, [], []),
        ((FIRST_TSN + 2**31) % 2**32, 0, [], []),
    ],
)
def test_an_acknowledgement_of_what_was_never_sent_changes_nothing(report: tuple[int, int, list[tuple[int, int]], list[int]]) -> None:
    flight = Flight(FIRST_TSN, Congestion(SIZE), window=10**6)
    flight.add(b"packet", SIZE, 0.0)
    assert not flight.acknowledge(report, 1.0)
    assert flight.under_way == SIZE


@pytest.mark.parametrize("gaps", [[(0, 1)], [(3, 2)], [(1, 2), (1, 2)], [(1, 65535)], [(60000, 65535)]])
def test_gaps_that_nobody_means_do_no_harm(gaps: list[tuple[int, int]]) -> None:
    flight = Flight(FIRST_TSN, Congestion(SIZE), window=10**6)
    for _ in range(4):
        flight.add(b"packet", SIZE, 0.0)
    flight.acknowledge((FIRST_TSN - 1, 10**6, gaps, []), 0.01)
    assert 0 <= flight.under_way <= 4 * SIZE
    flight.acknowledge((FIRST_TSN + 3, 10**6, [], []), 0.02)
    assert flight.empty
    assert flight.under_way == 0


def test_a_path_that_rested_is_tried_anew() -> None:
    congestion = Congestion(SIZE)
    congestion.hear(0.01)
    for _ in range(100):
        congestion.grow(10 * SIZE)
    before = congestion.window
    congestion.rest(0.1)
    assert congestion.window == before
    congestion.rest(10.0)
    assert congestion.window == 4 * SIZE
