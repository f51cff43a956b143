"""Sets of numbers, stamps and messages keep their laws for whatever hypothesis thinks of."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.clock import LATEST_STAMP
from p2pqueue.errors import MalformedMessage
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.spans import Spans, from_run_lengths, run_lengths
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import (
    BUCKETS,
    HASH_BYTES,
    Ack,
    Again,
    Bucket,
    Digest,
    Done,
    Ended,
    Heads,
    Mend,
    Message,
    More,
    Refusal,
    Refused,
    RoundId,
    RowId,
    Rows,
    Writes,
)
from p2pqueue.replica.wire.codec import decode, encode
from p2pqueue.replica.write import Head, Write
from tests.simulation.frames import Frames

RUNS = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))))
AUTHORS = st.sampled_from([bytes([number]) * 16 for number in (0, 1, 127, 128, 255)])
STAMPS = st.builds(
    Stamp,
    st.integers(0, 1 << 20) | st.sampled_from([0, 1, 65_536]),
    st.integers(0, 3),
    st.integers(0, 5),
    (st.integers(1, LATEST_STAMP) | st.integers(1, 3)).flatmap(lambda hlc: st.sampled_from([hlc, -hlc])),
    AUTHORS,
)
NUMBERS = st.integers(1, (1 << 62) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
VALUES = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | TEXTS | st.binary(max_size=40)
PLAIN = st.builds(
    Write, NAMES, NAMES, NAMES, STAMPS, NUMBERS, st.lists(VALUES, max_size=4).map(tuple), st.none(), st.none(), st.just(False)
)
SIGNED = st.builds(
    lambda write, signature: write._replace(body=body_of(*write[:6]), signature=signature), PLAIN, st.binary(min_size=64, max_size=64)
)
WRITES = PLAIN | SIGNED
HEADS = st.dictionaries(AUTHORS, st.builds(Head, st.integers(0, 1 << 40), st.binary(min_size=8, max_size=8)), max_size=4)
ROUNDS = st.builds(RoundId, st.binary(min_size=8, max_size=8), st.integers(0, 1 << 30))
SESSIONS = st.binary(min_size=8, max_size=8)
ROWS = st.lists(st.builds(RowId, TEXTS, TEXTS, AUTHORS, NUMBERS), max_size=4).map(tuple)
REFUSALS = st.lists(st.builds(Refusal, AUTHORS, NUMBERS, TEXTS), max_size=3).map(tuple)
BUCKET = st.builds(Bucket, TEXTS, st.integers(0, BUCKETS - 1))
SOME_WRITES = st.lists(WRITES, max_size=4).map(tuple)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Writes, ROUNDS, SESSIONS, NUMBERS, SOME_WRITES),
    st.builds(Ack, ROUNDS, RUNS.map(Spans)),
    st.builds(Done, ROUNDS, SESSIONS, NUMBERS, HEADS),
    st.builds(Refused, ROUNDS, REFUSALS),
    st.builds(Again, ROUNDS),
    st.builds(Rows, ROUNDS, ROWS),
    st.builds(Ended, ROUNDS, ROWS, st.booleans()),
    st.builds(Digest, HEADS, SESSIONS, st.dictionaries(TEXTS, st.just(b"x" * BUCKETS * HASH_BYTES), max_size=2)),
    st.builds(Mend, BUCKET, SOME_WRITES, st.booleans(), st.none() | TEXTS),
    st.builds(More, BUCKET, st.none() | TEXTS),
    st.builds(
        Heads,
        ROUNDS,
        st.none() | ROUNDS,
        HEADS,
        marks=st.dictionaries(AUTHORS, st.dictionaries(NUMBERS, st.integers(0, 1 << 32)), max_size=2),
    ),
)


@given(RUNS)
def test_spans_are_the_set_of_their_numbers(runs: list[tuple[int, int]]) -> None:
    spans = Spans(runs)
    numbers = {number for first, last in runs for number in range(first, last + 1)}
    assert {number for first, last in spans for number in range(first, last + 1)} == numbers
    assert all((number in spans) == (number in numbers) for number in range(220))
    assert all(second[0] > first[1] + 1 for first, second in zip(list(spans), list(spans)[1:], strict=False))
    assert spans.highest == max(numbers, default=0)
    missing = next(number for number in range(1, 1000) if number not in numbers)
    assert spans.first_missing() == missing


@given(RUNS, st.integers(0, 220))
def test_gaps_and_numbers_make_up_all(runs: list[tuple[int, int]], above: int) -> None:
    spans = Spans(runs)
    gaps = [number for first, last in spans.gaps(above) for number in range(first, last + 1)]
    assert sorted(gaps) == [number for number in range(above + 1, spans.highest + 1) if number not in spans]
    spans.forget_to(above)
    assert all(first > above for first, _ in spans)


@given(RUNS, st.integers(0, 50))
def test_run_lengths_bring_back_what_is_above(runs: list[tuple[int, int]], above: int) -> None:
    spans = Spans(runs)
    spans.forget_to(above)
    assert from_run_lengths(run_lengths(spans, above, limit=10_000), above) == spans


@given(st.lists(STAMPS, min_size=2, max_size=8))
def test_stamps_order_alike_in_python_and_in_sql(stamps: list[Stamp]) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE s (generation INTEGER, rank INTEGER, claim INTEGER, hlc INTEGER, author BLOB)")
    connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?)", stamps)
    ordered = connection.execute("SELECT * FROM s ORDER BY generation, rank, claim, hlc, author").fetchall()
    assert [Stamp(*row) for row in ordered] == sorted(stamps)
    one, two = stamps[:2]
    (less,) = connection.execute("SELECT (?, ?, ?, ?, ?) < (?, ?, ?, ?, ?)", (*one, *two)).fetchone()
    assert bool(less) == (one < two)
    connection.close()


@given(MESSAGES)
def test_a_message_survives_the_wire(message: Message) -> None:
    assert decode(encode(message)) == message


@given(MESSAGES, st.data())
def test_damaged_bytes_are_refused_in_words_or_mean_something(message: Message, data: st.DataObject) -> None:
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(raw))
    except MalformedMessage:
        pass


@given(
    st.recursive(
        VALUES | st.booleans(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
    )
)
def test_anything_that_is_no_message_is_refused_in_words(value: Any) -> None:
    for kind in ("heads", "writes", "ack", "done", "refused", "again", "rows", "ended", "digest", "mend", "more"):
        raw = msgpack.packb({"k": kind, "r": value, "w": value, "h": value, "a": value, "i": value, "b": value, "c": value, "s": value})
        try:
            decode(raw)
        except MalformedMessage:
            pass


def test_unknown_kinds_and_keys_are_ignored() -> None:
    assert decode(msgpack.packb({"k": "dance", "steps": 3})) is None
    known = msgpack.unpackb(encode(Again(RoundId(b"12345678", 4))))
    assert decode(msgpack.packb({**known, "new": [1, {"deep": 2}]})) == Again(RoundId(b"12345678", 4))


@given(st.binary(min_size=1, max_size=300), st.integers(1, 800), st.randoms())
def test_a_large_message_comes_in_frames_in_any_order_and_twice(seed: bytes, times: int, rng: Any) -> None:
    message = b"no part of one" + seed * times
    sender, receiver = Frames(), Frames()
    frames = sender.split(message) * 2
    rng.shuffle(frames)
    found = [whole for whole in map(receiver.join, frames) if whole is not None]
    assert found
    assert set(found) == {message}


def test_parts_of_two_messages_never_mix() -> None:
    one, two = (bytes([number]) * 70_000 for number in (1, 2))
    sender, receiver = Frames(), Frames()
    first, second = sender.split(one), sender.split(two)
    assert receiver.join(first[0]) is None
    assert receiver.join(second[1]) is None
    assert receiver.join(second[0]) == two
    assert receiver.join(first[1]) == one


def test_a_frame_beyond_the_limit_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        Frames().join(b"x" * 70_000)
