"""How does a new row get into its table with the least work?

Most columns of a new row are empty. What is empty is neither named nor bound, and the derived columns are told so:
that halves an insert. Many rows share a statement. The status that a row begins with is known without reading it back.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from p2pqueue.replica.statements import Shape

Row = Sequence[Any]  # key, newest time, then values and kept parts by register
Counts = dict[str, int]
_Pick = Callable[[Row], tuple[Any, ...]]  # some of the values of a row
_TOGETHER = 20  # rows in one statement: a fifth faster than one by one, and other threads get in between less often
_MOST_PLANS = 128  # statements kept for a table: a peer chooses what its rows leave empty
_MOST_STATUSES = 1024  # answers kept by a statement


class _Plan(NamedTuple):
    """How rows that leave the same columns empty are inserted."""

    text: str
    many: Callable[[int], str]  # the same for so many rows
    given: _Pick  # what is bound
    left: _Pick  # what is not, and must be as `nothing`
    nothing: tuple[None, ...]
    status: str  # a query for the status that is counted
    used: _Pick  # the parameters of the insert that it takes
    known: dict[tuple[Any, ...], str | None]  # its answers


def insert_together(connection: sqlite3.Connection, rows: Sequence[Row], one: str, many: Callable[[int], str]) -> None:
    """Inserts rows: `one` is the statement for one of them, `many` gives it for that many."""
    shared = len(rows) - len(rows) % _TOGETHER
    if shared:
        text = many(_TOGETHER)
        for start in range(0, shared, _TOGETHER):
            connection.execute(text, tuple(chain.from_iterable(rows[start : start + _TOGETHER])))
    if len(rows) > shared:
        connection.executemany(one, rows[shared:])


class Inserting:
    """Inserts new rows of one table."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._counted = shape.table.counted
        self._plans: dict[tuple[tuple[str, ...], tuple[bool, ...]], _Plan] = {}
        self._latest: dict[tuple[str, ...], _Plan] = {}  # most rows that come alone are like the last one

    def insert(self, connection: sqlite3.Connection, registers: tuple[str, ...], rows: Sequence[Row]) -> Counts:
        """Inserts rows that have these registers and no others; gives how many begin with which status.

        Of an earlier row nothing may be left in the table but empty columns.
        """
        if len(rows) == 1:
            (row,) = rows
            plan = self._latest.get(registers)
            if plan is None or plan.left(row) != plan.nothing:
                plan = self._latest[registers] = self._plan(registers, row)
            given = plan.given(row)
            status = self._status(connection, plan, plan.used(given)) if self._counted else None
            connection.execute(plan.text, given)
            return {} if status is None else {status: 1}
        counts: Counts = {}
        if not rows:
            return counts
        groups: dict[str, tuple[_Plan, list[Row]]] = {}
        plan = self._plan(registers, rows[0])
        _, group = groups[plan.text] = plan, []
        for row in rows:
            if plan.left(row) != plan.nothing:  # neighbours are alike, mostly; a plan may bind what is empty, too
                plan = self._plan(registers, row)
                _, group = groups.setdefault(plan.text, (plan, []))
            given = plan.given(row)
            group.append(given)
            if self._counted:
                status = self._status(connection, plan, plan.used(given))
                if status is not None:
                    counts[status] = counts.get(status, 0) + 1
        for like, parameters in groups.values():
            insert_together(connection, parameters, like.text, like.many)
        return counts

    def insert_columns(self, connection: sqlite3.Connection, registers: tuple[str, ...], columns: Sequence[Sequence[Any]]) -> Counts:
        """As `insert` for rows that are given column by column: what is empty in some of them only is bound for all."""
        empty = tuple([column[0] is None and column.count(None) == len(column) for column in columns])
        plan = self._plan_of(registers, empty)
        given = plan.given(columns)
        counts: Counts = {}
        if self._counted:
            used = plan.used(given)
            for values, number in Counter(zip(*used, strict=True) if used else repeat((), len(columns[0]))).items():
                status = self._status(connection, plan, values)
                if status is not None:
                    counts[status] = counts.get(status, 0) + number
        insert_together(connection, list(zip(*given, strict=True)), plan.text, plan.many)
        return counts

    def _status(self, connection: sqlite3.Connection, plan: _Plan, used: tuple[Any, ...]) -> str | None:
        known = plan.known
        if used not in known:
            if len(known) >= _MOST_STATUSES:
                known.clear()
            (known[used],) = connection.execute(plan.status, used).fetchone()
        return known[used]

    def _plan(self, registers: tuple[str, ...], row: Row) -> _Plan:
        return self._plan_of(registers, tuple([value is None for value in row]))

    def _plan_of(self, registers: tuple[str, ...], empty: tuple[bool, ...]) -> _Plan:
        plan = self._plans.get((registers, empty))
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                empty = (False,) * len(empty)
            plan = self._plans.get((registers, empty)) or self._make(registers, empty)
        return plan

    def _make(self, registers: tuple[str, ...], empty: tuple[bool, ...]) -> _Plan:
        shape = self._shape
        named = [name for name, is_empty in zip(shape.columns(registers), empty[2:], strict=True) if not is_empty]
        used = [name for name in ("updated_at", *named) if name in shape.counts_by] if self._counted else []
        places = {name: index for index, name in enumerate(["updated_at", *named], 1)}
        text = cache(lambda rows: shape.insert(registers, frozenset(named), rows=rows))
        status = shape.status_of_new({name: f"?{number}" for number, name in enumerate(used, 1)}) if self._counted else ""
        given, left = ([index for index, each in enumerate(empty) if each is wanted] for wanted in (False, True))
        plan = _Plan(
            text(1), text, _picking(given), _picking(left), (None,) * len(left), status, _picking([places[name] for name in used]), {}
        )
        self._plans[registers, empty] = plan
        return plan


def _picking(places: Sequence[int]) -> _Pick:
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda row: ()
    (place,) = places
    return lambda row: (row[place],)
