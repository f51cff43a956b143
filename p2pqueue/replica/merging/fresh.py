"""How do a peer's writes of rows that are new here get in with the least work?

A device that joins gets nothing else. Nothing stands that they could contest with, so that their values go from the
message into the statements. Whatever is odd about one write of a row sends the row the long way, through `contest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from p2pqueue.clock import COUNTER_BITS
from p2pqueue.replica.counting import insert_new, insert_new_columns
from p2pqueue.replica.merging.batch import Batch
from p2pqueue.replica.merging.contest import is_plainly_signed
from p2pqueue.replica.merging.first_changes import Registers, insert_changes_of_rows
from p2pqueue.replica.stamp import RETRY_BITS
from p2pqueue.replica.statements import Parts, Shape
from p2pqueue.replica.system import ALWAYS_VERIFIED
from p2pqueue.replica.wire.columns import AlikeRows, RegisterColumns, WellFormed, keys_of
from p2pqueue.replica.write import Write

_SECOND_LIFE = 1 << RETRY_BITS  # the first generation of it
_CHAINED = frozenset(table for table, _ in ALWAYS_VERIFIED)

_Names = tuple[str, ...]
_Plan = tuple[tuple[int, Parts, bool], ...]  # of each register: how many columns, what is kept of its stamp, whether it is signed


def take_new(batch: Batch, writes: Sequence[Write]) -> tuple[NewRows, Sequence[Write]]:
    """Inserts the rows that are plainly new; gives them, and the writes that are left."""
    shape, known = batch.shape, batch.known
    new = NewRows(shape)
    if shape.name in _CHAINED or batch.ended:
        return new, writes
    if isinstance(writes, WellFormed) and writes.alike and _are_apart(writes):
        left = [rows for rows in writes.alike if not (known.keys().isdisjoint(rows.keys) and new.take_alike(rows))]
        writes = [*writes.single, *chain.from_iterable(rows.writes() for rows in left)]
    before = new.taken
    by_key: dict[str, list[Write]] = {}
    for write in writes:
        key = write[1]
        if key in by_key:
            by_key[key].append(write)
        elif key not in known:
            by_key[key] = [write]
    for key in sorted(by_key):  # pages are met in their order
        if new.take(tuple([write[2] for write in by_key[key]]), key, by_key[key]):
            del by_key[key]
    for registers, (rows, changes) in new.rows.items():
        insert_new(batch.connection, shape, registers, rows)
        insert_changes_of_rows(batch.connection, shape.name, new.named(registers), changes)
    for registers, columns, changes in new.alike:
        insert_new_columns(batch.connection, shape, registers, columns)
        insert_changes_of_rows(batch.connection, shape.name, new.named(registers), changes)
    return new, [write for write in writes if write[1] in known or write[1] in by_key] if new.taken - before < len(writes) else ()


def _are_apart(writes: WellFormed) -> bool:
    """Says whether each of these rows comes once: what is taken column by column is not looked at again."""
    number = len({write[1] for write in writes.single}) + sum(len(rows.keys) for rows in writes.alike)
    return len(keys_of(writes)) == number


class NewRows:
    """New rows of one table, as the statements take them."""

    def __init__(self, shape: Shape) -> None:
        self.keys: list[str] = []
        self.rows: dict[_Names, tuple[list[Sequence[Any]], list[Sequence[Any]]]] = {}  # what goes into the table, and into `changes`
        self.alike: list[tuple[_Names, Sequence[Sequence[Any]], list[Sequence[Any]]]] = []  # the same, into the table column by column
        self.taken = 0  # writes
        self.newest = 0  # the latest time among them
        self._shape = shape
        self._plans: dict[_Names, _Plan] = {}
        self._authors: dict[bytes, bytearray] = {}  # the sqlite3 module binds a bytearray in a third of the time

    def take_alike(self, rows: AlikeRows) -> bool:
        """Takes rows column by column; False, and none is taken, where one of them is odd, or unchecked."""
        names = tuple([each.name for each in rows.registers])
        plan = self._plan_of(names)
        if not plan:
            return False
        keys, registers = _in_order(rows)
        columns: list[Sequence[Any]] = []
        changes: list[Iterable[Any]] = [keys]
        times: list[Iterable[int]] = [repeat(0)]
        for (width, kept, signed), each in zip(plan, registers, strict=True):
            generations, ranks, claims, hlcs, authors = each.stamps
            if len(each.values) != width or max(generations) >= _SECOND_LIFE or signed is not bool(each.checked and all(each.checked)):
                return False
            columns += each.values
            columns += kept(each.stamps)  # type: ignore[arg-type]
            times.append(map(abs, hlcs))
            changes += (self._all_bound(authors), each.seqs, generations, ranks, claims, hlcs)
            if signed:
                assert each.bodies is not None
                assert each.signatures is not None
                changes += (each.bodies, each.signatures, repeat(1))
            elif each.signatures is not None:
                return False
        newest = list(map(max, *times))
        if not min(newest):
            return False
        self._note(names, keys, newest)
        moments = [time >> COUNTER_BITS for time in newest]
        self.alike.append((names, [keys, moments, *columns], list(zip(*changes))))  # noqa: B905  a repeated one has no end
        return True

    def take(self, names: _Names, key: str, writes: Sequence[Write]) -> bool:
        """Takes the row that these writes make; False, and nothing is taken, where one of them is odd."""
        plan = self._plan_of(names)
        row: list[Any] = [key, 0]
        change: list[Any] = [key]
        newest = 0
        for (width, parts, signed), write in zip(plan, writes):  # noqa: B905  no plan where a register is odd
            _, _, _, stamp, seq, values, body, signature, checked = write
            generation, rank, claim, hlc, author = stamp
            if len(values) != width or generation >= _SECOND_LIFE:
                return False
            row += values
            row += parts(stamp)
            if hlc > newest or -hlc > newest:
                newest = abs(hlc)
            change += (self._bound(author), seq, generation, rank, claim, hlc)
            if signed:
                if not checked and not is_plainly_signed(write):
                    return False
                change += (body, signature, 1 if checked else 0)
            elif body is not None or signature is not None:
                return False
        if not newest:
            return False
        row[1] = newest >> COUNTER_BITS
        self._note(names, (key,), (newest,))
        rows, changes = self.rows.get(names) or self.rows.setdefault(names, ([], []))
        rows.append(row)
        changes.append(change)
        return True

    def named(self, names: _Names) -> Registers:
        """These registers, and which of them are signed."""
        return tuple([(name, name in self._shape.signed) for name in names])

    def _note(self, names: _Names, keys: Sequence[str], newest: Sequence[int]) -> None:
        self.keys += keys
        self.newest = max(self.newest, *newest)
        self.taken += len(names) * len(keys)

    def _bound(self, author: bytes) -> bytearray:
        return self._authors.get(author) or self._authors.setdefault(author, bytearray(author))

    def _all_bound(self, authors: Sequence[bytes]) -> Iterable[bytearray]:
        return repeat(self._bound(authors[0])) if len(set(authors)) == 1 else map(self._bound, authors)

    def _plan_of(self, names: _Names) -> _Plan:
        plan = self._plans.get(names)
        if plan is None:
            plan = self._plans[names] = self._plan(names)
        return plan

    def _plan(self, names: _Names) -> _Plan:
        """Empty where one of the registers is unknown or comes twice."""
        shape = self._shape
        if len(set(names)) < len(names) or not shape.kept.keys() >= set(names):
            return ()
        return tuple([(shape.width[name], shape.kept[name], name in shape.signed) for name in names])


def _in_order(rows: AlikeRows) -> tuple[Sequence[str], Sequence[RegisterColumns]]:
    """The rows in the order of their keys: pages are met in theirs. The newest come first, as a rule."""
    keys = sorted(rows.keys)
    if keys == rows.keys:
        return keys, rows.registers
    if keys[::-1] == rows.keys:
        ordered: Callable[[Sequence[Any]], Sequence[Any]] = lambda column: column[::-1]  # noqa: E731
    else:
        ordered = itemgetter(*sorted(range(len(keys)), key=rows.keys.__getitem__))
    return keys, [each.ordered(ordered) for each in rows.registers]
