"""How do declared tables stand in SQL?

The bookkeeping of the replica (`changes`, `heads`, and what is local), and for each declared table its typed
columns, generated columns, indexes and counters. Declarations are kept in the database as well, so that every
process that opens it can rebuild and pass on what another declared.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from p2pqueue import wire
from p2pqueue.replica.counting import BLOCK, MOVED, fold
from p2pqueue.replica.statements import Shape, kept_columns, live_sql, quote
from p2pqueue.replica.tables import Column, Derived, Register, Table

_MADE = re.compile(r"\s*CREATE (?:TABLE|INDEX|UNIQUE INDEX|TRIGGER|VIEW) IF NOT EXISTS (\w+)", re.IGNORECASE)

CORE = (
    """CREATE TABLE changes (
        tbl TEXT NOT NULL, key TEXT NOT NULL, register TEXT NOT NULL,
        author BLOB NOT NULL, seq INTEGER NOT NULL,
        generation INTEGER NOT NULL, rank INTEGER NOT NULL, claim INTEGER NOT NULL, hlc INTEGER NOT NULL,
        body BLOB, signature BLOB,
        verified INTEGER NOT NULL DEFAULT 1,
        PRIMARY KEY (tbl, key, register)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX changes_by_author ON changes(author, seq)",
    "CREATE INDEX changes_unverified ON changes(author, seq) WHERE verified = 0",
    # The heads of all authors but the own, whose head is its last commit: so a commit writes two pages less.
    "CREATE TABLE counted (author BLOB PRIMARY KEY, seq INTEGER NOT NULL, tag BLOB NOT NULL) STRICT, WITHOUT ROWID",
    # What follows is local and never replicates.
    "CREATE TABLE commits (seq INTEGER PRIMARY KEY, tag BLOB NOT NULL, hlc INTEGER NOT NULL, moved TEXT) STRICT",
    "CREATE TABLE acks (peer TEXT NOT NULL, author BLOB NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (peer, author)) STRICT, WITHOUT ROWID",
    """CREATE TABLE incarnation (
        one INTEGER PRIMARY KEY CHECK (one = 1), author BLOB NOT NULL, hlc INTEGER NOT NULL, falls INTEGER NOT NULL DEFAULT 0,
        inode INTEGER, machine TEXT, copied INTEGER NOT NULL DEFAULT 0) STRICT""",
    """CREATE VIEW heads AS SELECT author, seq, tag FROM counted
        UNION ALL SELECT author, seq, tag FROM incarnation JOIN commits ON seq = (SELECT max(seq) FROM commits)""",
    """CREATE TABLE set_aside (
        tbl TEXT NOT NULL, key TEXT NOT NULL, register TEXT NOT NULL, author BLOB NOT NULL, seq INTEGER NOT NULL,
        generation INTEGER NOT NULL, rank INTEGER NOT NULL, claim INTEGER NOT NULL, hlc INTEGER NOT NULL,
        body BLOB, signature BLOB, held INTEGER NOT NULL, reason TEXT NOT NULL, since INTEGER NOT NULL,
        PRIMARY KEY (author, seq, tbl, key, register)) STRICT, WITHOUT ROWID""",
    "CREATE TABLE tombstones (tbl TEXT NOT NULL, key TEXT NOT NULL, life INTEGER NOT NULL, PRIMARY KEY (tbl, key)) STRICT, WITHOUT ROWID",
    "CREATE TABLE endings (tbl TEXT NOT NULL, key TEXT NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (tbl, key)) STRICT, WITHOUT ROWID",
    "CREATE TABLE awaiting (tbl TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (tbl, key)) STRICT, WITHOUT ROWID",
    # How many rows have which status; the last commits keep what they add to it in their own rows (`counting`).
    "CREATE TABLE totals (tbl TEXT NOT NULL, status TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (tbl, status)) STRICT, WITHOUT ROWID",
    f"""CREATE VIEW counts AS SELECT tbl, status, sum(n) AS n FROM (
        SELECT tbl, status, n FROM totals UNION ALL
        SELECT {MOVED} FROM commits, json_each(moved)
        WHERE seq >= (SELECT max(seq) / {BLOCK} * {BLOCK} FROM commits) AND moved IS NOT NULL) GROUP BY tbl, status""",
    "CREATE TABLE declarations (tbl TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT, WITHOUT ROWID",
)


def stored_tables(connection: sqlite3.Connection) -> list[Table]:
    """The tables that were declared here so far."""
    return [_from_body(body) for (body,) in connection.execute("SELECT body FROM declarations ORDER BY tbl")]


def unite(stored: Iterable[Table], declared: Iterable[Table]) -> list[Table]:
    """What stands declared after an opening: registers are only ever added; the rest follows the newest declaration."""
    tables = {table.name: table for table in stored}
    for table in declared:
        known = tables.get(table.name)
        missing = [register for register in known.registers if register.name not in table.registers_by_name] if known else []
        tables[table.name] = replace(table, registers=(*table.registers, *missing)) if missing else table
    return list(tables.values())


def is_current(connection: sqlite3.Connection, tables: Sequence[Table]) -> bool:
    """Says whether the database stands as these declarations ask."""
    bodies = dict(connection.execute("SELECT tbl, body FROM declarations"))
    return all(bodies.get(table.name) == _to_body(table) for table in tables)


