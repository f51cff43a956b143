"""What is asked of a peer's writes before any of them is taken in?

It is asked of all at once, column by column, since one by one it took most of the time of a cold sync. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from types import NoneType
from typing import Any

from p2pqueue.replica.stamp import Stamp, is_wellformed

KEY_LIMIT = 1024  # characters of a key
NAME_LIMIT = 63  # characters of the name of a table or a register
MAX_COLUMNS = 256  # columns of a register
SEQ_LIMIT = 1 << 62

_AUTHOR_SIZE = 16  # bytes
_ANYBODY = bytes(_AUTHOR_SIZE)
_TEXTS = frozenset({str, bytes, NoneType})
COLUMN_TYPES = _TEXTS | {int, float}


def check_names(names: set[Any], keys: Collection[Any]) -> None:
    """Raises ValueError for what can't name tables and registers, and rows."""
    if {*map(type, names), *map(type, keys)} != {str}:
        raise ValueError("a name that is no text")
    if not 0 < min(map(len, names)) <= max(map(len, names)) <= NAME_LIMIT:
        raise ValueError(f"not the name of a table or a register, of at most {NAME_LIMIT} characters")
    if not 0 < min(map(len, keys)) <= max(map(len, keys)) <= KEY_LIMIT:
        raise ValueError(f"not a key of at most {KEY_LIMIT} characters")
    if "\0" in "".join(chain(names, keys)):
        raise ValueError("a name with a NUL, at which SQLite would end it")


def check_stamps(generations: Sequence[Any], ranks: Sequence[Any], claims: Sequence[Any], hlcs: Sequence[Any]) -> None:
    """Raises ValueError where one of these stamps isn't what `is_wellformed` asks for."""
    if {*map(type, generations), *map(type, ranks), *map(type, claims), *map(type, hlcs)} != {int}:
        raise ValueError("a number that is none")
    lowest = Stamp(min(generations), min(ranks), min(claims), min(hlcs), _ANYBODY)
    highest = Stamp(max(generations), max(ranks), max(claims), max(hlcs), _ANYBODY)
    if 0 in hlcs or not (is_wellformed(lowest) and is_wellformed(highest)):
        raise ValueError("a stamp out of range")


def check_numbers(seqs: Sequence[Any]) -> None:
    """Raises ValueError for what is no number of a write."""
    if set(map(type, seqs)) != {int} or min(seqs) < 1 or max(seqs) >= SEQ_LIMIT:
        raise ValueError("a number out of range")


def check_authors(authors: Iterable[Any]) -> None:
    """Raises ValueError for what is no author's id."""
    if any(type(author) is not bytes or len(author) != _AUTHOR_SIZE for author in set(authors)):
        raise ValueError("an author that is none")


def check_values(values: Iterable[Any]) -> None:
    """Raises ValueError for what SQLite would not keep as it is: it has no NaN and 64 bits for a number."""
    kinds = set(map(type, values := tuple(values)))
    if kinds <= _TEXTS:
        return
    numbers = [value for value in values if type(value) not in _TEXTS]
    if not kinds <= COLUMN_TYPES or any(value != value for value in numbers):
        raise ValueError("a column that holds no plain value")
    if any(type(value) is int and not -(1 << 63) <= value < 1 << 63 for value in numbers):
        raise ValueError("a column that holds no plain value")
