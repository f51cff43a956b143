"""Which SQL reads and writes the registers of a table? Texts are made once and kept, so that SQLite's statement cache hits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.tables import Register, Table

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PART = {"generation": (0, "INTEGER"), "claim": (2, "INTEGER"), "hlc": (3, "INTEGER"), "author": (4, "BLOB")}
Parts = Callable[[Stamp], tuple[Any, ...]]

INSERT_CHANGE = (
    "INSERT INTO changes (tbl, key, register, author, seq, generation, rank, claim, hlc, body, signature, verified) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (tbl, key, register) DO UPDATE SET author = excluded.author, seq = excluded.seq, generation = excluded.generation, "
    "rank = excluded.rank, claim = excluded.claim, hlc = excluded.hlc, body = excluded.body, signature = excluded.signature, "
    "verified = excluded.verified"
)
SELECT_KNOWN = (
    "SELECT key, register, generation, rank, claim, hlc, author, seq, verified FROM changes "
    "WHERE tbl = ? AND key IN (SELECT value FROM json_each(?))"
)
SELECT_KNOWN_ONE = "SELECT key, register, generation, rank, claim, hlc, author, seq, verified FROM changes WHERE tbl = ? AND key = ?"
DELETE_CHANGE = "DELETE FROM changes WHERE tbl = ? AND key = ? AND register = ?"


def quote(name: str) -> str:
    """A name for SQL. Raises ValueError for what is no plain name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} can't name a table or a column")
    return f'"{name}"'


class Shape:
    """The SQL of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.name = table.name
        self.creating = next((register.name for register in table.registers if register.creating), "")
        self.registers = table.registers_by_name
        self.width = {register.name: len(register.columns) for register in table.registers}
        self.signed = frozenset(register.name for register in table.registers if register.signed)
        self.first = frozenset(register.name for register in table.registers if register.first)
        self.kept: dict[str, Parts] = {register.name: _parts(register) for register in table.registers}
        self.names = {register.name: tuple(column.name for column in register.columns) for register in table.registers}
        self.numeric = {register.name: _numeric(register) for register in table.registers}
        self._stored = {register.name: _stored(register) for register in table.registers}
        self._texts: dict[tuple[str, tuple[str, ...]], str] = {}
        self.has_life = "life" in self.registers

    def upsert(self, registers: tuple[str, ...]) -> str:
        """Writes these registers of one row; parameters: key, newest time, then values and kept parts by register."""
        return self._texts.get(("upsert", registers)) or self._make("upsert", registers)

    def clear(self, registers: tuple[str, ...]) -> str:
        """Empties these registers of one row; parameter: key."""
        return self._texts.get(("clear", registers)) or self._make("clear", registers)

    def select(self, register: str) -> str:
        """Reads key and values of one register for the keys in a JSON array."""
        return self._texts.get(("select", (register,))) or self._make("select", (register,))

    def _make(self, kind: str, registers: tuple[str, ...]) -> str:
        table, key = quote(self.name), quote(self.table.key)
        columns = [quote(name) for register in registers for name in self._stored[register]]
        if kind == "upsert":
            marks = ", ".join("?" * (len(columns) + 2))
            updates = ", ".join(f"{column} = excluded.{column}" for column in columns)
            text = (
                f"INSERT INTO {table} ({', '.join([key, 'updated_at', *columns])}) VALUES ({marks}) ON CONFLICT ({key}) "
                f"DO UPDATE SET updated_at = max(updated_at, excluded.updated_at), {updates}"
            )
        elif kind == "clear":
            text = f"UPDATE {table} SET {', '.join(f'{column} = NULL' for column in columns)} WHERE {key} = ?"
        else:
            values = ", ".join([key, *(quote(column.sql_name) for column in self.registers[registers[0]].columns)])
            text = f"SELECT {values} FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))"
        self._texts[kind, registers] = text
        return text


def _numeric(register: Register) -> tuple[tuple[int, type], ...]:
    kinds = {"REAL": float, "INTEGER": int}
    return tuple((index, kinds[column.type]) for index, column in enumerate(register.columns) if column.type in kinds)


def kept_columns(register: Register) -> list[tuple[str, str]]:
    """Names and types of the columns that repeat parts of the register's stamp."""
    return [(f"{register.name}_{part}", _PART[part][1]) for part in register.kept]


def _stored(register: Register) -> tuple[str, ...]:
    return (*(column.sql_name for column in register.columns), *(name for name, _ in kept_columns(register)))


def _parts(register: Register) -> Parts:
    indexes = [_PART[part][0] for part in register.kept]
    if not indexes:
        return lambda stamp: ()
    if len(indexes) == 1:
        (index,) = indexes
        return lambda stamp: (stamp[index],)
    return itemgetter(*indexes)


def shapes_of(tables: Sequence[Table]) -> dict[str, Shape]:
    """The shapes of some tables, by name."""
    return {table.name: Shape(table) for table in tables}
