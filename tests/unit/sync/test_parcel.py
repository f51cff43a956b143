"""Writes survive the way over the wire, and what no honest device packs is not taken in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import pytest

from p2pqueue.errors import MalformedMessage
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import MAX_WRITES, RoundId, Writes
from p2pqueue.replica.wire.checks import KEY_LIMIT, SEQ_LIMIT
from p2pqueue.replica.wire.codec import decode, encode
from p2pqueue.replica.wire.columns import WellFormed
from p2pqueue.replica.wire.parcel import pack_writes, unpack_writes
from p2pqueue.replica.write import Write

AUTHOR, OTHER = b"a" * 16, b"b" * 16
STAMP = Stamp(0, 0, 0, 1 << 40, AUTHOR)
PLAIN = Write("jobs", "k", "tune", STAMP, 1, ("title", 1, 0.5, None, b"x"))
UNREAD = Write("jobs", "k", "of the future", STAMP, 2, (), b"\x91\x01")
FIELDS: dict[str, int] = {
    "table": 0, "key": 1, "register": 2, "generation": 3, "rank": 4, "claim": 5, "hlc": 6, "author": 7, "seq": 8, "values": 9, "body": 10,
}  # fmt: skip


def signed(values: Any = ("x", None), *, author: Any = AUTHOR, seq: Any = 3, key: Any = "k", signature: bytes = b"s" * 64) -> Write:
    stamp = Stamp(0, 0, 0, -(1 << 40), author)
    return Write("jobs", key, "spec", stamp, seq, tuple(values), body_of("jobs", key, "spec", stamp, seq, values), signature)


def carried(writes: tuple[Write, ...], holds: Callable[[bytes, bytes, bytes], bool] | None = None) -> tuple[Write, ...]:
    message = decode(encode(Writes(RoundId(b"r" * 8, 1), b"s" * 8, 1, writes)), holds=holds)
    assert isinstance(message, Writes)
    return message.writes


def test_writes_of_every_kind_arrive_as_they_were_and_in_their_order() -> None:
    writes = (signed(), PLAIN, UNREAD, PLAIN._replace(stamp=STAMP._replace(author=OTHER)), signed(seq=4))
    assert carried(writes) == writes
    assert carried(()) == ()


def test_what_has_passed_is_known_as_well_formed_and_nothing_else_is() -> None:
    assert isinstance(carried((signed(), PLAIN)), WellFormed)
    assert not isinstance(carried((signed(), PLAIN))[:1], WellFormed)


def test_a_signed_write_is_said_by_its_body_alone() -> None:
    write = signed()
    authors, packed = pack_writes([write._replace(values=())])
    assert (authors, packed) == ([], [(write.body, write.signature)])


def test_signatures_are_checked_where_somebody_can() -> None:
    good, bad = signed(), signed(seq=4)
    asked = []

    def holds(authors: Sequence[bytes], bodies: Sequence[bytes], signatures: Sequence[bytes]) -> list[bool]:
        asked.extend(zip(authors, bodies, signatures, strict=True))
        return [body == good.body for body in bodies]

    assert [write.checked for write in carried((good, PLAIN, bad), holds)] == [True, False, False]
    assert asked == [(AUTHOR, good.body, good.signature), (AUTHOR, bad.body, bad.signature)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("table", ""), ("table", "t" * 64), ("table", 1), ("table", None), ("table", ["t"]), ("key", ""), ("key", "a\0b"),
        ("key", "k" * (KEY_LIMIT + 1)),
        ("key", b"k"), ("register", ""), ("register", 7), ("generation", -1), ("generation", 1 << 48), ("generation", True),
        ("generation", "0"), ("rank", 4), ("rank", 0.0), ("claim", -1), ("claim", 1 << 48), ("hlc", 0), ("hlc", 1 << 62), ("hlc", None),
        ("author", 1), ("author", -1), ("author", True), ("author", None), ("seq", 0), ("seq", SEQ_LIMIT), ("seq", True), ("seq", 1.0),
        ("values", None), ("values", "text"), ("values", {"a": 1}), ("values", [[1]]), ("values", [{}]), ("values", [True]),
        ("values", [float("nan")]), ("values", [1 << 63]), ("values", [None] * 257), ("body", 7), ("body", "text"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_write_with_an_odd_part_spoils_its_message(field: str, value: Any) -> None:
    entry = [*PLAIN[:3], *STAMP[:4], 0, 1, list(PLAIN.values), None]
    good = list(entry)
    entry[FIELDS[field]] = value
    for packed in ([entry], [good, entry], [entry, good]):
        with pytest.raises(MalformedMessage):
            decode(msgpack.packb({"k": "writes", "r": [b"r" * 8, 1], "s": b"s" * 8, "i": 1, "a": [AUTHOR], "w": packed}))


@pytest.mark.parametrize(
    "entry",
    [
        [b"\x01", b"s" * 64],
        [b"", b"s" * 64],
        [b"\x96" + b"\xc0" * 6, b"s" * 64],
        ["text", b"s" * 64],
        [signed().body, b"short"],
        [signed().body, None],
        [signed(author=b"short").body, b"s" * 64],
        [signed(seq=0).body, b"s" * 64],
        [signed(key="").body, b"s" * 64],
        [msgpack.packb(["jobs", "k", "spec", list(STAMP), 1, "values"]), b"s" * 64],
        [msgpack.packb(["jobs", "k", "spec", list(STAMP), 1, [None] * 257]), b"s" * 64],
        [msgpack.packb(["jobs", "k", "spec", list(STAMP), 1, []])[:-1] + b"\x91" + b"\x91" * 200 + b"\x01", b"s" * 64],
        [],
        [1],
        [1, 2, 3],
        7,
        "text",
        {"a": 1, "b": 2},
        None,
    ],
    ids=repr,
)
def test_an_entry_that_is_neither_plain_nor_signed_spoils_its_message(entry: Any) -> None:
    with pytest.raises(MalformedMessage):
        decode(msgpack.packb({"k": "writes", "r": [b"r" * 8, 1], "s": b"s" * 8, "i": 1, "a": [AUTHOR], "w": [entry]}))


def test_no_message_holds_more_writes_or_authors_than_are_allowed() -> None:
    authors, packed = pack_writes([PLAIN] * MAX_WRITES)
    assert len(unpack_writes(authors, [list(entry[:9]) + [list(entry[9])] for entry in packed])) == MAX_WRITES
    with pytest.raises(ValueError, match="at most"):
        unpack_writes([AUTHOR] * (MAX_WRITES + 1), [])
    with pytest.raises(ValueError, match="at most"):
        unpack_writes([AUTHOR], [None] * (MAX_WRITES + 1))
