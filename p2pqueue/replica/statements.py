"""Which SQL reads and writes the registers of a table? Texts are made once and kept, so that SQLite's statement cache hits."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from p2pqueue.replica.derivation import NEWEST, Derivation
from p2pqueue.replica.merging.inserting import Inserting
from p2pqueue.replica.tables import Register, Table

if TYPE_CHECKING:
    from p2pqueue.replica.merging.making import Make

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PART = {"generation": (0, "INTEGER"), "claim": (2, "INTEGER"), "hlc": (3, "INTEGER"), "author": (4, "BLOB")}
Parts = Callable[[tuple[int, int, int, int, bytes]], tuple[Any, ...]]

_CHANGE = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_NEW_CHANGES = (
    "INSERT INTO changes (tbl, key, register, author, seq, generation, rank, claim, hlc, body, signature, verified) VALUES {values}"
)
_INSERT_CHANGES = _INSERT_NEW_CHANGES + (
    " ON CONFLICT (tbl, key, register) DO UPDATE SET author = excluded.author, seq = excluded.seq, generation = excluded.generation, "
    "rank = excluded.rank, claim = excluded.claim, hlc = excluded.hlc, body = excluded.body, signature = excluded.signature, "
    "verified = excluded.verified"
)
_TOGETHER = 100  # changes in one statement: a third faster than one by one
INSERT_CHANGE = _INSERT_CHANGES.format(values=_CHANGE)
INSERT_CHANGES = _INSERT_CHANGES.format(values=", ".join([_CHANGE] * _TOGETHER))
_INSERT_NEW_CHANGE = _INSERT_NEW_CHANGES.format(values=_CHANGE)
_INSERT_MANY_NEW_CHANGES = _INSERT_NEW_CHANGES.format(values=", ".join([_CHANGE] * _TOGETHER))
_KNOWN = (
    "SELECT key, register, generation, rank, claim, hlc, author, seq, verified, body IS NOT NULL AND signature IS NULL "
    "FROM changes WHERE tbl = ? AND "
)
SELECT_KNOWN = _KNOWN + "key IN (SELECT value FROM json_each(?))"
SELECT_KNOWN_ONE = _KNOWN + "key = ?"
DELETE_CHANGE = "DELETE FROM changes WHERE tbl = ? AND key = ? AND register = ?"


def insert_changes(connection: sqlite3.Connection, changes: Sequence[Sequence[Any]]) -> None:
    """Writes rows of `changes`, over what stands there."""
    _insert(connection, changes, INSERT_CHANGE, INSERT_CHANGES)


def insert_new_changes(connection: sqlite3.Connection, changes: Sequence[Sequence[Any]]) -> None:
    """Writes rows of `changes` where nothing stands: it isn't looked for."""
    _insert(connection, changes, _INSERT_NEW_CHANGE, _INSERT_MANY_NEW_CHANGES)


