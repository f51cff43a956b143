"""Is a value that came from elsewhere what it has to be? Each function gives it, or raises ValueError. Pure."""

from __future__ import annotations

from typing import Any


def read_list(raw: Any, limit: int) -> list[Any]:
    """A list of at most so many entries."""
    if not isinstance(raw, list) or len(raw) > limit:
        raise ValueError(f"not a list of at most {limit}")
    return raw


def read_number(raw: Any) -> int:
    """A whole number from 0 on that SQLite can keep."""
    if type(raw) is not int or not 0 <= raw < 1 << 63:
        raise ValueError("a number out of range")
    return raw


def read_bytes(raw: Any, shortest: int, longest: int = 0) -> bytes:
    """Bytes of that length, or of up to `longest`."""
    if not isinstance(raw, bytes) or not shortest <= len(raw) <= max(shortest, longest):
        raise ValueError("bytes of another length")
    return raw


def read_text(raw: Any, limit: int) -> str:
    """A text of at most so many characters."""
    if not isinstance(raw, str) or len(raw) > limit:
        raise ValueError(f"not a text of at most {limit} characters")
    return raw
