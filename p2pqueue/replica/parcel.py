"""How do the writes of a message look on the wire, and what is asked of each before it is taken in?

Authors are listed once. A signed write travels as its signed body and the signature, which say everything; any other
as [table, key, register, generation, rank, claim, hlc, index of its author, number, values], one of a register that
is unknown here with None for the values and its body behind. What is asked of one write is asked of all at once,
column by column, since one by one it took most of the time of a cold sync. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import NoneType
from typing import Any

from p2pqueue import wire
from p2pqueue.replica.hashtree import is_signature
from p2pqueue.replica.messages import MAX_WRITES
from p2pqueue.replica.stamp import Stamp, is_wellformed
from p2pqueue.replica.write import WellFormed, Write

KEY_LIMIT = 1024  # characters of a key
NAME_LIMIT = 63  # characters of the name of a table or a register
MAX_COLUMNS = 256  # columns of a register
SEQ_LIMIT = 1 << 62

Holds = Callable[[bytes, bytes, bytes], bool]  # whether this author made this signature over this body

_AUTHOR_SIZE = 16  # bytes
_SIGNED = 2  # parts of a signed write
_ANYBODY = bytes(_AUTHOR_SIZE)
_TEXTS = frozenset({str, bytes, NoneType})
_COLUMN_TYPES = _TEXTS | {int, float}


def pack_writes(writes: Iterable[Write]) -> tuple[list[bytes], list[Any]]:
    """The authors of some writes, and the writes."""
    authors: dict[bytes, int] = {}
    packed: list[Any] = []
    for write in writes:
        if write.signature is not None:
            packed.append((write.body, write.signature))
            continue
        stamp = write.stamp
        entry = (write.table, write.key, write.register, *stamp[:4], authors.setdefault(stamp.author, len(authors)), write.seq)
        packed.append((*entry, write.values) if write.body is None else (*entry, None, write.body))
    return list(authors), packed


def unpack_writes(authors: Any, packed: Any, holds: Holds | None = None) -> tuple[Write, ...]:
    """What `pack_writes` packed; `holds` checks signatures. Raises ValueError, TypeError and IndexError for anything else."""
    if not isinstance(authors, list) or not isinstance(packed, list) or max(len(authors), len(packed)) > MAX_WRITES:
        raise ValueError(f"not lists of at most {MAX_WRITES}")
    if not packed:
        return ()
    entries = [_opened(*entry) if len(entry) == _SIGNED else _plain(*entry[:11], authors=authors) for entry in packed]
    tables, keys, registers, generations, ranks, claims, hlcs, makers, seqs, values, bodies, signatures = zip(*entries, strict=True)
    _check_names({*tables, *registers}, keys)
    _check_stamps(generations, ranks, claims, hlcs)
    _check_numbers(seqs)
    if any(type(maker) is not bytes or len(maker) != _AUTHOR_SIZE for maker in set(makers)):
        raise ValueError("an author that is none")
    _check_values([columns for columns, body in zip(values, bodies, strict=True) if body is None])
    make = tuple.__new__
    stamps = [make(Stamp, parts) for parts in zip(generations, ranks, claims, hlcs, makers, strict=True)]
    checked = [holds is not None and signature is not None and holds(maker, body, signature)
               for maker, body, signature in zip(makers, bodies, signatures, strict=True)]  # fmt: skip
    parts = zip(tables, keys, registers, stamps, seqs, map(tuple, values), bodies, signatures, checked, strict=True)
    return WellFormed([make(Write, each) for each in parts])


def _plain(
    table: Any, key: Any, register: Any, generation: Any, rank: Any, claim: Any, hlc: Any, author: Any, seq: Any, values: Any,
    body: Any = None, *, authors: Sequence[Any],
) -> tuple[Any, ...]:  # fmt: skip
    if type(author) is not int or author < 0:
        raise ValueError("an author that isn't listed")
    if body is not None:
        if type(body) is not bytes:
            raise ValueError("a body that is none")
        values = ()
    return (table, key, register, generation, rank, claim, hlc, authors[author], seq, values, body, None)


def _opened(body: Any, signature: Any) -> tuple[Any, ...]:
    if type(body) is not bytes or not is_signature(signature):
        raise ValueError("a body or a signature that is none")
    table, key, register, (generation, rank, claim, hlc, author), seq, values = wire.unpack(body, nesting=None)
    if type(values) is not list or len(values) > MAX_COLUMNS:
        raise ValueError(f"not a list of at most {MAX_COLUMNS}")
    if not _COLUMN_TYPES.issuperset(map(type, values)):
        wire.unpack(body)  # whatever else it holds, it isn't nested without end
    return (table, key, register, generation, rank, claim, hlc, author, seq, values, body, signature)


def _check_names(names: set[Any], keys: Sequence[Any]) -> None:
    if {*map(type, names), *map(type, keys)} != {str}:
        raise ValueError("a name that is no text")
    if not 0 < min(map(len, names)) <= max(map(len, names)) <= NAME_LIMIT:
        raise ValueError(f"not the name of a table or a register, of at most {NAME_LIMIT} characters")
    if not 0 < min(map(len, keys)) <= max(map(len, keys)) <= KEY_LIMIT:
        raise ValueError(f"not a key of at most {KEY_LIMIT} characters")
    if any("\0" in name for name in chain(names, keys)):
        raise ValueError("a name with a NUL, at which SQLite would end it")


def _check_stamps(generations: Sequence[Any], ranks: Sequence[Any], claims: Sequence[Any], hlcs: Sequence[Any]) -> None:
    """What `is_wellformed` asks of each stamp."""
    if {*map(type, generations), *map(type, ranks), *map(type, claims), *map(type, hlcs)} != {int}:
        raise ValueError("a number that is none")
    lowest = Stamp(min(generations), min(ranks), min(claims), min(hlcs), _ANYBODY)
    highest = Stamp(max(generations), max(ranks), max(claims), max(hlcs), _ANYBODY)
    if 0 in hlcs or not (is_wellformed(lowest) and is_wellformed(highest)):
        raise ValueError("a stamp out of range")


def _check_numbers(seqs: Sequence[Any]) -> None:
    if set(map(type, seqs)) != {int} or min(seqs) < 1 or max(seqs) >= SEQ_LIMIT:
        raise ValueError("a number out of range")


def _check_values(values: Sequence[Any]) -> None:
    """Raises for what SQLite would not keep as it is: it has no NaN and 64 bits for a number."""
    if any(type(columns) is not list or len(columns) > MAX_COLUMNS for columns in values):
        raise ValueError(f"not a list of at most {MAX_COLUMNS}")
    kinds = set(map(type, chain.from_iterable(values)))
    if kinds <= _TEXTS:
        return
    numbers = [value for value in chain.from_iterable(values) if type(value) not in _TEXTS]
    if not kinds <= _COLUMN_TYPES or any(value != value for value in numbers):
        raise ValueError("a column that holds no plain value")
    if any(type(value) is int and not -(1 << 63) <= value < 1 << 63 for value in numbers):
        raise ValueError("a column that holds no plain value")
