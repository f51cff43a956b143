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
from p2pqueue.replica.stamp import RETRY_BITS
from p2pqueue.replica.statements import Parts, Shape, insert_new_changes
from p2pqueue.replica.system import ALWAYS_VERIFIED
from p2pqueue.replica.write import Write

_SECOND_LIFE = 1 << RETRY_BITS  # the first generation of it
_CHAINED = frozenset(table for table, _ in ALWAYS_VERIFIED)

_Registers = tuple[str, ...]
_Plan = tuple[tuple[int, Parts, bool], ...]  # of each register: how many columns, what is kept of its stamp, whether it is signed


def take_new(batch: Batch, writes: Sequence[Write]) -> tuple[list[str], int, Sequence[Write]]:
    """Inserts the rows that are plainly new; gives their keys, how many writes they took, and the writes that are left."""
    shape, known = batch.shape, batch.known
    if shape.name in _CHAINED or batch.ended:
        return [], 0, writes
    by_key: dict[str, list[Write]] = {}
    for write in writes:
        key = write[1]
        if key in by_key:
            by_key[key].append(write)
        elif key not in known:
            by_key[key] = [write]
    new = _New(shape)
    for key in sorted(by_key):  # pages are met in their order
        if new.take(key, by_key[key]):
            del by_key[key]
    for registers, rows in new.rows.items():
        insert_new(batch.connection, shape, registers, rows)
    insert_new_changes(batch.connection, new.changes)
    taken = len(new.changes)
    return new.keys, taken, [write for write in writes if write[1] in known or write[1] in by_key] if taken < len(writes) else ()


class _New:
    """New rows of one table, as the statements take them."""

    def __init__(self, shape: Shape) -> None:
        self.keys: list[str] = []
        self.rows: dict[_Registers, list[list[Any]]] = {}
        self.changes: list[tuple[Any, ...]] = []
        self._shape = shape
        self._plans: dict[_Registers, _Plan] = {}
        self._authors: dict[bytes, bytearray] = {}  # the sqlite3 module binds a bytearray in a third of the time

    def take(self, key: str, writes: Sequence[Write]) -> bool:
        """Takes the row that these writes make; False, and nothing is taken, where one of them is odd."""
        registers = tuple([write[2] for write in writes])
        plan = self._plans.get(registers)
        if plan is None:
            plan = self._plans[registers] = self._plan(registers)
        table, authors, changes = self._shape.name, self._authors, []
        row: list[Any] = [key, 0]
        newest = 0
        for (width, parts, signed), write in zip(plan, writes):  # noqa: B905  no plan where a register is odd
            _, _, register, stamp, seq, values, body, signature, checked = write
            generation, rank, claim, hlc, author = stamp
            if len(values) != width or generation >= _SECOND_LIFE:
                return False
            if signed:
                if not is_plainly_signed(write):
                    return False
            elif body is not None or signature is not None:
                return False
            else:
                checked = True
            row += values
            row += parts(stamp)
            if hlc > newest or -hlc > newest:
                newest = abs(hlc)
            by = authors.get(author) or authors.setdefault(author, bytearray(author))
            changes.append((table, key, register, by, seq, generation, rank, claim, hlc, body, signature, 1 if checked else 0))
        if not changes:
            return False
        row[1] = newest >> COUNTER_BITS
        self.keys.append(key)
        self.changes += changes
        if registers in self.rows:
            self.rows[registers].append(row)
        else:
            self.rows[registers] = [row]
        return True

    def _plan(self, registers: _Registers) -> _Plan:
        """Empty where one of the registers is unknown or comes twice."""
        shape = self._shape
        if len(set(registers)) < len(registers) or not shape.kept.keys() >= set(registers):
            return ()
        return tuple([(shape.width[name], shape.kept[name], name in shape.signed) for name in registers])
