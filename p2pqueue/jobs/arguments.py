"""Which arguments and results can a job carry, and how do they become bytes?

MessagePack, never pickle: data stays data. What arrives is what was sent, but for these changes:

- a `tuple` (a `namedtuple` too) arrives as a `list`;
- an aware `datetime` arrives as the same instant in UTC;
- an instance of a subclass (`IntEnum`, `StrEnum`, `OrderedDict`, a numpy float) arrives as the plain type.

Carried unchanged: None, bool, int from −2**63 to 2**64 − 1, float (infinities and NaN too), str, bytes, list, and
dict in its order with keys of str, int or bytes. Refused, with the path to the culprit and what to do: everything
else (sets, naive datetimes, dates, decimals, paths, classes, functions, any other object), text with lone
surrogates, nesting beyond 31 levels, and more than 64 KiB in all. Large data goes into a `File`.

A `File` is written as `{"__file__": name}`; the file itself travels as the job's input or the run's output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from p2pqueue import wire
from p2pqueue.errors import ArgumentError

if TYPE_CHECKING:
    from p2pqueue.payload.file import File

LIMIT: Final = 64 * 1024  # bytes of the packed arguments, and of a result: they travel in the row itself
NESTING: Final = wire.NESTING_LIMIT - 1  # levels of lists and dicts within one argument: the map of all is the first
FILE_KEY: Final = "__file__"
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 64) - 1
_BUFFER: Final = 1024  # bytes a packer starts with
RESULT_FILE: Final = "result"  # the name of a File that is the whole result

_ADVICE: Final = {
    "set": "pass a sorted list",
    "frozenset": "pass a sorted list",
    "date": "pass date.isoformat()",
    "time": "pass time.isoformat()",
    "timedelta": "pass its total_seconds()",
    "Decimal": "pass str(value)",
    "UUID": "pass str(value)",
    "Path": "pass File(path) for its content, or str(path)",
    "PosixPath": "pass File(path) for its content, or str(path)",
    "WindowsPath": "pass File(path) for its content, or str(path)",
    "bytearray": "pass bytes(value)",
    "memoryview": "pass bytes(value)",
    "function": "functions can't travel; name a task",
    "builtin_function_or_method": "functions can't travel; name a task",
    "type": "classes can't travel",
    "generator": "pass a list",
    "coroutine": "await it first",
    "ndarray": "save it and pass a File",
}


class Encoded(NamedTuple):
    """Packed arguments, or a packed result, and the files named in it."""

    data: bytes
    files: Mapping[str, File]


_TEXT: Final = frozenset({str})
_NOTHING: Final = Encoded(wire.pack({}), MappingProxyType({}))


def encode(args: Mapping[str, Any]) -> Encoded:
    """Packs the arguments of a job: a map of parameter to value.

    A `File` may stand for a whole argument and is named by its parameter. Raises `ArgumentError`.
    """
    if not args:
        return _NOTHING
    files: dict[str, File] = {}
    plain: dict[str, Any] = {}
    for name, value in args.items():
        if type(name) is not str:
            raise ArgumentError(f"the name of a parameter is text, not {name!r}")
        kind = type(value)
        if kind is int:
            plain[name] = value if _LEAST <= value <= _MOST else _plain(value, _Place("argument", name, ()))
        elif kind is bool or kind is float or value is None or (kind is str and len(value) <= LIMIT and value.isascii()):
            plain[name] = value  # most arguments; what is too large is found when all are packed
        elif is_file(value):
            files[name] = value
            plain[name] = {FILE_KEY: name}
        else:
            plain[name] = _plain(value, _Place("argument", name, ()))
    return Encoded(_pack(plain, _too_large), files)


def decode(data: bytes, files: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arguments as they were packed; each `File` is taken from `files`, or left as its marker without them."""
    if data == _NOTHING.data:
        return {}
    args = wire.unpack(data, limit=LIMIT)
    if type(args) is not dict or not _TEXT.issuperset(map(type, args)):
        raise ArgumentError("the arguments of a job are a map of parameters")
    if files is None:
        return args
    return {name: files[value[FILE_KEY]] if is_marker(value) else value for name, value in args.items()}


def encode_result(value: Any) -> Encoded:
    """Packs what a handler returned; a `File` may be the result, or stand anywhere in it. Raises `ArgumentError`."""
    files: dict[str, File] = {}
    return Encoded(_pack(_plain(value, _Place("result", "result", (), files)), _too_large_result), files)


def decode_result(data: bytes | None, open_file: Callable[[str], Any] | None = None) -> Any:
    """The result as it was packed; `open_file` gives the `File` of a name, without it the marker stays."""
    if data is None:
        return None
    return _with_files(wire.unpack(data, limit=LIMIT), open_file)


def is_file(value: Any) -> bool:
    """Says whether a value is a `File`, without importing what a `File` needs."""
    module = sys.modules.get("p2pqueue.payload.file")  # not loaded: nobody can have made one
    return module is not None and isinstance(value, module.File)


def is_marker(value: Any) -> bool:
    """Says whether a decoded value stands for a `File`."""
    return type(value) is dict and len(value) == 1 and type(value.get(FILE_KEY)) is str


