"""However many runs of numbers are held, what is told of them fits into a message, and the highest are told."""

from __future__ import annotations

import pytest

from p2pqueue import wire
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.syncing.messages import MAX_RUNS, Heads, RoundId
from p2pqueue.replica.wire.codec import decode, encode
from p2pqueue.replica.write import Head


@pytest.mark.parametrize("authors", [1, 3, 40])
@pytest.mark.parametrize("step", [2, 1 << 20, 1 << 40])
def test_the_highest_runs_are_told_and_the_message_stays_within_its_limit(authors: int, step: int) -> None:
    runs = 2 * MAX_RUNS // authors
    held = {bytes([number]) * 16: Spans.of_sorted(range(10, 10 + step * runs, step)) for number in range(authors)}
    heads = {author: Head(5, b"tag") for author in held}
    data = encode(Heads(RoundId(b"r" * 8, 1), None, heads, held))
    assert len(data) < wire.MESSAGE_LIMIT
    message = decode(data)
    assert isinstance(message, Heads)
    for author, spans in held.items():
        told = list(message.held[author])
        assert told == list(spans)[-len(told) :]
        assert len(told) > runs // 40


def test_runs_that_touch_are_told_as_one() -> None:
    held = {b"a" * 16: Spans([(1, 3), (6, 9)])}
    message = decode(encode(Heads(RoundId(b"r" * 8, 1), None, {b"a" * 16: Head(2, b"")}, held)))
    assert isinstance(message, Heads)
    assert list(message.held[b"a" * 16]) == [(3, 3), (6, 9)]
