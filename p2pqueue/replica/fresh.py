"""How do a peer's writes of rows that are new here get in with the least work?

A device that joins gets nothing else. Nothing stands that they could contest with, so that their values go from the
message into the statements. Whatever is odd about one write of a row sends the row the long way, through `contest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p2pqueue.clock import COUNTER_BITS
from p2pqueue.replica.batch import Batch
from p2pqueue.replica.contest import is_plainly_signed
from p2pqueue.replica.counting import insert_new
from p2pqueue.replica.first_changes import Registers, insert_changes_of_rows
from p2pqueue.replica.stamp import RETRY_BITS
from p2pqueue.replica.statements import Parts, Shape
from p2pqueue.replica.system import ALWAYS_VERIFIED
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
    by_key: dict[str, list[Write]] = {}
    for write in writes:
        key = write[1]
        if key in by_key:
            by_key[key].append(write)
        elif key not in known:
            by_key[key] = [write]
    for key in sorted(by_key):  # pages are met in their order
        if new.take(key, by_key[key]):
            del by_key[key]
    for registers, (rows, changes) in new.rows.items():
        insert_new(batch.connection, shape, registers, rows)
        insert_changes_of_rows(batch.connection, shape.name, new.named(registers), changes)
    left = [write for write in writes if write[1] in known or write[1] in by_key] if new.taken < len(writes) else ()
    return new, left


class NewRows:
    """New rows of one table, as the statements take them."""

    def __init__(self, shape: Shape) -> None:
        self.keys: list[str] = []
        self.rows: dict[_Names, tuple[list[list[Any]], list[list[Any]]]] = {}  # what goes into the table, and into `changes`
        self.taken = 0  # writes
        self.newest = 0  # the latest time among them
        self._shape = shape
        self._plans: dict[_Names, _Plan] = {}
        self._authors: dict[bytes, bytearray] = {}  # the sqlite3 module binds a bytearray in a third of the time

    def take(self, key: str, writes: Sequence[Write]) -> bool:
        """Takes the row that these writes make; False, and nothing is taken, where one of them is odd."""
        names = tuple([write[2] for write in writes])
        plan = self._plans.get(names)
        if plan is None:
            plan = self._plans[names] = self._plan(names)
        authors = self._authors
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
            change += (authors.get(author) or authors.setdefault(author, bytearray(author)), seq, generation, rank, claim, hlc)
            if signed:
                if not checked and not is_plainly_signed(write):
                    return False
                change += (body, signature, 1 if checked else 0)
            elif body is not None or signature is not None:
                return False
        if not newest:
            return False
        if newest > self.newest:
            self.newest = newest
        row[1] = newest >> COUNTER_BITS
        self.keys.append(key)
        self.taken += len(plan)
        rows, changes = self.rows.get(names) or self.rows.setdefault(names, ([], []))
        rows.append(row)
        changes.append(change)
        return True

    def named(self, names: _Names) -> Registers:
        """These registers, and which of them are signed."""
        return tuple([(name, name in self._shape.signed) for name in names])

    def _plan(self, names: _Names) -> _Plan:
        """Empty where one of the registers is unknown or comes twice."""
        shape = self._shape
        if len(set(names)) < len(names) or not shape.kept.keys() >= set(names):
            return ()
        return tuple([(shape.width[name], shape.kept[name], name in shape.signed) for name in names])
