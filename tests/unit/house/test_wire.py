"""Values become canonical bytes; bytes of strangers become values within limits, or a word."""

from __future__ import annotations

import enum
import math
import pickle
import resource
import struct
import subprocess
import sys
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue import wire
from p2pqueue.errors import ArgumentError, MalformedMessage

keys = st.text() | st.integers(-(2**63), 2**64 - 1) | st.binary()
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=30)


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@given(values)
def test_a_value_comes_back_as_it_went(value: Any) -> None:
    assert wire.unpack(wire.pack(value)) == value


@given(st.dictionaries(keys, st.integers(0, 9)), st.randoms(use_true_random=False))
def test_the_order_of_a_map_doesnt_change_its_bytes(value: dict[Any, int], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert wire.pack({"in": value}) == wire.pack({"in": dict(shuffled)})


@given(st.dictionaries(keys, st.integers(0, 9)))
def test_the_keys_of_a_map_stand_in_the_order_of_their_bytes(value: dict[Any, int]) -> None:
    found = list(wire.unpack(wire.pack(value)))
    assert [msgpack.packb(key) for key in found] == sorted(msgpack.packb(key) for key in value)


@given(values)
def test_unpacked_bytes_pack_to_the_same_bytes(value: Any) -> None:
    packed = wire.pack(value)
    assert wire.pack(wire.unpack(packed)) == packed


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_malformed_message(data: bytes) -> None:
    try:
        wire.unpack(data)
    except MalformedMessage as error:
        assert str(error)


@given(values, st.data())
def test_a_value_cut_short_or_with_more_behind_is_refused(value: Any, data: st.DataObject) -> None:
    packed = wire.pack(value)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(MalformedMessage):
        wire.unpack(packed[:cut])
    with pytest.raises(MalformedMessage):
        wire.unpack(packed + b"\x00")


Point = namedtuple("Point", "x y")


class Level(enum.IntEnum):
    HIGH = 3


ALIKE = {
    "a tuple is a list": ((1, (2, 3)), [1, [2, 3]]),
    "a named tuple is a list": ([Point(1, 2)], [[1, 2]]),
    "an ordered dict is a map": (OrderedDict(b=1, a=[{"d": 1, "c": 2}]), {"a": [{"c": 2, "d": 1}], "b": 1}),
    "an enum of integers is its number": ([Level.HIGH], [3]),
    "a bytearray is bytes": ([bytearray(b"ab")], [b"ab"]),
    "a time is kept whatever its zone": (
        [datetime(2026, 3, 1, 12, 0, 0, 123456, timezone(timedelta(hours=2)))],
        [datetime(2026, 3, 1, 10, 0, 0, 123456, UTC)],
    ),
    "a time before 1970 is kept": ([datetime(1901, 1, 1, tzinfo=UTC)], [datetime(1901, 1, 1, tzinfo=UTC)]),
    "keys of several types are kept": ({"a": 1, 1: 2, b"a": 3, None: 4}, {"a": 1, 1: 2, b"a": 3, None: 4}),
    "infinity is a float": ([math.inf, -0.0], [math.inf, -0.0]),
}


@pytest.mark.parametrize("what", ALIKE)
def test_what_is_carried_comes_back_as_the_nearest_plain_type(what: str) -> None:
    given_value, expected = ALIKE[what]
    assert wire.unpack(wire.pack(given_value)) == expected
    assert wire.pack(given_value) == wire.pack(expected)


class Weird:
    pass


REFUSED = {
    "a set": {1, 2},
    "an object": Weird(),
    "a function": len,
    "a complex number": 1j,
    "an integer beyond 64 bits": 2**70,
    "a lone surrogate": "\ud800",
    "a lone surrogate as key": {"\ud800": 1, "a": 2},
    "a time without a zone": datetime(2026, 1, 1),
    "a map with a tuple for key": {(1, 2): 3},
    "a map with a time for key": {datetime(2026, 1, 1, tzinfo=UTC): 3},
    "an extension": msgpack.ExtType(5, b"x"),
    "a raw timestamp": msgpack.Timestamp(1),
    "a thousand levels": nested(1000),
    "one level too many": nested(wire.NESTING_LIMIT + 1),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: [v], lambda v: {"a": v}, lambda v: [[1, v], {}]], ids=["bare", "list", "map", "mixed"]
)
def test_what_cant_be_carried_is_refused_with_the_reason(what: str, wrap: Any) -> None:
    with pytest.raises(ArgumentError, match="can't be carried: .+"):
        wire.pack(wrap(REFUSED[what]))


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    looped: dict[str, Any] = {}
    looped["a"] = looped
    for value in (endless, looped):
        with pytest.raises(ArgumentError, match="nesting"):
            wire.pack(value)


