"""What is a replicated table, and which of its columns are written and merged together?

Declarations only; `schema` turns them into SQL. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ColumnType = Literal["TEXT", "INTEGER", "REAL", "BLOB"]


@dataclass(frozen=True)
class Column:
    """A column of a register: `name` on the wire, `stored` in SQL (the same unless said)."""

    name: str
    type: ColumnType
    stored: str = ""

    @property
    def sql_name(self) -> str:
        """The name of the column in the SQL table."""
        return self.stored or self.name


@dataclass(frozen=True)
class Register:
    """Columns that are written together and merge together.

    `first` makes the first writer win (the stamp carries −hlc). `signed` keeps body and signature. `creating`
    marks the register without which a row is no row. `kept` names the parts of the stamp that the SQL table
    repeats as `<register>_<part>` columns (`generation`, `claim`, `hlc`: INTEGER; `author`: BLOB).
    """

    name: str
    columns: tuple[Column, ...]
    first: bool = False
    signed: bool = False
    creating: bool = False
    kept: tuple[Literal["generation", "claim", "hlc", "author"], ...] = ("generation",)


@dataclass(frozen=True)
class Derived:
    """A column computed from others, in SQL.

    A stored one is written with every register that it depends on, and may be indexed; it may name `updated_at`
    (milliseconds of the newest write). Any other is computed by SQLite when it is read.
    """

    name: str
    type: ColumnType
    sql: str
    stored: bool = False


@dataclass(frozen=True)
class Table:
    """A replicated table: its name, its text key, its registers, and what is derived from them.

    `indexes` are whole statements. `counted` keeps a counter for each value of the column `status`. `compact`
    keeps the rows in the order of their keys, without a second tree: for rows that are small and never searched
    by anything else. `ended` is an SQL condition on a row: it has ended and may go after retention (a deleted row
    always may); `ended_at` an SQL expression for its end in milliseconds.
    """

    name: str
    key: str
    registers: tuple[Register, ...]
    derived: tuple[Derived, ...] = ()
    indexes: tuple[str, ...] = ()
    counted: bool = False
    compact: bool = False
    ended: str = "0"
    ended_at: str = "0"
    registers_by_name: dict[str, Register] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.registers_by_name.update({register.name: register for register in self.registers})

    @property
    def creating(self) -> Register:
        """The register without which a row of this table is no row."""
        return next(register for register in self.registers if register.creating)
