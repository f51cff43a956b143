"""How are the writes of many rows kept column by column, so that nobody makes each of them?

Rows of one table with the same registers differ in their values alone. From the wire into the database a column goes as
a whole; a single write is only made where one is asked for. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import Any, NamedTuple, overload

from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.write import Write

_make = tuple.__new__  # a named tuple's own way of making takes three times as long


class RegisterColumns(NamedTuple):
    """One register of many rows: each column has an entry for each row, in the same order.

    `stamps` are the columns of generations, ranks, claims, times and authors; `values` those of the register. Of a signed
    register come `bodies`, `signatures` and whether each was `checked`; of any other None.
    """

    name: str
    stamps: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[bytes]]
    seqs: Sequence[int]
    values: tuple[Sequence[Any], ...]
    bodies: Sequence[bytes] | None = None
    signatures: Sequence[bytes] | None = None
    checked: Sequence[bool] | None = None

    def ordered(self, of: Callable[[Sequence[Any]], Sequence[Any]]) -> RegisterColumns:
        """The same rows in another order, in which `of` puts a column; or some of them."""
        generations, ranks, claims, hlcs, authors = map(of, self.stamps)
        proofs = [None if column is None else of(column) for column in (self.bodies, self.signatures, self.checked)]
        return RegisterColumns(self.name, (generations, ranks, claims, hlcs, authors), of(self.seqs), tuple(map(of, self.values)), *proofs)

    @property
    def kind(self) -> tuple[str, int, bool]:
        """Its name, how many columns it has, and whether it is signed."""
        return self.name, len(self.values), self.signatures is not None

    @classmethod
    def joined(cls, parts: Sequence[RegisterColumns]) -> RegisterColumns:
        """The same register of all these rows, one behind the other; all are of one kind."""
        _, stamps, seqs, values, *proofs = zip(*parts, strict=True)
        generations, ranks, claims, hlcs, authors = (_behind(columns) for columns in zip(*stamps, strict=True))
        rest = [None if columns[0] is None else _behind(columns) for columns in proofs]
        columns = tuple([_behind(each) for each in zip(*values, strict=True)])
        return cls(parts[0].name, (generations, ranks, claims, hlcs, authors), _behind(seqs), columns, *rest)

    def writes(self, table: str, keys: Sequence[str]) -> Iterator[Write]:
        """The write of each row."""
        stamps = map(_make, repeat(Stamp), zip(*self.stamps, strict=True))
        values = zip(*self.values, strict=True) if self.values else repeat(())
        proofs = [repeat(None) if column is None else column for column in (self.bodies, self.signatures)]
        checked = repeat(False) if self.checked is None else self.checked
        parts = zip(repeat(table), keys, repeat(self.name), stamps, self.seqs, values, *proofs, checked)
        return map(_make, repeat(Write), parts)


class AlikeRows(NamedTuple):
    """Rows of one table that have the same registers, each of which one write is of."""

    table: str
    keys: Sequence[str]
    registers: tuple[RegisterColumns, ...]

    def part(self, start: int, stop: int) -> AlikeRows:
        """Some of the rows."""
        some = slice(start, stop)
        return AlikeRows(self.table, self.keys[some], tuple([each.ordered(lambda column: column[some]) for each in self.registers]))

    def writes(self) -> Iterator[Write]:
        """All writes, row by row."""
        return chain.from_iterable(zip(*[each.writes(self.table, self.keys) for each in self.registers], strict=True))


def join(rows: Iterable[AlikeRows]) -> list[AlikeRows]:
    """The same rows, those with the same registers together."""
    alike: dict[Any, list[AlikeRows]] = {}
    for each in rows:
        alike.setdefault((each.table, *[register.kind for register in each.registers]), []).append(each)
    return [_joined(each) if len(each) > 1 else each[0] for each in alike.values()]


def _joined(rows: Sequence[AlikeRows]) -> AlikeRows:
    registers = [RegisterColumns.joined(parts) for parts in zip(*[each.registers for each in rows], strict=True)]
    return AlikeRows(rows[0].table, _behind([each.keys for each in rows]), tuple(registers))


def _behind(columns: Iterable[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(columns))


class WellFormed(Sequence[Write]):
    """Writes of which everything was asked already that is asked of a peer's: single ones, and whole rows."""

    def __init__(self, single: Iterable[Write] = (), alike: Iterable[AlikeRows] = ()) -> None:
        self.single = tuple(single)
        self.alike = tuple(alike)

    @cached_property
    def _all(self) -> tuple[Write, ...]:
        return (*self.single, *chain.from_iterable(rows.writes() for rows in self.alike))

    @cached_property
    def numbers(self) -> dict[bytes, list[int]]:
        """The numbers of the writes, by author."""
        numbers: dict[bytes, list[int]] = {}
        _note(numbers, [write[3][4] for write in self.single], [write[4] for write in self.single])
        for each in chain.from_iterable(rows.registers for rows in self.alike):
            _note(numbers, each.stamps[4], each.seqs)
        return numbers

    def __len__(self) -> int:
        return len(self.single) + sum(len(rows.keys) * len(rows.registers) for rows in self.alike)

    def __iter__(self) -> Iterator[Write]:
        return iter(self._all)

    @overload
    def __getitem__(self, place: int) -> Write: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Write, ...]: ...
    def __getitem__(self, place: int | slice) -> Write | tuple[Write, ...]:
        return self._all[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (WellFormed, tuple)) and self._all == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._all!r})"

    def part(self, start: int, stop: int) -> WellFormed:
        """The single writes and rows with these places, single writes counted first and then the rows."""
        alike, before = [], len(self.single)
        for rows in self.alike:
            first, last = max(start - before, 0), min(stop - before, len(rows.keys))
            if first < last:
                alike.append(rows.part(first, last))
            before += len(rows.keys)
        return WellFormed(self.single[start:stop], alike)

    def of_table(self, table: str) -> WellFormed:
        """Those of one table."""
        return WellFormed([write for write in self.single if write[0] == table], [rows for rows in self.alike if rows.table == table])


def tables_of(writes: Sequence[Write]) -> set[str]:
    """The tables that these writes are of."""
    if isinstance(writes, WellFormed):
        return {rows.table for rows in writes.alike} | tables_of(writes.single)
    return {write[0] for write in writes}


def keys_of(writes: Sequence[Write]) -> set[str]:
    """The keys of the rows that these writes are of."""
    if isinstance(writes, WellFormed):
        return keys_of(writes.single).union(*[rows.keys for rows in writes.alike])
    return {write[1] for write in writes}


def authors_of(writes: Sequence[Write]) -> set[bytes]:
    """Who wrote these."""
    if isinstance(writes, WellFormed):
        return set(writes.numbers)
    return {write[3][4] for write in writes}


def numbers_of(writes: Sequence[Write]) -> Mapping[bytes, list[int]]:
    """The numbers of these writes, by author."""
    if isinstance(writes, WellFormed):
        return writes.numbers
    found: dict[bytes, list[int]] = {}
    _note(found, [write[3][4] for write in writes], [write[4] for write in writes])
    return found


def _note(numbers: dict[bytes, list[int]], authors: Sequence[bytes], seqs: Sequence[int]) -> None:
    if len(known := set(authors)) == 1:  # as nearly always
        numbers.setdefault(known.pop(), []).extend(seqs)
        return
    for author, seq in zip(authors, seqs, strict=True):
        numbers.setdefault(author, []).append(seq)
