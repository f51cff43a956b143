"""A sender never goes beyond what was granted, never waits for nothing, and notices a stall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import MalformedMessage
from p2pqueue.net.webrtc.credits import STALL_AFTER, Incoming, Outgoing

WINDOW = 4 * 1024 * 1024
FRAME = 64 * 1024


@given(st.lists(st.tuples(st.integers(1, FRAME), st.booleans()), max_size=400))
def test_whatever_the_order_nothing_is_lost_and_no_more_than_the_window_lies_around(steps: list[tuple[int, bool]]) -> None:
    outgoing, incoming = Outgoing(WINDOW), Incoming(WINDOW)
    for size, processes in steps:
        if outgoing.credit >= size:
            outgoing.note_sent(size, 0.0)
            incoming.note_arrived(size)
        if processes:
            incoming.give_back(size * 2)
        if incoming.must_tell():
            outgoing.note_told(*incoming.tell(), 0.0)
        assert incoming.arrived - incoming.given_back <= WINDOW
        assert outgoing.credit >= 0


@given(st.integers(1, FRAME), st.integers(1, 200))
def test_a_receiver_that_gives_everything_back_never_leaves_the_sender_waiting(size: int, count: int) -> None:
    outgoing, incoming = Outgoing(WINDOW), Incoming(WINDOW)
    for _ in range(count):
        assert outgoing.credit >= size
        outgoing.note_sent(size, 0.0)
        incoming.note_arrived(size)
        incoming.give_back(size)
        if incoming.must_tell():
            outgoing.note_told(*incoming.tell(), 0.0)


def test_more_than_was_granted_is_refused() -> None:
    incoming = Incoming(100)
    incoming.note_arrived(100)
    with pytest.raises(MalformedMessage, match="granted"):
        incoming.note_arrived(1)


def test_giving_back_more_than_came_grants_no_more() -> None:
    incoming = Incoming(100)
    incoming.note_arrived(10)
    incoming.give_back(50)
    assert incoming.granted == 110


@pytest.mark.parametrize(("arrived", "granted"), [(11, 100), (-1, 100), (0, 99)])
def test_totals_that_can_not_be_are_refused(arrived: int, granted: int) -> None:
    outgoing = Outgoing(100)
    outgoing.note_sent(10, 0.0)
    with pytest.raises(MalformedMessage):
        outgoing.note_told(arrived, granted, 1.0)


def test_a_stall_is_counted_from_the_last_thing_that_arrived() -> None:
    outgoing = Outgoing(100)
    assert outgoing.stalls_at() is None
    outgoing.note_sent(10, 5.0)
    outgoing.note_sent(10, 7.0)
    assert outgoing.stalls_at() == 5.0 + STALL_AFTER
    outgoing.note_told(10, 100, 8.0)
    assert outgoing.stalls_at() == 8.0 + STALL_AFTER
    outgoing.note_told(10, 200, 9.0)
    assert outgoing.stalls_at() == 8.0 + STALL_AFTER
    outgoing.note_told(20, 200, 10.0)
    assert outgoing.stalls_at() is None
