"""What do the digests of this replica say, and which writes stand in one of their buckets?"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from p2pqueue import wire
from p2pqueue.replica.reading import row_writes
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.statements import Shape, live_sql, quote
from p2pqueue.replica.syncing.digest import Digests, bucket_of
from p2pqueue.replica.write import Write

_PART = "c.generation, c.rank, c.claim, c.hlc, c.author"


def digests(connection: sqlite3.Connection, shapes: Mapping[str, Shape]) -> dict[str, bytes]:
    """The digests of every table known here, over the rows that are live and have not ended."""
    found = {}
    for name, shape in shapes.items():
        taken = Digests(name)
        for register in shape.registers:
            for key, *stamp, body, columns in _entries(connection, shape, register):
                taken.add(key, register, Stamp(*stamp), wire.pack(list(columns)) if body is None else body)
        for key, register, *stamp, body in _kept_entries(connection, shape):
            taken.add(key, register, Stamp(*stamp), body)
        found[name] = taken.packed()
    return found


def bucket_writes(
    connection: sqlite3.Connection, shapes: Mapping[str, Shape], table: str, bucket: int, *, after: str | None, limit: int
) -> tuple[list[Write], str | None]:
    """A page of the writes of one bucket's rows in the order of their keys, and where the next begins."""
    shape = shapes.get(table)
    if shape is None:
        return [], None
    key = quote(shape.table.key)
    query = f"SELECT {key} FROM {quote(table)} WHERE {key} > ? AND {going_on(shape)} ORDER BY {key}"
    found: list[Write] = []
    for (name,) in connection.execute(query, (after or "",)):
        if bucket_of(table, name) != bucket:
            continue
        writes = row_writes(connection, shapes, table, [name])
        if found and len(found) + len(writes) > limit:
            return found, found[-1].key
        found += writes
    return found, None


def greater_writes(connection: sqlite3.Connection, shapes: Mapping[str, Shape], theirs: Iterable[Write]) -> list[Write]:
    """Of the rows of some writes, those of ours that stand above them or that they lack; of ended rows too."""
    told: dict[tuple[str, str], dict[str, Stamp]] = {}
    for write in theirs:
        told.setdefault((write.table, write.key), {})[write.register] = write.stamp
    found: list[Write] = []
    for (table, key), registers in told.items():
        if table in shapes:
            ours = row_writes(connection, shapes, table, [key])
            found += [write for write in ours if write.register not in registers or write.stamp > registers[write.register]]
    return found


def going_on(shape: Shape) -> str:
    """An SQL condition on a row: it is live, its creating write was checked, and it has not ended."""
    unchecked = (
        "SELECT key FROM changes INDEXED BY changes_unverified "
        f"WHERE verified = 0 AND tbl = '{shape.name}' AND register = '{shape.creating}'"
    )
    return f"{live_sql(shape.table)} AND NOT coalesce(({shape.table.ended}), 0) AND {quote(shape.table.key)} NOT IN ({unchecked})"


def _rows(shape: Shape) -> str:
    return f"(SELECT * FROM {quote(shape.name)} WHERE {going_on(shape)}) AS t"


def _entries(connection: sqlite3.Connection, shape: Shape, register: str) -> Iterable[tuple[Any, ...]]:
    columns = [f"t.{quote(column.sql_name)}" for column in shape.registers[register].columns]
    query = (
        f"SELECT c.key, {_PART}, c.body, {', '.join(columns)} FROM changes AS c JOIN {_rows(shape)} ON t.{quote(shape.table.key)} = c.key "
        "WHERE c.tbl = ? AND c.register = ? AND c.verified = 1"
    )
    for row in connection.execute(query, (shape.name, register)):
        yield (*row[:7], row[7:])


def _kept_entries(connection: sqlite3.Connection, shape: Shape) -> Iterable[tuple[Any, ...]]:
    """What is kept unread for an upgrade, and what was set aside because it couldn't be stored."""
    key, names = quote(shape.table.key), ", ".join("?" * len(shape.registers))
    unread = (
        f"SELECT c.key, c.register, {_PART}, c.body FROM changes AS c JOIN {_rows(shape)} ON t.{key} = c.key "
        f"WHERE c.tbl = ? AND c.register NOT IN ({names}) AND c.body IS NOT NULL"
    )
    yield from connection.execute(unread, (shape.name, *shape.registers))
    aside = (
        f"SELECT c.key, c.register, {_PART}, c.body FROM set_aside AS c WHERE c.tbl = ? AND c.held "
        f"AND (c.key NOT IN (SELECT {key} FROM {quote(shape.name)}) OR c.key IN (SELECT t.{key} FROM {_rows(shape)}))"
    )
    yield from connection.execute(aside, (shape.name,))
