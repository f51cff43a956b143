"""How do the writes of rows that are new here get into `changes` with the least work?

Rows with the same registers share statements in which the names of the table and of the registers stand already, so that
half as much is bound.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from p2pqueue.replica.merging.inserting import insert_together

_COLUMNS = "tbl, key, register, author, seq, generation, rank, claim, hlc, body, signature, verified"
_MOST_TEXTS = 256  # statements that are kept: a peer chooses which registers its rows have

Stamped = tuple[int, int, int, int, bytes]  # generation, rank, claim, time and author
Registers = tuple[tuple[str, bool], ...]  # of a row: their names, and whether they are signed


def insert_changes_of_rows(connection: sqlite3.Connection, table: str, registers: Registers, rows: Sequence[Sequence[Any]]) -> None:
    """Writes all that stands in `changes` about rows of which nothing stands there yet.

    A row is its key, then of each register author, number, generation, rank, claim and time, and of a signed one body,
    signature and whether that was checked.
    """
    insert_together(connection, rows, _text(table, registers, 1), lambda together: _text(table, registers, together))


def insert_alike_changes(
    connection: sqlite3.Connection, table: str, register: str, names: str, stamp: Stamped, seq: int, *, ending: str = ""
) -> None:
    """Writes what stands in `changes` about one register of rows, under one stamp and numbers from that one on.

    `names` is a list in JSON: each is a key, without the `ending` that all of them have.
    """
    generation, rank, claim, hlc, author = stamp
    bound = (names, bytearray(author), seq, generation, rank, claim, hlc)
    connection.execute(_alike(table, register, bool(ending)), (*bound, ending) if ending else bound)


@lru_cache(maxsize=_MOST_TEXTS)
def _alike(table: str, register: str, ends: bool) -> str:
    return (
        f"INSERT INTO changes ({_COLUMNS}) SELECT {_quoted(table)}, value{' || ?8' if ends else ''}, {_quoted(register)}, ?2, ?3 + key, "
        "?4, ?5, ?6, ?7, NULL, NULL, 1 FROM json_each(?1)"
    )


@lru_cache(maxsize=_MOST_TEXTS)
def _text(table: str, registers: Registers, rows: int) -> str:
    numbers = count(1)
    changes = []
    for _ in range(rows):
        key = f"?{next(numbers)}"
        for register, signed in registers:
            given = ", ".join(f"?{next(numbers)}" for _ in range(9 if signed else 6))
            changes.append(f"({_quoted(table)}, {key}, {_quoted(register)}, {given}{'' if signed else ', NULL, NULL, 1'})")
    return f"INSERT INTO changes ({_COLUMNS}) VALUES {', '.join(changes)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
