"""How do values become bytes, and what do we accept back?

MessagePack, canonical (maps sorted by their packed keys, the shortest forms), with the timestamp as its only
extension. `unpack` bounds size, nesting and the length of every container before it allocates. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import msgpack

from p2pqueue.errors import ArgumentError, MalformedMessage

FRAME_LIMIT = 64 * 1024  # bytes in one frame
MESSAGE_LIMIT = 256 * 1024  # bytes in one reassembled message
NESTING_LIMIT = 32  # levels of arrays and maps


def pack(value: Any) -> bytes:
    """The canonical bytes of a value.

    Takes None, bool, int (64 bits), float, str, bytes, aware datetime, lists or tuples, and maps of those.
    Raises `ArgumentError` for anything else; `jobs.arguments` words it for people.
    """
    try:
        packed: bytes = msgpack.packb(_sorted(value, 0), use_bin_type=True, datetime=True, strict_types=False)
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError) as error:
        raise ArgumentError(f"this value can't be carried: {error}") from error
    return packed


def unpack(data: bytes | memoryview, *, limit: int = MESSAGE_LIMIT, nesting: int = NESTING_LIMIT) -> Any:
    """The value that these bytes stand for; lists for arrays, aware UTC datetimes for timestamps.

    Raises `MalformedMessage` beyond `limit` bytes or `nesting` levels, for any other extension, and for
    bytes that are cut short or go on after the value.
    """
    if len(data) > limit:
        raise MalformedMessage(f"{len(data)} bytes where at most {limit} are accepted")
    try:
        value = msgpack.unpackb(data, raw=False, strict_map_key=False, timestamp=3, ext_hook=_refuse_extension)
    except MalformedMessage:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not a message: {error or type(error).__name__}") from error
    _check_nesting(value, nesting)
    return value


def _sorted(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in (str, int, bytes, float, bool) or value is None:
        return value
    if depth > NESTING_LIMIT:
        raise ValueError(f"more than {NESTING_LIMIT} levels of nesting")
    if isinstance(value, dict):
        items = [(key, _sorted(inner, depth + 1)) for key, inner in value.items()]
        return dict(sorted(items, key=lambda item: msgpack.packb(item[0])))
    if isinstance(value, (list, tuple)):
        return [_sorted(inner, depth + 1) for inner in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a datetime without a time zone; give it one")
        return value.astimezone(timezone.utc)
    return value


def _check_nesting(value: Any, limit: int) -> None:
    level: list[Any] = [value]
    for _ in range(limit + 1):
        level = list(_inner(level))
        if not level:
            return
    raise MalformedMessage(f"more than {limit} levels of nesting")


def _inner(level: list[Any]) -> Iterator[Any]:
    for value in level:
        if isinstance(value, list):
            yield from (inner for inner in value if isinstance(inner, (list, dict)))
        elif isinstance(value, dict):
            yield from (inner for inner in value.values() if isinstance(inner, (list, dict)))


def _refuse_extension(code: int, data: bytes) -> Any:
    raise MalformedMessage(f"extension type {code} is not accepted")
