"""When does a row that ended leave this replica, and what remains of it?

Each replica drops for itself what ended longer than retention ago, once the creating write is counted here: then
the row can't come back. Keys that carry no time keep key and life, so that a latecomer can't begin an old life anew.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from p2pqueue.clock import COUNTER_BITS
from p2pqueue.replica.merging.merged import RowRef
from p2pqueue.replica.statements import Shape, live_sql, quote
from p2pqueue.replica.system import SYSTEM_NAMES

if TYPE_CHECKING:
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.writer import Writer

BATCH = 500  # rows dropped in one transaction
HELD_FOR_MS = 86_400_000  # a row is asked about once it has been here for a day
_Find = Callable[..., list[str]]


def prune_all(replica: Replica, retention_ms: int) -> list[int]:
    """Prunes every table; gives how many rows went in each.

    What may go is looked up in reading transactions, which hold up nobody; writing ones only check it again.
    """
    return [_prune_table(replica, shape, retention_ms) for shape in replica.shapes.values() if shape.name not in SYSTEM_NAMES]


def prune(writer: Writer, table: str, retention_ms: int, now: int, *, limit: int = BATCH) -> int:
    """Drops up to `limit` rows of a table that ended more than `retention_ms` before `now`; gives how many."""
    shape, connection = writer.shapes[table], writer.connection
    _note(writer, shape, _future_ends(connection, shape, now), now)
    keys = _ended_keys(connection, shape, now - retention_ms, limit)
    if len(keys) < limit:
        keys += _rowless_keys(connection, shape, now - retention_ms, limit - len(keys))
    drop(writer, shape, keys)
    return len(keys)


def _prune_table(replica: Replica, shape: Shape, retention_ms: int) -> int:
    future = replica.read(lambda connection: _future_ends(connection, shape, replica.now()))
    if future:
        replica.write(lambda writer: _note(writer, shape, future, writer.now))
    went = 0
    for find in (_ended_keys, _rowless_keys):
        while True:
            keys = replica.read(lambda connection, find=find: find(connection, shape, replica.now() - retention_ms, BATCH))  # type: ignore[misc]
            if not keys:
                break
            dropped = replica.write(lambda writer, find=find, keys=keys: _drop_still(writer, shape, find, keys, retention_ms))  # type: ignore[misc]
            went += dropped
            if len(keys) < BATCH or not dropped:
                break
    return went


def _drop_still(writer: Writer, shape: Shape, find: _Find, keys: Sequence[str], retention_ms: int) -> int:
    still = find(writer.connection, shape, writer.now - retention_ms, len(keys), keys)
    drop(writer, shape, still)
    return len(still)


def drop(writer: Writer, shape: Shape, keys: Sequence[str]) -> None:
    """Takes rows out, with all that was kept of them; a key without a time leaves its life behind."""
    connection, name = writer.connection, shape.name
    if shape.has_life:
        query = "SELECT generation >> 16 FROM changes WHERE tbl = ? AND key = ? AND register = ?"
        for key in keys:
            life = None if carries_time(key) else connection.execute(query, (name, key, shape.creating)).fetchone()
            if life is not None:
                connection.execute("INSERT OR REPLACE INTO tombstones (tbl, key, life) VALUES (?, ?, ?)", (name, key, life[0]))
    parameters = [(name, key) for key in keys]
    connection.executemany("DELETE FROM changes WHERE tbl = ? AND key = ?", parameters)
    connection.executemany("DELETE FROM set_aside WHERE tbl = ? AND key = ?", parameters)
    connection.executemany("DELETE FROM endings WHERE tbl = ? AND key = ?", parameters)
    connection.executemany(f"DELETE FROM {quote(name)} WHERE {quote(shape.table.key)} = ?", [(key,) for key in keys])
    writer.touched.update(parameters)


def carries_time(key: str) -> bool:
    """Says whether a key is, or begins with, an id made from the clock."""
    try:
        return uuid.UUID(key[:36]).version == 7
    except ValueError:
        return False


def _end_of(shape: Shape) -> tuple[str, str]:
    """SQL: whether a row has ended, and when. A clock far behind can't have ended it before its newest write was made."""
    deleted = "coalesce(deleted, 0) <> 0" if shape.has_life else "0"
    return f"({deleted} OR ({shape.table.ended}))", f"max(coalesce(({shape.table.ended_at}), 0), updated_at)"


