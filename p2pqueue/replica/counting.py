"""How many rows have each status? Counters follow each change of a batch, so that nobody has to count a million rows.

Triggers would do it row by row, and cost as much again as the change itself. What a commit adds to the counters may
stand in its row of `commits` for a while, as [[table, status, number], …] in JSON: so it writes no page for them. The
view `counts` adds up both.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from p2pqueue.replica.merging.inserting import Row
from p2pqueue.replica.statements import Shape

_ADD = "INSERT INTO totals (tbl, status, n) VALUES (?, ?, ?) ON CONFLICT (tbl, status) DO UPDATE SET n = n + excluded.n"
BLOCK = 64  # numbers of own writes after which the totals catch up with the commits: then `fold` is called
MOVED = "json_extract(value, '$[0]') AS tbl, json_extract(value, '$[1]') AS status, json_extract(value, '$[2]') AS n"
_FOLD = (
    f"INSERT INTO totals (tbl, status, n) SELECT tbl, status, sum(n) FROM (SELECT {MOVED} FROM commits, json_each(moved) "
    "WHERE seq >= ? AND moved IS NOT NULL) GROUP BY tbl, status ON CONFLICT (tbl, status) DO UPDATE SET n = n + excluded.n"
)

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
    add_all(connection, shape.name, difference)


def insert_new(connection: sqlite3.Connection, shape: Shape, registers: tuple[str, ...], rows: Sequence[Row]) -> None:
    """Inserts rows that were not there before, with these registers, and counts them in."""
    add_all(connection, shape.name, shape.inserting.insert(connection, registers, rows))


def insert_new_columns(connection: sqlite3.Connection, shape: Shape, registers: tuple[str, ...], columns: Sequence[Sequence[Any]]) -> None:
    """As `insert_new`, for rows that are given column by column."""
    add_all(connection, shape.name, shape.inserting.insert_columns(connection, registers, columns))


def add_all(connection: sqlite3.Connection, table: str, counts: Mapping[str, int]) -> None:
    """Moves counters."""
    for status, number in counts.items():
        if number:
            connection.execute(_ADD, (table, status, number))


def fold(connection: sqlite3.Connection, last: int) -> None:
    """Brings into the totals what stands in the rows of commits from the block of this number on."""
    start = last // BLOCK * BLOCK
    connection.execute(_FOLD, (start,))
    connection.execute("UPDATE commits SET moved = NULL WHERE seq >= ? AND moved IS NOT NULL", (start,))


def pack_moved(moved: Mapping[tuple[str, str], int]) -> str:
    """What a commit adds to the counters, as it stands in its row."""
    return _packed(tuple(moved.items()))


@lru_cache(maxsize=64)  # nearly always it is one more queued job
def _packed(moved: tuple[tuple[tuple[str, str], int], ...]) -> str:
    return json.dumps([[table, status, number] for (table, status), number in moved])
