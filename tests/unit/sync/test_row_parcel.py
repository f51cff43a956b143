"""Rows with the same registers survive the way column by column, and what no honest device packs is not taken in."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import MalformedMessage
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import MAX_WRITES, RoundId, Writes
from p2pqueue.replica.wire.codec import DEFLATED_FROM, decode, encode
from p2pqueue.replica.wire.columns import AlikeRows, RegisterColumns, WellFormed, authors_of, join, keys_of, numbers_of, tables_of
from p2pqueue.replica.write import Write
from p2pqueue.wire import MESSAGE_LIMIT

AUTHOR, OTHER = b"a" * 16, b"b" * 16
ROUND = RoundId(b"r" * 8, 1)

Holds = Callable[[bytes, bytes, bytes], bool]


def row(number: int, *, title: Any = "title", author: bytes = AUTHOR, table: str = "jobs") -> list[Write]:
    """A signed register and two plain ones."""
    key = f"key-{number:05}"
    stamp, seq, values = Stamp(0, 0, 0, -(1 << 40) - number, author), 3 * number + 1, ("echo", None, 0.5, number)
    signed = Write(table, key, "spec", stamp, seq, values, body_of(table, key, "spec", stamp, seq, values), b"s" * 64)
    later = stamp._replace(hlc=-stamp.hlc)
    state = Write(table, key, "state", later._replace(claim=2), seq + 2, ("queued", None))
    return [signed, Write(table, key, "tune", later, seq + 1, (title, 1)), state]


def rows(count: int, **odd: Any) -> list[Write]:
    return [write for number in range(count, 0, -1) for write in row(number, **odd)]


def together(writes: Sequence[Write]) -> AlikeRows:
    """Rows of the same registers, column by column."""
    by_row = [list(of_row) for _, of_row in groupby(writes, lambda write: write.key)]
    registers = []
    for column in zip(*by_row, strict=True):
        _, _, names, stamps, seqs, values, bodies, signatures, _ = zip(*column, strict=True)
        generations, ranks, claims, hlcs, authors = zip(*stamps, strict=True)
        made = RegisterColumns(names[0], (generations, ranks, claims, hlcs, authors), seqs, tuple(zip(*values, strict=True)))
        proven = made._replace(bodies=bodies, signatures=signatures, checked=[False] * len(by_row))
        registers.append(made if bodies[0] is None else proven)
    return AlikeRows(writes[0].table, [of_row[0].key for of_row in by_row], tuple(registers))


def carried(writes: WellFormed | AlikeRows, holds: Holds | None = None) -> WellFormed:
    writes = WellFormed((), [writes]) if isinstance(writes, AlikeRows) else writes
    message = decode(encode(Writes(ROUND, b"s" * 8, 1, writes), deflate=True), holds=holds)
    assert isinstance(message, Writes)
    assert isinstance(message.writes, WellFormed)
    return message.writes


def test_rows_arrive_as_they_were_sent_and_none_of_their_writes_goes_alone() -> None:
    found = carried(together(rows(50)))
    assert found == tuple(rows(50))
    assert found.single == ()
    assert [(each.table, len(each.keys), len(each.registers)) for each in found.alike] == [("jobs", 50, 3)]
    assert len(found) == 150
    assert found[149] == rows(50)[149]


def test_what_the_writes_have_in_common_is_known_without_making_them() -> None:
    writes = [*rows(20), *rows(25, author=OTHER, table="runs"), *row(99, table="devices")]
    found = carried(WellFormed(writes[-3:], [together(writes[:60]), together(writes[60:-3])]))
    for ask in (tables_of, keys_of, authors_of):
        assert ask(found) == ask(writes)
    assert {author: sorted(numbers) for author, numbers in numbers_of(found).items()} == {
        author: sorted(numbers) for author, numbers in numbers_of(writes).items()
    }
    assert found.of_table("runs") == tuple(rows(25, author=OTHER, table="runs"))


CELLS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5)
WRITES = st.lists(
    st.tuples(
        st.integers(1, 1 << 40),
        st.integers(0, 3),
        st.integers(1, 1 << 50),
        st.sampled_from([AUTHOR, OTHER]),
        st.lists(CELLS, min_size=2, max_size=2),
    ),
    min_size=DEFLATED_FROM,
    max_size=80,
)


@given(WRITES)
def test_whatever_their_values_are_they_arrive_with_the_same_bits(entries: list[Any]) -> None:
    writes = [
        Write("jobs", f"k{place}", "tune", Stamp(0, rank, 0, time, author), seq, tuple(values))
        for place, (seq, rank, time, author, values) in enumerate(entries)
    ]
    assert [msgpack.packb(write) for write in carried(together(writes))] == [msgpack.packb(write) for write in writes]


@pytest.mark.parametrize("column", [[1, 1.0], [0.0, -0.0], [1, 0.0], ["", b""], [None, 0]], ids=repr)
def test_values_that_are_equal_and_not_the_same_are_kept_apart(column: list[Any]) -> None:
    writes = [write for number in range(1, 41) for write in row(number, title=column[number % 2])]
    assert [repr(write.values) for write in carried(together(writes))] == [repr(write.values) for write in writes]


def test_signatures_are_checked_over_the_bodies_that_were_signed() -> None:
    writes = rows(30)
    signed = {write.body: write.key for write in writes if write.body is not None}

    def holds(authors: Sequence[bytes], bodies: Sequence[bytes], signatures: Sequence[bytes]) -> list[bool]:
        assert {*zip(authors, signatures, strict=True)} == {(AUTHOR, b"s" * 64)}
        return [signed[body] != "key-00007" for body in bodies]

    found = carried(together(writes), holds)
    assert {write.key for write in found if write.signature and not write.checked} == {"key-00007"}
    assert not any(write.checked for write in found if not write.signature)


def test_rows_of_several_messages_are_joined_where_they_have_the_same_registers() -> None:
    first, second, third = (carried(together(each)) for each in (rows(30), rows(40)[-60:], rows(20, table="runs")))
    joined = join([*first.alike, *third.alike, *second.alike])
    assert [len(each.keys) for each in joined] == [50, 20]
    assert set(WellFormed((), joined)) == {*first, *second, *third}


def packed_rows() -> list[Any]:
    """A message as it is packed: authors, single writes, rows."""
    fields = msgpack.unpackb(encode(Writes(ROUND, b"s" * 8, 1, WellFormed((), [together(rows(20))])), deflate=True))
    found: list[Any] = msgpack.unpackb(zlib.decompress(fields["z"]))
    return found


def taken(packed: Any) -> object:
    return decode(msgpack.packb({"k": "writes", "r": ROUND, "s": b"s" * 8, "i": 1, "z": zlib.compress(msgpack.packb(packed))}))


SPEC, TUNE, STATE = range(3)
NAME, GENERATIONS, RANKS, CLAIMS, TIMES, PLACES, SEQS, VALUES, SIGNATURES = range(9)


@pytest.mark.parametrize(
    ("register", "part", "value"),
    [
        (SPEC, NAME, ""), (SPEC, NAME, 7), (SPEC, NAME, "r" * 64), (SPEC, NAME, ["spec"]), (SPEC, NAME, "a\0b"),
        (SPEC, GENERATIONS, [-1]), (SPEC, GENERATIONS, [True]), (SPEC, GENERATIONS, 0), (SPEC, GENERATIONS, []),
        (SPEC, GENERATIONS, [0] * 19),
        (SPEC, RANKS, [4]), (SPEC, CLAIMS, ["0"]), (SPEC, CLAIMS, [0] * 21), (SPEC, CLAIMS, None),
        (SPEC, TIMES, [0, [0]]), (SPEC, TIMES, [1 << 62, [1]]), (SPEC, TIMES, [1.0, [1]]), (SPEC, TIMES, [5, [1] * 18]), (SPEC, TIMES, [5]),
        (SPEC, TIMES, [5, [True]]), (SPEC, TIMES, 5), (SPEC, TIMES, [-9, [1]]),
        (SPEC, PLACES, [1]), (SPEC, PLACES, [-1]), (SPEC, PLACES, [True]), (SPEC, PLACES, [None]), (SPEC, PLACES, [0] * 2),
        (SPEC, SEQS, [0, [1]]), (SPEC, SEQS, [19, [-1]]), (SPEC, SEQS, [1 << 62, [0]]), (SPEC, SEQS, [1, ["1"]]),
        (SPEC, VALUES, None), (SPEC, VALUES, [[1], 2]), (SPEC, VALUES, [[[1]]]), (SPEC, VALUES, [[True]]),
        (SPEC, VALUES, [[float("nan")]]),
        (SPEC, VALUES, [[1 << 63]]), (SPEC, VALUES, [["x"] * 3]), (SPEC, VALUES, [["x"]] * 257), (SPEC, VALUES, ["text"]),
        (SPEC, SIGNATURES, [b"s" * 64]), (SPEC, SIGNATURES, [b"short"] * 20), (SPEC, SIGNATURES, [None] * 20),
        (SPEC, SIGNATURES, b"s" * 20),
        (TUNE, VALUES, [[{}]]), (TUNE, GENERATIONS, [1 << 48]), (TUNE, SIGNATURES, 7),
    ],
    ids=repr,
)  # fmt: skip
def test_an_odd_part_spoils_the_message(register: int, part: int, value: Any) -> None:
    packed = packed_rows()
    assert taken(copy.deepcopy(packed))
    packed[2][0][2][register][part] = value
    with pytest.raises(MalformedMessage):
        taken(packed)


@pytest.mark.parametrize(
    "odd",
    [
        7, None, [], ["jobs", ["k"]], ["jobs", [], [["tune"]]], ["jobs", ["k"], []], ["jobs", "keys", [["tune"]]],
        ["jobs", ["k"], [["tune"]]],
        ["jobs", ["k"], [None]], [7, ["k"], [["tune", [0], [0], [0], [5, []], [0], [1, []], [], None]]],
        ["devices", ["k"], [["about", [0], [0], [0], [5, []], [0], [1, []], [], None]]],
        ["jobs", [""], [["tune", [0], [0], [0], [5, []], [0], [1, []], [], None]]],
        ["jobs", [7], [["tune", [0], [0], [0], [5, []], [0], [1, []], [], None]]],
    ],
    ids=repr,
)  # fmt: skip
def test_rows_that_are_none_spoil_the_message(odd: Any) -> None:
    assert taken([[AUTHOR], [], [["jobs", ["k"], [["tune", [0], [0], [0], [5, []], [0], [1, []], [], None]]]]])
    with pytest.raises(MalformedMessage):
        taken([[AUTHOR], [], [odd]])


def test_a_text_that_stands_for_all_rows_takes_no_more_than_a_message_may() -> None:
    authors, single, alike = packed_rows()
    for size, fits in ((MESSAGE_LIMIT // 20, True), (MESSAGE_LIMIT // 20 + 1, False)):
        for text in ("x" * size, b"x" * size):
            packed = copy.deepcopy([authors, single, alike])
            packed[2][0][2][TUNE][VALUES] = [[text]]
            packed[2][0][2][SPEC][VALUES] = packed[2][0][2][STATE][VALUES] = [[1]]
            if fits:
                assert taken(packed)
            else:
                with pytest.raises(MalformedMessage, match="rows of"):
                    taken(packed)


def test_no_message_holds_more_writes_than_are_allowed_however_they_are_packed() -> None:
    authors, single, alike = packed_rows()
    assert taken([authors, single, alike * (MAX_WRITES // 60)])
    with pytest.raises(MalformedMessage, match="more than"):
        taken([authors, single, alike * (MAX_WRITES // 60 + 1)])
    table, _, registers = alike[0]
    with pytest.raises(MalformedMessage, match="at most"):
        taken([authors, single, [[table, [f"k{n}" for n in range(MAX_WRITES + 1)], registers[1:2]]]])
    with pytest.raises(MalformedMessage):
        taken([[b"short"], single, alike])
