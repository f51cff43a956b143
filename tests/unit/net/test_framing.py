"""Messages in frames, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import MalformedMessage
from p2pqueue.net.framing import PIECE_LIMIT, TOPICS, Assembler, Topic, split
from p2pqueue.net.sealing import TAG_SIZE
from p2pqueue.wire import FRAME_LIMIT, MESSAGE_LIMIT

topics = st.sampled_from(TOPICS)


@pytest.mark.parametrize("size", [0, 1, PIECE_LIMIT - 1, PIECE_LIMIT, PIECE_LIMIT + 1, 2 * PIECE_LIMIT, MESSAGE_LIMIT])
def test_a_message_of_any_size_comes_back(size: int) -> None:
    message, assembler = bytes(size), Assembler()
    frames = list(split("rows", message))
    assert max(map(len, frames)) + TAG_SIZE <= FRAME_LIMIT
    assert [assembler.take(frame) for frame in frames] == [None] * (len(frames) - 1) + [("rows", message)]


def test_a_message_beyond_the_limit_is_neither_sent_nor_taken() -> None:
    with pytest.raises(MalformedMessage):
        list(split("rows", bytes(MESSAGE_LIMIT + 1)))
    assembler, head = Assembler(), next(split("rows", bytes(MESSAGE_LIMIT)))
    for _ in range(MESSAGE_LIMIT // PIECE_LIMIT):
        assembler.take(head)
    with pytest.raises(MalformedMessage, match="beyond"):
        assembler.take(head)


def test_a_signal_passes_between_the_frames_of_a_long_answer() -> None:
    assembler = Assembler()
    first, *rest = split("rows", b"r" * 3 * PIECE_LIMIT)
    assert assembler.take(first) is None
    assert assembler.take(next(split("signal", b"now"))) == ("signal", b"now")
    assert [assembler.take(frame) for frame in rest][-1] == ("rows", b"r" * 3 * PIECE_LIMIT)


def test_a_topic_of_a_later_version_is_passed_over_where_it_is_short() -> None:
    assert Assembler().take(b"\x55what?") == (None, b"what?")
    with pytest.raises(MalformedMessage):  # a long one would have to be kept somewhere
        Assembler().take(b"\xd5what?")


def test_frames_without_content_dont_go_on_for_ever() -> None:
    assembler = Assembler()
    assembler.take(b"\x80a")
    with pytest.raises(MalformedMessage):
        assembler.take(b"\x80")
    with pytest.raises(MalformedMessage):
        Assembler().take(b"")


@given(st.lists(st.tuples(topics, st.integers(0, 3 * PIECE_LIMIT)), max_size=4), st.randoms(use_true_random=False))
def test_messages_of_several_topics_may_interleave_in_any_way(messages: list[tuple[Topic, int]], random: object) -> None:
    queues: dict[Topic, list[bytes]] = {}
    for topic, size in messages:
        queues.setdefault(topic, []).extend(split(topic, b"m" * size))
    assembler, got = Assembler(), []
    while any(queues.values()):
        topic = random.choice([topic for topic, frames in queues.items() if frames])  # type: ignore[attr-defined]
        if (taken := assembler.take(queues[topic].pop(0))) is not None:
            got.append((taken[0], len(taken[1])))
    for topic in queues:
        assert [size for kind, size in got if kind == topic] == [size for kind, size in messages if kind == topic]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_any_frames_are_taken_or_refused_within_bounds(frames: list[bytes]) -> None:
    assembler = Assembler()
    try:
        for frame in frames:
            taken = assembler.take(frame)
            assert taken is None or len(taken[1]) <= MESSAGE_LIMIT
    except MalformedMessage:
        pass
