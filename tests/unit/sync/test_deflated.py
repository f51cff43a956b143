"""Many writes travel deflated to whoever inflates them, and what inflates to no message is not taken in."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack
import pytest

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import Heads, RoundId, Writes
from p2pqueue.replica.wire.codec import DEFLATED_FROM, decode, encode
from p2pqueue.replica.write import Write

ROUND = RoundId(b"r" * 8, 1)
STAMP = Stamp(0, 0, 0, 1 << 40, b"a" * 16)


def message_of(count: int) -> Writes:
    return Writes(ROUND, b"s" * 8, 1, tuple(Write("jobs", f"key {seq}", "tune", STAMP, seq, ("title", 1)) for seq in range(1, count + 1)))


def with_deflated(deflated: Any) -> bytes:
    fields = msgpack.unpackb(encode(message_of(DEFLATED_FROM), deflate=True))
    packed: bytes = msgpack.packb({**fields, "z": deflated})
    return packed


def test_many_writes_take_a_fraction_of_the_bytes_and_arrive_as_they_were() -> None:
    message = message_of(4 * DEFLATED_FROM)
    deflated = encode(message, deflate=True)
    assert len(deflated) < len(encode(message)) / 2
    assert decode(deflated) == decode(encode(message)) == message


def test_few_writes_travel_as_they_are() -> None:
    message = message_of(DEFLATED_FROM - 1)
    assert encode(message, deflate=True) == encode(message)


def test_a_peer_says_in_its_heads_whether_it_inflates() -> None:
    heads = Heads(ROUND, None, {})
    assert decode(encode(heads)) == heads
    said = msgpack.unpackb(encode(heads))
    del said["z"]
    older = decode(msgpack.packb(said))
    assert isinstance(older, Heads)
    assert not older.inflates


@pytest.mark.parametrize(
    "deflated",
    [
        b"", b"no zlib", None, 7, "text",
        zlib.compress(msgpack.packb([[], []]))[:-1],
        zlib.compress(msgpack.packb([[], []])) + b"more",
        zlib.compress(msgpack.packb([[]])),
        zlib.compress(msgpack.packb([[], 7])),
        zlib.compress(bytes(wire.MESSAGE_LIMIT + 1)),
        zlib.compress(msgpack.packb([[], [b"x" * wire.MESSAGE_LIMIT]])),
    ],
)  # fmt: skip
def test_what_inflates_to_no_writes_is_refused(deflated: Any) -> None:
    with pytest.raises(MalformedMessage):
        decode(with_deflated(deflated))
