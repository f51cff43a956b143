"""How do the writes of a message look on the wire?

Authors are listed once. A signed write travels as its signed body and the signature, which say everything; any other
as [table, key, register, generation, rank, claim, hlc, index of its author, number, values], one of a register that
is unknown here with None for the values and its body behind. Many rows with the same registers travel column by column,
as `row_parcel` packs them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from types import NoneType
from typing import Any

from p2pqueue import wire
from p2pqueue.replica.signatures.hashtree import is_signature
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import MAX_WRITES
from p2pqueue.replica.wire.checks import COLUMN_TYPES, MAX_COLUMNS, check_authors, check_names, check_numbers, check_stamps, check_values
from p2pqueue.replica.wire.columns import WellFormed
from p2pqueue.replica.wire.row_parcel import Holds, pack_rows, unpack_rows
from p2pqueue.replica.write import Write

_SIGNED = 2  # parts of a signed write
_PLAIN = 10  # parts of any other, but for those of an unknown register
_make = tuple.__new__  # a named tuple's own way of making takes three times as long


def pack_writes(writes: Iterable[Write]) -> tuple[list[bytes], list[Any]]:
    """The authors of some writes, and the writes one by one."""
    authors: dict[bytes, int] = {}
    packed = [_packed(write, authors) for write in writes]
    return list(authors), packed


def pack_together(writes: Sequence[Write]) -> tuple[list[bytes], list[Any], list[Any]]:
    """The authors, the writes that go one by one, and the rows that go column by column."""
    authors: dict[bytes, int] = {}
    single, alike = (writes.single, writes.alike) if isinstance(writes, WellFormed) else (writes, ())
    packed = [_packed(write, authors) for write in single]
    rows = [pack_rows(each, authors) for each in alike]
    return list(authors), packed, rows


def unpack_writes(authors: Any, packed: Any, holds: Holds | None = None, *, rows: Any = ()) -> WellFormed:
    """What was packed; `holds` checks signatures. Raises ValueError, TypeError and IndexError for anything else."""
    if not isinstance(authors, list) or not isinstance(packed, list) or max(len(authors), len(packed)) > MAX_WRITES:
        raise ValueError(f"not lists of at most {MAX_WRITES}")
    signed = _signed([entry for entry in packed if len(entry) == _SIGNED], holds)
    plain = _plain([entry for entry in packed if len(entry) != _SIGNED], authors)
    single = [next(signed) if len(entry) == _SIGNED else next(plain) for entry in packed]
    alike, size = [], len(single)
    for each in rows:
        alike.append(unpack_rows(each, authors, holds))
        size += len(alike[-1].keys) * len(alike[-1].registers)
        if size > MAX_WRITES:
            raise ValueError(f"more than {MAX_WRITES} writes")
    return WellFormed(single, alike)


def _packed(write: Write, authors: dict[bytes, int]) -> tuple[Any, ...]:
    if write.signature is not None:
        return (write.body, write.signature)
    stamp = write.stamp
    entry = (write.table, write.key, write.register, *stamp[:4], authors.setdefault(stamp.author, len(authors)), write.seq)
    return (*entry, write.values) if write.body is None else (*entry, None, write.body)


def _signed(entries: Sequence[Any], holds: Holds | None) -> Iterator[Write]:
    if not entries:
        return iter(())
    columns = [*zip(*[_opened(*entry) for entry in entries], strict=True)]
    _check(columns)
    authors, bodies, signatures = columns[7], columns[10], columns[11]
    return _made(columns, holds(authors, bodies, signatures) if holds is not None else repeat(False))


def _plain(entries: Sequence[Any], authors: Sequence[Any]) -> Iterator[Write]:
    if not entries:
        return iter(())
    bodies: Sequence[Any] = (None,) * len(entries)
    if set(map(len, entries)) != {_PLAIN}:
        bodies = [entry[_PLAIN] if len(entry) > _PLAIN else None for entry in entries]
        entries = [[*entry[: _PLAIN - 1], entry[_PLAIN - 1] if body is None else []] for entry, body in zip(entries, bodies, strict=True)]
        if not {bytes, NoneType}.issuperset(map(type, bodies)):
            raise ValueError("a body that is none")
    columns: list[Any] = [*zip(*entries, strict=True), bodies, repeat(None)]
    places, values = columns[7], columns[9]
    if set(map(type, places)) != {int} or min(places) < 0:
        raise ValueError("an author that isn't listed")
    columns[7] = [authors[place] for place in places]
    _check(columns)
    if set(map(type, values)) != {list} or max(map(len, values)) > MAX_COLUMNS:
        raise ValueError(f"not a list of at most {MAX_COLUMNS}")
    check_values(value for columns in values for value in columns)
    return _made(columns, repeat(False))


def _opened(body: Any, signature: Any) -> tuple[Any, ...]:
    """The parts of a signed write, in the order of those of a plain one; body and signature follow."""
    if type(body) is not bytes or not is_signature(signature):
        raise ValueError("a body or a signature that is none")
    table, key, register, (generation, rank, claim, hlc, author), seq, values = wire.unpack(body, nesting=None)
    if type(values) is not list or len(values) > MAX_COLUMNS:
        raise ValueError(f"not a list of at most {MAX_COLUMNS}")
    if not COLUMN_TYPES.issuperset(map(type, values)):
        wire.unpack(body)  # whatever else it holds, it isn't nested without end
    return (table, key, register, generation, rank, claim, hlc, author, seq, values, body, signature)


def _made(columns: Sequence[Iterable[Any]], checked: Iterable[bool]) -> Iterator[Write]:
    tables, keys, registers, generations, ranks, claims, hlcs, authors, seqs, values, bodies, signatures = columns
    stamps = map(_make, repeat(Stamp), zip(generations, ranks, claims, hlcs, authors))  # noqa: B905  all are of one length
    parts = zip(tables, keys, registers, stamps, seqs, map(tuple, values), bodies, signatures, checked)  # noqa: B905
    return map(_make, repeat(Write), parts)


def _check(columns: Sequence[Sequence[Any]]) -> None:
    """What is asked of the parts that every write has."""
    tables, keys, registers, generations, ranks, claims, hlcs, authors, seqs = columns[: _PLAIN - 1]
    check_names({*tables, *registers}, keys)
    check_stamps(generations, ranks, claims, hlcs)
    check_numbers(seqs)
    check_authors(authors)
