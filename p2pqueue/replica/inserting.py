"""How does a new row get into its table with the least work?

Most columns of a new row are empty. What is empty is neither named nor bound, and the derived columns are told so:
that halves an insert. The status that the row begins with is known without reading it back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from p2pqueue.replica.statements import Shape

Row = Sequence[Any]  # key, newest time, then values and kept parts by register
Counts = dict[str, int]
_MOST_PLANS = 128  # statements kept for a table: a peer chooses what its rows leave empty
_MOST_STATUSES = 1024  # answers kept by a statement


class _Plan(NamedTuple):
    """How rows that leave the same columns empty are inserted."""

    text: str
    whole: bool  # empty columns are bound as well
    status: str  # a query for the status that is counted
    used: tuple[int, ...]  # the parameters of the insert that it takes
    known: dict[tuple[Any, ...], str | None]  # its answers


class Inserting:
    """Inserts new rows of one table."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._counted = shape.table.counted
        self._plans: dict[tuple[tuple[str, ...], tuple[bool, ...]], _Plan] = {}

    def insert(self, connection: sqlite3.Connection, registers: tuple[str, ...], rows: Sequence[Row]) -> Counts:
        """Inserts rows that have these registers and no others; gives how many begin with which status.

        Of an earlier row nothing may be left in the table but empty columns.
        """
        if len(rows) == 1:
            plan, given = self._planned(registers, rows[0])
            status = self._status(connection, plan, given) if self._counted else None
            connection.execute(plan.text, given)
            return {} if status is None else {status: 1}
        counts: Counts = {}
        groups: dict[str, list[Row]] = {}
        for row in rows:
            plan, given = self._planned(registers, row)
            group = groups.get(plan.text)
            if group is None:
                groups[plan.text] = [given]
            else:
                group.append(given)
            if self._counted:
                status = self._status(connection, plan, given)
                if status is not None:
                    counts[status] = counts.get(status, 0) + 1
        for text, parameters in groups.items():
            connection.executemany(text, parameters)
        return counts

    def _planned(self, registers: tuple[str, ...], row: Row) -> tuple[_Plan, Row]:
        empty = tuple([value is None for value in row])
        plan = self._plans.get((registers, empty)) or self._plan(registers, empty)
        return plan, row if plan.whole else [value for value in row if value is not None]

    def _status(self, connection: sqlite3.Connection, plan: _Plan, given: Row) -> str | None:
        used = tuple([given[index] for index in plan.used])
        known = plan.known
        if used not in known:
            if len(known) >= _MOST_STATUSES:
                known.clear()
            (known[used],) = connection.execute(plan.status, used).fetchone()
        return known[used]

    def _plan(self, registers: tuple[str, ...], empty: tuple[bool, ...]) -> _Plan:
        whole = len(self._plans) >= _MOST_PLANS
        if whole:
            empty = (False,) * len(empty)
        plan = self._plans.get((registers, empty))
        if plan is None:
            named = [name for name, is_empty in zip(self._shape.columns(registers), empty[2:], strict=True) if not is_empty]
            used = [name for name in ("updated_at", *named) if name in self._shape.counts_by] if self._counted else []
            places = {name: index for index, name in enumerate(["updated_at", *named], 1)}
            text = self._shape.insert(registers, frozenset(named))
            status = self._shape.status_of_new({name: f"?{number}" for number, name in enumerate(used, 1)}) if self._counted else ""
            plan = self._plans[registers, empty] = _Plan(text, whole, status, tuple(places[name] for name in used), {})
        return plan