def _ended_keys(connection: sqlite3.Connection, shape: Shape, before: int, limit: int, among: Sequence[str] | None = None) -> list[str]:
    table, key = quote(shape.name), quote(shape.table.key)
    ended, ended_at = _end_of(shape)
    # An end in the future by this device's clock counts from when it was first seen here.
    query = (
        f"SELECT {table}.{key} FROM {table} LEFT JOIN endings ON endings.tbl = ? AND endings.key = {table}.{key} "
        f"WHERE {quote(shape.creating + '_generation')} IS NOT NULL AND {ended} "
        f"AND min({ended_at}, coalesce(endings.seen, {ended_at})) < ? AND {_COUNTED.format(table=table, key=key)} {_named(shape)} "
        f"{_among(table, key, among)} LIMIT ?"
    )
    parameters = (shape.name, before, shape.name, shape.creating, *_listed(among), limit)
    return [row[0] for row in connection.execute(query, parameters)]


def _among(table: str, key: str, keys: Sequence[str] | None) -> str:
    return "" if keys is None else f"AND {table}.{key} IN (SELECT value FROM json_each(?))"


def _listed(keys: Sequence[str] | None) -> tuple[str, ...]:
    return () if keys is None else (json.dumps(list(keys)),)


_COUNTED = (
    "EXISTS (SELECT 1 FROM changes JOIN heads ON heads.author = changes.author AND heads.seq >= changes.seq "
    "WHERE changes.tbl = ? AND changes.key = {table}.{key} AND changes.register = ? AND changes.verified = 1)"
)


def _named(shape: Shape) -> str:
    """A condition: no live row names this one in its column `after`, where the table has one."""
    if "after" not in {column.sql_name for register in shape.registers.values() for column in register.columns}:
        return ""
    table, key = quote(shape.name), quote(shape.table.key)
    waiting = f"{live_sql(shape.table, 'waiting.')} AND NOT coalesce(({_qualified(shape.table.ended)}), 0)"
    names = "json_each(CASE WHEN json_valid(waiting.after) THEN waiting.after ELSE '[]' END)"
    return (
        f"AND {table}.{key} NOT IN (SELECT named.value FROM {table} AS waiting, {names} AS named "
        f"WHERE waiting.after IS NOT NULL AND {waiting} AND named.value IS NOT NULL)"
    )


def _qualified(condition: str) -> str:
    return condition.replace("status", "waiting.status", 1) if condition.startswith("status") else condition


def _future_ends(connection: sqlite3.Connection, shape: Shape, now: int) -> list[str]:
    table, key = quote(shape.name), quote(shape.table.key)
    ended, ended_at = _end_of(shape)
    query = f"SELECT {key} FROM {table} WHERE {ended} AND {ended_at} > ? AND {key} NOT IN (SELECT key FROM endings WHERE tbl = ?)"
    return [key for (key,) in connection.execute(query, (now, shape.name))]


def _note(writer: Writer, shape: Shape, keys: Iterable[str], now: int) -> None:
    query = "INSERT OR IGNORE INTO endings (tbl, key, seen) VALUES (?, ?, ?)"
    writer.connection.executemany(query, [(shape.name, key, now) for key in keys])


def _rowless_keys(connection: sqlite3.Connection, shape: Shape, before: int, limit: int, among: Sequence[str] | None = None) -> list[str]:
    """Registers without their row that are counted: a `done` brings the creating write along, so the row ended.

    A loose one may only be waiting for its row: newest writes come first.
    """
    table, key = quote(shape.name), quote(shape.table.key)
    creating = quote(shape.creating + "_generation")
    query = (
        f"SELECT {key} FROM {table} WHERE {creating} IS NULL AND updated_at < ? AND NOT EXISTS (SELECT 1 FROM changes "
        f"LEFT JOIN heads ON heads.author = changes.author WHERE changes.tbl = ? AND changes.key = {table}.{key} "
        f"AND changes.seq > coalesce(heads.seq, 0)) {_among(table, key, among)} LIMIT ?"
    )
    return [row[0] for row in connection.execute(query, (before, shape.name, *_listed(among), limit))]


def live_rows_since(
    connection: sqlite3.Connection, shapes: Iterable[Shape], now: int, *, after: tuple[str, str] | None = None, limit: int = 1000
) -> list[RowRef]:
    """Rows that have not ended and were made more than a day ago, with their creating writes, in the order of (table, key).

    One whose making lies in the future by this device's clock is asked about too: asking is always safe.
    """
    found: list[RowRef] = []
    start = after or ("", "")
    for shape in sorted(shapes, key=lambda each: each.name):
        if shape.name in SYSTEM_NAMES or not shape.creating or shape.name < start[0]:
            continue
        table, key = quote(shape.name), quote(shape.table.key)
        query = (
            f"SELECT {table}.{key}, changes.author, changes.seq FROM {table} "
            f"JOIN changes ON changes.tbl = ? AND changes.key = {table}.{key} AND changes.register = ? "
            f"WHERE {table}.{key} > ? AND {live_sql(shape.table)} AND NOT coalesce(({shape.table.ended}), 0) "
            f"AND abs(changes.hlc) >> {COUNTER_BITS} NOT BETWEEN ? AND ? ORDER BY {table}.{key} LIMIT ?"
        )
        behind = start[1] if shape.name == start[0] else ""
        rows = connection.execute(query, (shape.name, shape.creating, behind, now - HELD_FOR_MS, now, limit - len(found)))
        found += [RowRef(shape.name, *row) for row in rows]
        if len(found) >= limit:
            break
    return found


def ended_among(connection: sqlite3.Connection, shapes: Mapping[str, Shape], rows: Iterable[RowRef]) -> list[RowRef]:
    """Those of a peer's live rows that ended here: their creating write is counted, and the row is gone.

    About the rows of a closed author nothing is inferred, nor about a row that awaits its repair.
    """
    heads = dict(connection.execute("SELECT author, seq FROM heads"))
    closed = {bytes.fromhex(key) for (key,) in connection.execute("SELECT key FROM changes WHERE tbl = 'authors' AND register = 'closed'")}
    return [
        row
        for row in rows
        if row.seq <= heads.get(row.author, 0)
        and row.author not in closed
        and row.table in shapes
        and _is_gone(connection, shapes[row.table], row)
    ]


def _is_gone(connection: sqlite3.Connection, shape: Shape, row: RowRef) -> bool:
    held = connection.execute(
        "SELECT 1 FROM changes WHERE tbl = ? AND key = ? AND register = ?", (row.table, row.key, shape.creating)
    ).fetchone()
    return held is None and connection.execute("SELECT 1 FROM awaiting WHERE tbl = ? AND key = ?", (row.table, row.key)).fetchone() is None


def drop_ended(writer: Writer, rows: Iterable[RowRef]) -> int:
    """Drops rows that ended elsewhere, where their creating write is still the one that was asked about; gives how many."""
    dropped = 0
    for row in rows:
        shape = writer.shapes.get(row.table)
        if shape is None or not shape.creating:
            continue
        query = "SELECT author, seq FROM changes WHERE tbl = ? AND key = ? AND register = ?"
        if writer.connection.execute(query, (row.table, row.key, shape.creating)).fetchone() == (row.author, row.seq):
            drop(writer, shape, (row.key,))
            dropped += 1
    return dropped