def _insert(connection: sqlite3.Connection, changes: Sequence[Sequence[Any]], one: str, many: str) -> None:
    if len(changes) == 1:
        connection.execute(one, changes[0])
        return
    together = len(changes) - len(changes) % _TOGETHER
    for start in range(0, together, _TOGETHER):
        connection.execute(many, tuple(chain.from_iterable(changes[start : start + _TOGETHER])))
    if len(changes) > together:
        connection.executemany(one, changes[together:])


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
        self._derivation = Derivation(table, frozenset(name for names in self._stored.values() for name in names))
        self._texts: dict[tuple[str, tuple[str, ...]], str] = {}
        self.has_life = "life" in self.registers
        live = f"FROM {quote(table.name)} WHERE status IS NOT NULL AND {live_sql(table)} AND "
        self.select_status = f"SELECT status {live} {quote(table.key)} = ?"
        self.select_statuses = f"SELECT status {live} {quote(table.key)} IN (SELECT value FROM json_each(?))"
        self._counted = f"CASE WHEN {live_sql(table)} THEN status END".replace('"', "")
        self.counts_by = self._derivation.used_by(self._counted)  # the columns that say as what a row is counted
        self.inserting = Inserting(self)
        self.makers: dict[str, Make] = {}  # by register

    def upsert(self, registers: tuple[str, ...]) -> str:
        """Writes these registers of one row; parameters: key, newest time, then values and kept parts by register."""
        return self._texts.get(("upsert", registers)) or self._keep("upsert", registers, self._upsert(registers))

    def insert(self, registers: tuple[str, ...], named: frozenset[str], *, rows: int = 1) -> str:
        """As `upsert`, where only the `named` columns are bound: the others are empty. For several rows, one behind the other."""
        return self._insert(self.columns(registers), named, rows)

    def status_of_new(self, given: Mapping[str, str]) -> str:
        """Reads as what a new row is counted, of whose columns only the `given` ones have a value."""
        return f"SELECT {self._derivation.of_new(self._counted, given)}"

    def columns(self, registers: tuple[str, ...]) -> list[str]:
        """The columns of these registers in SQL, with those that repeat parts of their stamps."""
        return [name for register in registers for name in self._stored[register]]

    def update(self, registers: tuple[str, ...]) -> str:
        """As `upsert`, for a row that is known to be there: half the work."""
        return self._texts.get(("update", registers)) or self._keep("update", registers, self._update(registers))

    def settle(self, registers: tuple[str, ...]) -> str:
        """As `update`, where the caller knows the newest time of the whole row: it is taken as it is."""
        return self._texts.get(("settle", registers)) or self._keep("settle", registers, self._settle(registers))

    def update_each(self, given: Mapping[str, str]) -> str:
        """Writes columns of the rows whose keys are in a JSON array, from SQL; parameters: the array and the newest time."""
        key = quote(self.table.key)
        return f"UPDATE {quote(self.name)} SET {self._settings(dict(given))} WHERE {key} IN (SELECT value FROM json_each(?1))"

    def insert_each(self, given: Mapping[str, str], key: str) -> str:
        """Inserts a row for `each` entry of a JSON map, all from SQL; parameters: the map and the newest time."""
        derived = self._derivation.fresh({**given, NEWEST: "?2"})
        row = {name: text for name, text in ({self.table.key: key, NEWEST: "?2"} | dict(given) | derived).items() if text != "NULL"}
        settings = self._settings({name: f"excluded.{quote(name)}" if name in row else "NULL" for name in given}, "excluded.updated_at")
        return (
            f"INSERT INTO {quote(self.name)} ({', '.join(map(quote, row))}) SELECT {', '.join(row.values())} FROM json_each(?1) AS each "
            f"WHERE true ON CONFLICT ({quote(self.table.key)}) DO UPDATE SET {settings}"
        )

    def clear(self, registers: tuple[str, ...]) -> str:
        """Empties these registers of one row; parameter: key."""
        return self._texts.get(("clear", registers)) or self._keep("clear", registers, self._clear(registers))

    def select(self, *registers: str) -> str:
        """Reads key and values of registers for the keys in a JSON array."""
        return self._texts.get(("select", registers)) or self._keep("select", registers, self._select(registers))

    def derive_all(self) -> str:
        """Computes the stored derived columns of all rows anew; empty where there are none."""
        settings = ", ".join(f"{quote(name)} = {text}" for name, text in self._derivation.whole().items())
        return settings and f"UPDATE {quote(self.name)} SET {settings}"

    def _keep(self, kind: str, registers: tuple[str, ...], text: str) -> str:
        self._texts[kind, registers] = text
        return text

    def _upsert(self, registers: tuple[str, ...]) -> str:
        columns = self.columns(registers)
        return self._insert(columns, frozenset(columns), 1)

    def _insert(self, columns: Sequence[str], named: frozenset[str], rows: int) -> str:
        table, key = quote(self.name), quote(self.table.key)
        fresh = [self._fresh(columns, named, row * (2 + len(named))) for row in range(rows)]
        values = ", ".join(f"({', '.join(row.values())})" for row in fresh)
        settings = self._settings({name: f"excluded.{quote(name)}" if name in named else "NULL" for name in columns}, "excluded.updated_at")
        return f"INSERT INTO {table} ({', '.join(fresh[0])}) VALUES {values} ON CONFLICT ({key}) DO UPDATE SET {settings}"

    def _fresh(self, columns: Sequence[str], named: frozenset[str], before: int) -> dict[str, str]:
        """What the columns of a new row get, by their names in SQL, where so many parameters stand before its own."""
        numbers = count(before + 3)
        given = {name: f"?{next(numbers)}" if name in named else "NULL" for name in columns}
        first = {self.table.key: f"?{before + 1}", NEWEST: f"?{before + 2}"}
        derived = self._derivation.fresh({**given, NEWEST: first[NEWEST]})
        return {quote(name): text for name, text in (first | given | derived).items() if text != "NULL"}

    def _update(self, registers: tuple[str, ...]) -> str:
        return f"UPDATE {quote(self.name)} SET {self._settings(self._given(registers))} WHERE {quote(self.table.key)} = ?1"

    def _settle(self, registers: tuple[str, ...]) -> str:
        settings = self._settings(self._given(registers), newest="?2")
        return f"UPDATE {quote(self.name)} SET {settings} WHERE {quote(self.table.key)} = ?1"

    def _clear(self, registers: tuple[str, ...]) -> str:
        given = {name: "NULL" for register in registers for name in self._stored[register]}
        settings = ", ".join(f"{quote(name)} = {text}" for name, text in (given | self._derivation.changed(given)).items())
        return f"UPDATE {quote(self.name)} SET {settings} WHERE {quote(self.table.key)} = ?"

    def _select(self, registers: tuple[str, ...]) -> str:
        key = quote(self.table.key)
        values = ", ".join([key, *(quote(column.sql_name) for name in registers for column in self.registers[name].columns)])
        return f"SELECT {values} FROM {quote(self.name)} WHERE {key} IN (SELECT value FROM json_each(?))"

    def _given(self, registers: tuple[str, ...]) -> dict[str, str]:
        return {name: f"?{number}" for number, name in enumerate(self.columns(registers), 3)}

    def _settings(self, given: dict[str, str], time: str = "?2", *, newest: str = "") -> str:
        # Whether a row is due is judged by the later of the times, of which a merge may take one back.
        later = f"max({NEWEST}, {time})"
        changed = self._derivation.changed({**given, NEWEST: later})
        return ", ".join([f"{NEWEST} = {newest or later}", *(f"{quote(name)} = {text}" for name, text in (given | changed).items())])


def live_sql(table: Table, prefix: str = "") -> str:
    """An SQL condition: the row has its creating register and is not deleted."""
    if not any(register.creating for register in table.registers):
        return "1"
    condition = f"{prefix}{quote(table.creating.name + '_generation')} IS NOT NULL"
    if "life" in table.registers_by_name:
        condition += f" AND coalesce({prefix}{quote(table.registers_by_name['life'].columns[0].sql_name)}, 0) = 0"
    return condition


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
