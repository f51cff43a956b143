"""How do values become bytes, and what do we accept back?

MessagePack, canonical (maps sorted by their packed keys, the shortest forms), with the timestamp as its only
extension. `unpack` bounds size, nesting and the length of every container before it allocates. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import NoneType
from typing import Any

import msgpack

from p2pqueue.errors import ArgumentError, MalformedMessage

FRAME_LIMIT = 64 * 1024  # bytes in one frame
MESSAGE_LIMIT = 256 * 1024  # bytes in one reassembled message
NESTING_LIMIT = 32  # levels of arrays and maps

_KEYS = frozenset({str, int, bytes, bool, float, NoneType})
_SCALARS = _KEYS | {datetime}
_ARRAYS = frozenset({list, tuple})
_EXTENSIONS = (msgpack.ExtType, msgpack.Timestamp)
_BUFFER = 1024  # bytes a packer starts with; msgpack's own 256 KiB cost more than most values


def pack(value: Any) -> bytes:
    """The canonical bytes of a value.

    Takes None, bool, int (64 bits), float, str, bytes, aware datetime, lists or tuples, and maps of those.
    Raises `ArgumentError` for anything else; `jobs.arguments` words it for people.
    """
    try:
        if not (type(value) in _ARRAYS and _is_plain(value, NESTING_LIMIT)):
            value = _canonical(value, NESTING_LIMIT)
        packed: bytes = msgpack.Packer(datetime=True, buf_size=_BUFFER).pack(value)
    except (TypeError, ValueError, OverflowError) as error:  # ValueError: a lone surrogate too
        raise ArgumentError(f"this value can't be carried: {error}") from error
    return packed


def unpack(data: bytes | memoryview, *, limit: int = MESSAGE_LIMIT, nesting: int | None = NESTING_LIMIT) -> Any:
    """The value that these bytes stand for; lists for arrays, aware UTC datetimes for timestamps.

    Raises `MalformedMessage` beyond `limit` bytes or `nesting` levels, for any other extension, and for
    bytes that are cut short or go on after the value. With `nesting` None the caller looks at every level himself.
    """
    size = len(data)
    if size > limit:
        raise MalformedMessage(f"{size} bytes where at most {limit} are accepted")
    try:
        value = msgpack.unpackb(data, raw=False, strict_map_key=False, timestamp=3, ext_hook=_refuse_extension)
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not a message: {str(error) or type(error).__name__}") from error
    if nesting is not None and size > nesting and type(value) in (list, dict) and _is_deeper(value, nesting):  # each level takes a byte
        raise MalformedMessage(f"more than {nesting} levels of nesting")
    return value


def _is_plain(array: Iterable[Any], levels: int) -> bool:
    """Says whether an array holds scalars and arrays only, so that it is canonical as it stands."""
    inner_kinds = set(map(type, array)) - _SCALARS
    if not inner_kinds:
        return True
    for kind in inner_kinds - _ARRAYS:
        if not issubclass(kind, (list, tuple)) or kind in _EXTENSIONS:
            return False
    if levels == 1:
        return False
    for inner in array:  # noqa: SIM110  a generator costs half as much again
        if type(inner) in inner_kinds and not _is_plain(inner, levels - 1):
            return False
    return True


def _canonical(value: Any, levels: int) -> Any:
    if type(value) in _SCALARS:
        return value
    if levels == 0:
        raise ValueError(f"more than {NESTING_LIMIT} levels of nesting")
    if isinstance(value, dict):
        return {key: _canonical(value[key], levels - 1) for key in _sorted_keys(value)}
    if isinstance(value, _EXTENSIONS):
        raise TypeError(f"{type(value).__name__} is no type of ours")
    if isinstance(value, (list, tuple)):
        return [_canonical(inner, levels - 1) for inner in value]
    return value


def _sorted_keys(value: dict[Any, Any]) -> list[Any]:
    kinds = set(map(type, value))
    if kinds == {str} and all(map(str.isascii, value)):
        return sorted(sorted(value), key=len)  # the order of their packed forms, which begin with the length
    if not kinds <= _KEYS:
        raise TypeError(f"a map can't have keys of type {min(kind.__name__ for kind in kinds - _KEYS)}")
    return sorted(value, key=msgpack.packb)


def _is_deeper(value: list[Any] | dict[Any, Any], levels: int) -> bool:
    if levels == 0:
        return True
    inside: Iterable[Any] = value if type(value) is list else value.values()  # type: ignore[union-attr]
    for inner in inside:
        kind = type(inner)
        if (kind is list or kind is dict) and _is_deeper(inner, levels - 1):
            return True
    return False


def _refuse_extension(code: int, data: bytes) -> Any:
    raise MalformedMessage(f"extension type {code} is not accepted")
