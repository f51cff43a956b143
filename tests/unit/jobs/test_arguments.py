"""Which arguments and results are carried, which are changed, and which are refused, with what words."""

from __future__ import annotations

import enum
import pickle
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest

from p2pqueue import ArgumentError, MalformedMessage
from p2pqueue.jobs.arguments import LIMIT, NESTING, decode, decode_result, encode, encode_result

SUMMER = timezone(timedelta(hours=2))


def nested(levels: int) -> Any:
    value: Any = 7
    for _ in range(levels):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Colour(enum.IntEnum):
    RED = 3


class Name(str, enum.Enum):  # noqa: UP042  the old form: its str() is not its value
    A = "a"


Point = namedtuple("Point", "x y")

UNCHANGED = [
    None, True, False, 0, -(2**63), 2**64 - 1, 0.1, float("inf"), "", "ü", "\0", "𝄞", b"", bytes(range(256)), [], {},
    {1: "int keys", b"\xff": "bytes keys", "z": 1, "a": 2}, [1, [2, {"x": [None]}]], nested(NESTING),
    datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
    "x" * (LIMIT - 16),
]  # fmt: skip


@pytest.mark.parametrize("value", UNCHANGED, ids=lambda value: repr(value)[:40])
def test_what_is_carried_arrives_as_it_was(value: Any) -> None:
    arrived = decode(encode({"x": value}).data)["x"]
    assert arrived == value
    assert type(arrived) is type(value)
    assert repr(arrived) == repr(value)  # the order of keys too


def test_nan_arrives_as_nan() -> None:
    arrived = decode(encode({"x": float("nan")}).data)["x"]
    assert arrived != arrived