@pytest.mark.parametrize("container", [nested, lambda n: wire_map(n)], ids=["lists", "maps"])
def test_the_limit_of_nesting_is_the_same_both_ways(container: Any) -> None:
    assert wire.unpack(wire.pack(container(wire.NESTING_LIMIT))) == container(wire.NESTING_LIMIT)
    with pytest.raises(ArgumentError, match="32 levels"):
        wire.pack(container(wire.NESTING_LIMIT + 1))
    with pytest.raises(MalformedMessage, match="32 levels"):
        wire.unpack(msgpack.packb(container(wire.NESTING_LIMIT + 1)))


def wire_map(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (msgpack.packb(msgpack.ExtType(5, b"x")), "extension type 5"),
        (b"\xc7\x05\xff" + b"x" * 5, "not a message"),
        (b"\xd7\xff" + struct.pack(">Q", 2**64 - 1), "not a message"),
        (b"\xc7\x0c\xff" + struct.pack(">Iq", 0, 2**62), "not a message"),
        (b"\xa1\xff", "not a message"),
        (b"\xc1", "not a message"),
        (b"", "not a message"),
        (b"\x81\x90\x01", "not a message"),
        (pickle.dumps(Weird), "not a message"),
        (b"\x00" * 70_000, "70000 bytes where at most 65536"),
    ],
    ids=[
        "extension",
        "short time",
        "time out of range",
        "time in the year 10^11",
        "no UTF-8",
        "reserved",
        "nothing",
        "list for key",
        "pickle",
        "size",
    ],
)
def test_bytes_that_are_no_message_of_ours_are_refused_in_words(data: bytes, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        wire.unpack(data, limit=wire.FRAME_LIMIT)


BOMBS = {
    "array32 of 2^32-1": b"\xdd\xff\xff\xff\xff",
    "map32 of 2^32-1": b"\xdf\xff\xff\xff\xff",
    "bin32 of 2^32-1": b"\xc6\xff\xff\xff\xff",
    "str32 of 2^32-1": b"\xdb\xff\xff\xff\xff",
    "ext32 of 2^32-1": b"\xc9\xff\xff\xff\xff\x05",
    "array32 of as many as there are bytes, cut short": b"\xdd\x00\x03\xff\xfa" + b"\xdd\x00\x03\xff\xf0" * 500,
    "10,000 levels of arrays": b"\x91" * 10_000 + b"\x00",
    "10,000 levels of maps": b"\x81\x00" * 10_000 + b"\x00",
    "200,000 levels of arrays": b"\x91" * 200_000 + b"\x00",
    "array16s that each claim 65,535": b"\xdc\xff\xff" * 80_000,
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_small_message_that_claims_a_huge_size_costs_little(what: str) -> None:
    program = (
        "import resource, sys\n"
        "from p2pqueue import wire\n"
        "from p2pqueue.errors import MalformedMessage\n"
        "wire.unpack(wire.pack([1]))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for data in (bomb := sys.stdin.buffer.read(), b'\\x92\\x01' + bomb):\n"
        "    try:\n"
        "        wire.unpack(data)\n"
        "    except MalformedMessage as error:\n"
        "        assert len(str(error)) < 200, error\n"
        "    else:\n"
        "        raise SystemExit('accepted')\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], input=BOMBS[what], capture_output=True, check=False, timeout=30)
    assert ran.returncode == 0, ran.stderr.decode() + ran.stdout.decode()
    assert int(ran.stdout) < 50  # MiB


@pytest.mark.parametrize("filler", [b"\x80", b"\x90", b"\xc0", b"\xa1a"], ids=["empty maps", "empty lists", "nils", "short texts"])
def test_the_largest_message_takes_bounded_memory(filler: bytes) -> None:
    count = (wire.MESSAGE_LIMIT - 5) // len(filler)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(wire.unpack(b"\xdd" + struct.pack(">I", count) + filler * count)) == count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB
