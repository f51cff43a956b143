"""Who is alive, how far away, and at which time."""

from __future__ import annotations

from p2pqueue.net.heartbeat import DEAD_AFTER, EVERY, Heartbeat


def test_it_asks_every_two_seconds_and_gives_up_after_six_of_silence() -> None:
    heartbeat, now, asked = Heartbeat(100.0), 100.0, []
    while not heartbeat.is_dead(now):
        if heartbeat.look(now) is not None:
            asked.append(now)
        now = heartbeat.next_due()
    assert asked == [100.0, 100.0 + EVERY, 100.0 + 2 * EVERY]
    assert now == 100.0 + DEAD_AFTER


def test_any_frame_proves_life() -> None:
    heartbeat = Heartbeat(0.0)
    for second in range(60):
        heartbeat.heard(float(second))
        heartbeat.look(float(second))
        assert not heartbeat.is_dead(float(second))


def test_a_process_that_slept_reads_first_what_has_come_meanwhile() -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.look(0.0)
    assert heartbeat.look(600.0) is not None  # it asks
    assert not heartbeat.is_dead(600.0)
    assert heartbeat.look(602.0) is not None
    assert heartbeat.is_dead(602.0)  # and gives up where nothing has come


def test_an_answer_tells_the_round_trip_and_the_others_clock() -> None:
    heartbeat = Heartbeat(0.0)
    assert (heartbeat.rtt, heartbeat.shortest_rtt, heartbeat.clock_offset) == (None, None, None)
    number = heartbeat.look(0.0)
    assert number is not None
    heartbeat.answered(number, now=0.5, their_wall=1000.0, wall=400.0)
    assert (heartbeat.rtt, heartbeat.clock_offset) == (0.5, 600.25)


def test_the_quickest_answer_tells_the_clock_and_the_distance_best() -> None:
    heartbeat = Heartbeat(0.0)
    for start, rtt, their in ((0.0, 1.0, 50.0), (2.0, 0.1, 10.0), (4.0, 0.9, 40.0)):
        number = heartbeat.look(start)
        assert number is not None
        heartbeat.answered(number, now=start + rtt, their_wall=their, wall=0.0)
    assert heartbeat.rtt is not None
    assert abs(heartbeat.rtt - 0.9) < 1e-9
    assert heartbeat.shortest_rtt is not None
    assert abs(heartbeat.shortest_rtt - 0.1) < 1e-9
    assert heartbeat.clock_offset is not None
    assert abs(heartbeat.clock_offset - 10.05) < 1e-9


def test_an_answer_to_nothing_or_for_the_second_time_is_ignored() -> None:
    heartbeat = Heartbeat(0.0)
    number = heartbeat.look(0.0)
    assert number is not None
    heartbeat.answered(77, now=1.0, their_wall=0.0, wall=0.0)
    assert heartbeat.rtt is None
    heartbeat.answered(number, now=1.0, their_wall=0.0, wall=0.0)
    heartbeat.answered(number, now=5.0, their_wall=9.0, wall=0.0)
    assert heartbeat.rtt == 1.0