CHANGED = [
    ("a tuple becomes a list", (1, (2,)), [1, [2]]),
    ("a namedtuple becomes a list", Point(1, 2), [1, 2]),
    ("a datetime is the same instant in UTC", datetime(2026, 7, 1, 2, tzinfo=SUMMER), datetime(2026, 7, 1, tzinfo=UTC)),
    ("an IntEnum becomes its int", Colour.RED, 3),
    ("an enum of texts becomes its value", Name.A, "a"),
    ("an OrderedDict becomes a dict", OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
]


@pytest.mark.parametrize(("value", "expected"), [pytest.param(v, e, id=reason) for reason, v, e in CHANGED])
def test_the_documented_changes_are_the_only_ones(value: Any, expected: Any) -> None:
    arrived = decode(encode({"x": value}).data)["x"]
    assert arrived == expected
    assert type(arrived) is type(expected)
    if isinstance(expected, datetime):
        assert arrived.utcoffset() == timedelta(0)


REFUSED = [
    ({1, 2}, "argument 'x' is a set; pass a sorted list"),
    ([0, 0, 0, {"y": {1}}], "argument 'x[3].y' is a set"),
    ({"a b": [frozenset()]}, "argument \"x['a b'][0]\" is a frozenset"),
    (2**64, "argument 'x' is an int beyond 64 bits"),
    (-(2**70), "argument 'x' is an int beyond 64 bits"),
    (nested(NESTING + 1), "is nested deeper than 31 levels"),
    (nested(1000), "is nested deeper than 31 levels"),
    (circular(), "is nested deeper than 31 levels"),
    ("a\ud800", "argument 'x' holds a lone surrogate at character 1"),
    ({"\udfff": 1}, "holds a lone surrogate"),
    (lambda: None, "argument 'x' is a function; functions can't travel"),
    (len, "argument 'x' is a builtin_function_or_method; functions can't travel"),
    (int, "argument 'x' is a type; classes can't travel"),
    (object(), "argument 'x' is an object; pass None, bool, int"),
    (datetime(2026, 1, 1), "argument 'x' is a datetime without a time zone"),
    (datetime(1, 1, 1, tzinfo=SUMMER), "argument 'x' is a datetime beyond the years"),
    (date(2026, 1, 1), "argument 'x' is a date; pass date.isoformat()"),
    (timedelta(1), "argument 'x' is a timedelta; pass its total_seconds()"),
    (Decimal(1), "argument 'x' is a Decimal; pass str(value)"),
    (UUID(int=1), "argument 'x' is an UUID; pass str(value)"),
    (Path("clip.mov"), "pass File(path) for its content"),
    (bytearray(b"x"), "argument 'x' is a bytearray; pass bytes(value)"),
    (1j, "argument 'x' is a complex"),
    ({(1, 2): 3}, "argument 'x' has the key (1, 2), a tuple; keys are str, int or bytes"),
    ({1.5: 1}, "argument 'x' has the key 1.5, a float"),
    ({None: 1}, "argument 'x' has the key None"),
    ({"__file__": "/etc/passwd"}, "which is reserved for files"),
    ([{"__file__": "x"}], "argument 'x[0]' has the key '__file__'"),
    ("x" * (LIMIT + 1), "argument 'x' has 65,537 characters, and 65,536 bytes fit in all; write it to a file and pass File(path)"),
    (b"x" * (64 << 20), "argument 'x' has 67,108,864 bytes"),
    (["x" * 9000] * 8, "the arguments take 72,035 bytes, 72,025 of them argument 'x', and 65,536 fit"),
]


@pytest.mark.parametrize(("value", "words"), REFUSED, ids=[words[:60] for _, words in REFUSED])
def test_what_cant_be_carried_is_refused_with_its_place_and_its_mend(value: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        encode({"small": 1, "x": value})
    assert words in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("size", [1 << 10, 1 << 12, 1 << 14, 65_000])
def test_arguments_below_the_limit_are_carried_whole(size: int) -> None:
    """Celery took a 7 KB argument, and the task never ran."""
    assert decode(encode({"x": b"\xff" * size}).data) == {"x": b"\xff" * size}


def test_a_large_argument_of_many_small_ones_is_named() -> None:
    with pytest.raises(ArgumentError, match="of them argument 'big'"):
        encode({"a": "x" * 30_000, "big": ["x" * 30_000, "y" * 9_000]})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1}, "the result is a set; pass a sorted list"),
        ({"frames": [Decimal(1)]}, "the result 'frames[0]' is a Decimal"),
        ("x" * (LIMIT + 1), "the result has 65,537 characters, and 65,536 bytes fit in all; write it to a file and return File(path)"),
        (["x" * 40_000] * 2, "the result takes 80,007 bytes, and 65,536 fit; write it to a file and return File(path)"),
        ({"__file__": "x"}, "reserved for files"),
    ],
)
def test_a_result_that_cant_be_carried_is_refused_in_words(value: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        encode_result(value)
    assert words in str(refused.value)


@pytest.mark.parametrize("value", [None, 0, "x", [1, {"a": b"x"}], {"n": 1.5}])
def test_a_result_arrives_as_it_was_returned(value: Any) -> None:
    assert decode_result(encode_result(value).data) == value


def test_no_result_is_none() -> None:
    assert decode_result(None) is None


class Gift:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was opened",))


HOSTILE = [
    ("a pickle stays bytes or is refused", pickle.dumps({"x": Gift()})),
    ("an extension is not ours", msgpack.packb({"x": msgpack.ExtType(42, b"cmd")})),
    ("no map", msgpack.packb([1, 2])),
    ("a map of something else", msgpack.packb({1: 2})),
    ("cut short", encode({"x": "abc"}).data[:-1]),
    ("going on", encode({"x": "abc"}).data + b"\x00"),
    ("too large", msgpack.packb({"x": b"x" * LIMIT})),
    ("too deep", msgpack.packb({"x": nested(NESTING + 1)})),
    ("huge by its word only", b"\xdd\xff\xff\xff\xff"),
    ("a key that can't be one", b"\x81\x91\x01\x02"),
]


@pytest.mark.parametrize("data", [pytest.param(data, id=reason) for reason, data in HOSTILE])
def test_bytes_that_are_no_arguments_are_refused(data: bytes) -> None:
    with pytest.raises((MalformedMessage, ArgumentError)):
        decode(data)


def test_data_stays_data() -> None:
    """Whoever can write a queue's store must not run code on its workers (huey unpickles by default)."""
    values = {"pickle": pickle.dumps(Gift()), "yaml": "!!python/object/apply:os.system ['true']", "path": "os.system"}
    assert decode(encode(values).data) == values
