"""How does a message become frames, and frames a message again?

A frame begins with a byte: the number of its topic, and a bit that says whether more of the message follows. Messages of
one topic come one after another; those of different topics may interleave, so that a signal never waits for the
rest of a long answer. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, cast, get_args

from p2pqueue.errors import MalformedMessage
from p2pqueue.wire import FRAME_LIMIT, MESSAGE_LIMIT

Topic = Literal["rows", "signal", "shards", "net"]

TOPICS: Final = cast(tuple[Topic, ...], get_args(Topic))
NUMBERS: Final = {topic: number for number, topic in enumerate(TOPICS)}
PIECE_LIMIT = FRAME_LIMIT - 32  # bytes of a message in one frame; the topic, a tag and a header go with it

_MORE = 0x80
_HEADS: Final = {topic: bytes([number]) for topic, number in NUMBERS.items()}
_HEADS_MORE: Final = {topic: bytes([number | _MORE]) for topic, number in NUMBERS.items()}
_BY_HEAD: Final = dict(enumerate(TOPICS))


def split(topic: Topic, message: bytes) -> Iterator[bytes]:
    """The frames of a message. Raises `MalformedMessage` beyond `MESSAGE_LIMIT`: nobody would accept it."""
    size = len(message)
    if size > MESSAGE_LIMIT:
        raise MalformedMessage(f"a message of {size} bytes, where at most {MESSAGE_LIMIT} are sent")
    if size <= PIECE_LIMIT:
        yield _HEADS[topic] + message
        return
    last = (size - 1) // PIECE_LIMIT * PIECE_LIMIT
    for start in range(0, last, PIECE_LIMIT):
        yield _HEADS_MORE[topic] + message[start : start + PIECE_LIMIT]
    yield _HEADS[topic] + message[last:]


class Assembler:
    """Puts the messages of one connection together again, and holds at most `MESSAGE_LIMIT` bytes of each topic."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}

    def take(self, frame: bytes) -> tuple[Topic | None, bytes] | None:
        """The message that this frame completes; its topic is None where this version doesn't know it.

        Raises `MalformedMessage` for an empty frame and for a message beyond the limit.
        """
        if not frame:
            raise MalformedMessage("an empty frame")
        head = frame[0]
        number = head & ~_MORE
        begun = self._pieces.get(number)
        if begun is None and not head & _MORE:
            return _BY_HEAD.get(number), frame[1:]
        if begun is None:
            if number not in _BY_HEAD:
                raise MalformedMessage(f"a long message of the unknown topic {number}")
            begun = self._pieces[number] = bytearray()
        elif head & _MORE and len(frame) == 1:
            raise MalformedMessage("a frame without content in a message")
        begun += memoryview(frame)[1:]
        if len(begun) > MESSAGE_LIMIT:
            raise MalformedMessage(f"a message beyond {MESSAGE_LIMIT} bytes")
        if head & _MORE:
            return None
        del self._pieces[number]
        return _BY_HEAD.get(number), bytes(begun)
