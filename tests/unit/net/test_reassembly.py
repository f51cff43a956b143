"""Messages come out whole and in order, whatever becomes of the packets that carry them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import MalformedMessage
from p2pqueue.net.webrtc.packets import FIRST, LAST, Fragment
from p2pqueue.net.webrtc.reassembly import FARTHEST, RANGES_LIMIT, Inbound

NEAR_THE_END = 2**32 - 5  # TSNs begin anew after it


def fragments(messages: list[list[bytes]], first: int) -> list[Fragment]:
    """The packets of these messages, each given by its pieces."""
    found = []
    for pieces in messages:
        for number, piece in enumerate(pieces):
            flags = (FIRST if number == 0 else 0) | (LAST if number == len(pieces) - 1 else 0)
            found.append(((first + len(found)) % 2**32, flags, 0, 53, piece))
    return found


messages = st.lists(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=5), min_size=1, max_size=8)


@given(messages, st.randoms(use_true_random=False), st.sampled_from([0, 1, NEAR_THE_END]))
def test_any_order_with_any_duplicates_gives_the_same_messages(pieces: list[list[bytes]], chance: object, first: int) -> None:
    sent = fragments(pieces, first)
    arriving = [*sent, *(fragment for fragment in sent if chance.random() < 0.3)]  # type: ignore[attr-defined]
    chance.shuffle(arriving)  # type: ignore[attr-defined]
    inbound = Inbound(first, limit=10_000)
    for fragment in arriving:
        inbound.take(fragment)
    assert inbound.messages == [(0, 53, b"".join(parts)) for parts in pieces]
    assert inbound.next == first + len(sent)
    assert not inbound.has_gaps
    assert inbound.held == 0


@given(st.sets(st.integers(0, 40), max_size=40), st.randoms(use_true_random=False))
def test_the_gaps_are_exactly_what_is_missing(come: set[int], chance: object) -> None:
    sent = fragments([[b"x"]] * 41, NEAR_THE_END)
    inbound = Inbound(NEAR_THE_END, limit=10_000)
    order = sorted(come)
    chance.shuffle(order)  # type: ignore[attr-defined]
    for number in order:
        inbound.take(sent[number])
    last = inbound.next - NEAR_THE_END - 1
    told = {last + place for first, end in inbound.gaps() for place in range(first, end + 1)}
    assert told | set(range(last + 1)) == come
    assert all(end < first - 1 for (_, end), (first, _) in zip(inbound.gaps(), inbound.gaps()[1:], strict=False))


def test_what_comes_twice_is_reported_once_for_each_time() -> None:
    inbound = Inbound(10, limit=100)
    for fragment in [*fragments([[b"x"]], 10) * 3, *fragments([[b"y"]], 15) * 2]:
        inbound.take(fragment)
    assert inbound.duplicates == [10, 10, 15]


def test_what_is_too_far_ahead_is_dropped() -> None:
    inbound = Inbound(10, limit=100)
    inbound.take((10 + FARTHEST + 1, FIRST | LAST, 0, 53, b"x"))
    assert not inbound.has_gaps


def test_what_comes_early_is_held_only_up_to_the_limit() -> None:
    inbound = Inbound(0, limit=100)
    for tsn in range(1, 50):
        inbound.take((tsn, FIRST | LAST, 0, 53, bytes(30)))
    assert inbound.held <= 100
    for tsn in range(50):
        inbound.take((tsn, FIRST | LAST, 0, 53, bytes(30)))
    assert len(inbound.messages) == 50


def test_countless_gaps_cost_no_more_than_a_thousand() -> None:
    inbound = Inbound(0, limit=10**6)
    for tsn in range(2, 6000, 2):
        inbound.take((tsn, FIRST | LAST, 0, 53, b"x"))
    assert len(inbound.gaps()) == RANGES_LIMIT == inbound.held
    for tsn in range(6000):
        inbound.take((tsn, FIRST | LAST, 0, 53, b"x"))
    assert (len(inbound.messages), inbound.held) == (6000, 0)


@pytest.mark.parametrize(
    "flags",
    [
        [0],
        [LAST],
        [FIRST, FIRST],
        [FIRST, FIRST | LAST],
        [FIRST | LAST, 0],
        [FIRST] + [0] * 20,
    ],
    ids=["middle first", "end first", "two beginnings", "a whole one inside", "a middle after the end", "without end"],
)
def test_fragments_that_belong_to_nothing_are_a_fault_of_the_peer(flags: list[int]) -> None:
    with pytest.raises(MalformedMessage):
        _take_all(flags)


def _take_all(flags: list[int]) -> None:
    inbound = Inbound(0, limit=100)
    for tsn, flag in enumerate(flags):
        inbound.take((tsn, flag, 0, 53, bytes(10)))