def _with_files(value: Any, open_file: Callable[[str], Any] | None) -> Any:
    if open_file is None:
        return value
    if is_marker(value):
        return open_file(value[FILE_KEY])
    if type(value) is list:
        return [_with_files(inner, open_file) for inner in value]
    if type(value) is dict:
        return {key: _with_files(inner, open_file) for key, inner in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in an argument or a result a value stands; `files` collects Files where they are allowed."""

    what: str
    name: str
    steps: tuple[Any, ...]
    files: dict[str, File] | None = None

    def inner(self, step: Any) -> _Place:
        return _Place(self.what, self.name, (*self.steps, step), self.files)

    @property
    def path(self) -> str:
        text = self.name if self.what == "argument" else ""
        for step in self.steps[:8]:
            shown = f".{step}" if type(step) is str and step.isidentifier() else f"[{step!r}]"
            text += shown if len(shown) <= 40 else f"{shown[:36]}…"
        return text.removeprefix(".") + ("…" if len(self.steps) > 8 else "")

    def refuse(self, reason: str) -> ArgumentError:
        where = self.what if self.what == "result" and not self.steps else f"{self.what} {self.path!r}"
        return ArgumentError(f"{'the ' if self.what == 'result' else ''}{where} {reason}")


def _plain(value: Any, place: _Place) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is str or kind is bytes:
        return _checked_text(value, place) if kind is str else _checked_length(value, place)
    if isinstance(value, int):
        return _checked_int(value, place)
    if isinstance(value, (list, tuple, dict)):
        return _plain_container(value, place)
    if isinstance(value, datetime):
        return _checked_datetime(value, place)
    if is_file(value):
        return _file_marker(value, place)
    if isinstance(value, str):
        return _checked_text(str.__str__(value), place)  # not str(value): an enum may say anything there
    if isinstance(value, bytes):
        return _checked_length(bytes(value), place)
    if isinstance(value, float):
        return float(value)
    raise place.refuse(_is_a(value))


def _plain_container(value: Any, place: _Place) -> Any:
    if len(place.steps) >= NESTING:
        raise place.refuse(f"is nested deeper than {NESTING} levels; flatten it, or pass it in a File")
    if isinstance(value, (list, tuple)):
        return [_plain(inner, place.inner(index)) for index, inner in enumerate(value)]
    plain = {}
    for key, inner in value.items():
        if not isinstance(key, (str, int, bytes)):
            raise place.refuse(f"has the key {key!r}, {_article(type(key).__name__)}; keys are str, int or bytes")
        if key == FILE_KEY:
            raise place.refuse(f"has the key {FILE_KEY!r}, which is reserved for files")
        plain[_plain(key, place.inner(key))] = _plain(inner, place.inner(key))
    return plain


def _checked_text(value: str, place: _Place) -> str:
    _checked_length(value, place)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise place.refuse(f"holds a lone surrogate at character {error.start}, which is no text; pass bytes") from None
    return value


def _checked_length(value: Any, place: _Place) -> Any:
    if len(value) > LIMIT:  # before packing, so that 64 MiB are refused without a copy
        unit = "bytes" if isinstance(value, bytes) else "characters"
        raise place.refuse(f"has {len(value):,} {unit}, and {LIMIT:,} bytes fit in all; {_LARGE[place.what]}")
    return value


def _checked_int(value: int, place: _Place) -> int:
    if not _LEAST <= value <= _MOST:
        raise place.refuse("is an int beyond 64 bits; pass str(value)")
    return int(value)


def _checked_datetime(value: datetime, place: _Place) -> datetime:
    if value.utcoffset() is None:
        raise place.refuse("is a datetime without a time zone; give it one, as in datetime.now(timezone.utc)")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise place.refuse("is a datetime beyond the years 1 to 9999 in UTC") from None


def _file_marker(value: Any, place: _Place) -> dict[str, str]:
    if place.files is None:
        raise place.refuse("is a File inside a list or a dict; give each File a parameter of its own")
    name = place.path or RESULT_FILE
    place.files[name] = value
    return {FILE_KEY: name}


_LARGE: Final = {
    "argument": "write it to a file and pass File(path)",
    "result": "write it to a file and return File(path)",
}


def _pack(plain: Any, too_large: Callable[[Any, int], ArgumentError]) -> bytes:
    packed: bytes = msgpack.Packer(datetime=True, buf_size=_BUFFER).pack(plain)
    if len(packed) > LIMIT:
        raise too_large(plain, len(packed))
    return packed


def _too_large(plain: dict[str, Any], size: int) -> ArgumentError:
    largest = max(plain, key=lambda name: len(msgpack.packb(plain[name], datetime=True)))
    share = len(msgpack.packb(plain[largest], datetime=True))
    return ArgumentError(
        f"the arguments take {size:,} bytes, {share:,} of them argument {largest!r}, and {LIMIT:,} fit; {_LARGE['argument']}"
    )


def _too_large_result(_: Any, size: int) -> ArgumentError:
    return ArgumentError(f"the result takes {size:,} bytes, and {LIMIT:,} fit; {_LARGE['result']}")


def _is_a(value: Any) -> str:
    name = type(value).__name__
    advice = _ADVICE.get(name, "pass None, bool, int, float, str, bytes, datetime, list, dict or a File")
    return f"is {_article(name)}; {advice}"


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
