"""How many rows have each status? Counters follow each change of a batch, so that nobody has to count a million rows.

Triggers would do it row by row, and cost as much again as the change itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from p2pqueue.replica.inserting import Row
from p2pqueue.replica.statements import Shape

_ADD = "INSERT INTO counts (tbl, status, n) VALUES (?, ?, ?) ON CONFLICT (tbl, status) DO UPDATE SET n = n + excluded.n"

Statuses = list[tuple[str]]


@contextmanager
def counting(connection: sqlite3.Connection, shape: Shape, keys: Collection[str]) -> Iterator[None]:
    """Keeps the counters right across a change to these rows."""
    if not shape.table.counted or not keys:
        yield
        return
    listed = list(keys)
    before = statuses(connection, shape, listed)
    yield
    recount(connection, shape, before, statuses(connection, shape, listed))


def statuses(connection: sqlite3.Connection, shape: Shape, keys: Sequence[str]) -> Statuses:
    """The status of each of these rows that is live."""
    if len(keys) == 1:
        return connection.execute(shape.select_status, (keys[0],)).fetchall()
    return connection.execute(shape.select_statuses, (json.dumps(keys),)).fetchall()


def recount(connection: sqlite3.Connection, shape: Shape, before: Statuses, after: Statuses) -> None:
    """Moves the counters by what became of some rows."""
    if before == after:
        return
    difference: dict[str, int] = {}
    for (status,) in after:
        difference[status] = difference.get(status, 0) + 1
    for (status,) in before:
        difference[status] = difference.get(status, 0) - 1
    for status, number in difference.items():
        if number:
            add(connection, shape, status, number)


def insert_new(connection: sqlite3.Connection, shape: Shape, registers: tuple[str, ...], rows: Sequence[Row]) -> None:
    """Inserts rows that were not there before, with these registers, and counts them in."""
    for status, number in shape.inserting.insert(connection, registers, rows).items():
        add(connection, shape, status, number)


def add(connection: sqlite3.Connection, shape: Shape, status: str, number: int) -> None:
    """Moves one counter."""
    connection.execute(_ADD, (shape.name, status, number))