def has_local(connection: sqlite3.Connection, statements: Sequence[str]) -> bool:
    """Says whether the local tables and indexes that these statements make are there."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    made = (_MADE.match(statement) for statement in statements)
    return all(match is not None and match[1] in names for match in made)


def declare(connection: sqlite3.Connection, tables: Sequence[Table]) -> list[tuple[str, str]]:
    """Makes the database stand as declared, inside the caller's transaction; gives the (table, register) that are new."""
    bodies = dict(connection.execute("SELECT tbl, body FROM declarations"))
    new: list[tuple[str, str]] = []
    for table in tables:
        body = _to_body(table)
        before = bodies.get(table.name)
        if before == body:
            continue
        if before is None:
            connection.execute(_create(table))
            new += [(table.name, register.name) for register in table.registers]
        else:
            new += _alter(connection, _from_body(before), table)
        _attach(connection, table)
        connection.execute("INSERT OR REPLACE INTO declarations (tbl, body) VALUES (?, ?)", (table.name, body))
    return new


def _create(table: Table) -> str:
    lines = [f"{quote(table.key)} TEXT NOT NULL PRIMARY KEY", "updated_at INTEGER NOT NULL DEFAULT 0"]
    for register in table.registers:
        lines += _register_columns(register)
    lines += [_derived_column(derived) for derived in table.derived]
    return f"CREATE TABLE {quote(table.name)} (\n  " + ",\n  ".join(lines) + ") STRICT" + (", WITHOUT ROWID" if table.compact else "")


def _register_columns(register: Register) -> list[str]:
    columns = [(column.sql_name, column.type) for column in register.columns]
    return [f"{quote(name)} {kind}" for name, kind in [*columns, *kept_columns(register)]]


def _derived_column(derived: Derived) -> str:
    column = f"{quote(derived.name)} {derived.type}"
    return column if derived.stored else f"{column} GENERATED ALWAYS AS ({derived.sql}) VIRTUAL"


def _alter(connection: sqlite3.Connection, before: Table, table: Table) -> list[tuple[str, str]]:
    name = quote(table.name)
    _detach(connection, table.name)
    for derived in reversed(before.derived):
        if derived not in table.derived:
            connection.execute(f"ALTER TABLE {name} DROP COLUMN {quote(derived.name)}")
    added = [register for register in table.registers if register.name not in before.registers_by_name]
    for register in added:
        for column in _register_columns(register):
            connection.execute(f"ALTER TABLE {name} ADD COLUMN {column}")
    for derived in table.derived:
        if derived not in before.derived:
            connection.execute(f"ALTER TABLE {name} ADD COLUMN {_derived_column(derived)}")
    stored = Shape(table).derive_all()
    if stored:
        connection.execute(stored)
    return [(table.name, register.name) for register in added]


def _detach(connection: sqlite3.Connection, table: str) -> None:
    query = "SELECT type, name FROM sqlite_schema WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL"
    for kind, name in connection.execute(query, (table,)).fetchall():
        connection.execute(f"DROP {kind} {quote(name)}")


def _attach(connection: sqlite3.Connection, table: Table) -> None:
    for statement in (*table.indexes, *_counters(table)):
        connection.execute(statement)
    if table.counted:
        fold(connection, 0)
        connection.execute("DELETE FROM totals WHERE tbl = ?", (table.name,))
        connection.execute(
            f"INSERT INTO totals (tbl, status, n) SELECT ?, counted, count(*) FROM (SELECT {_counted(table, '')} AS counted "
            f"FROM {quote(table.name)}) WHERE counted IS NOT NULL GROUP BY counted",
            (table.name,),
        )


def _counted(table: Table, prefix: str) -> str:
    return f"CASE WHEN {live_sql(table, prefix)} THEN {prefix}status END"


def _counters(table: Table) -> list[str]:
    """A row that goes for good is counted out by itself; `counting` keeps up with everything else."""
    if not table.counted:
        return []
    less = (
        f"INSERT INTO totals (tbl, status, n) SELECT '{table.name}', gone, -1 FROM (SELECT {_counted(table, 'OLD.')} AS gone) "
        "WHERE gone IS NOT NULL ON CONFLICT (tbl, status) DO UPDATE SET n = n - 1;"
    )
    return [f"CREATE TRIGGER {table.name}_counted_out AFTER DELETE ON {quote(table.name)} BEGIN {less} END"]


def _to_body(table: Table) -> bytes:
    registers = [
        [r.name, [[c.name, c.type, c.stored] for c in r.columns], r.first, r.signed, r.creating, list(r.kept)] for r in table.registers
    ]
    derived = [[d.name, d.type, d.sql, d.stored] for d in table.derived]
    rest = [list(table.indexes), table.counted, table.compact, table.ended, table.ended_at]
    return wire.pack([table.name, table.key, registers, derived, *rest])


def _from_body(body: bytes) -> Table:
    name, key, registers, derived, indexes, counted, compact, ended, ended_at = wire.unpack(body)
    return Table(
        name,
        key,
        tuple(_register(*fields) for fields in registers),
        tuple(Derived(*fields) for fields in derived),
        tuple(indexes),
        counted,
        compact,
        ended,
        ended_at,
    )


def _register(name: str, columns: list[Any], first: bool, signed: bool, creating: bool, kept: list[Any]) -> Register:
    return Register(name, tuple(Column(*fields) for fields in columns), first, signed, creating, tuple(kept))
