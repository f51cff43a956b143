"""When is the signature of a first write checked?

A write that replaces another is checked before it merges. The first write of a new register may wait, marked in
`changes.verified`, until the background reaches it, somebody uses it, or it is about to outrank something.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from p2pqueue.replica.merging.aside import remove, set_aside
from p2pqueue.replica.merging.merged import Refused
from p2pqueue.replica.signatures.bodies import write_from_body
from p2pqueue.replica.signatures.signing import UNKNOWN_AUTHOR
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.write import Write

if TYPE_CHECKING:
    from p2pqueue.replica.writer import Writer

_SELECT = "SELECT body, signature, verified FROM changes WHERE tbl = ? AND key = ? AND register = ?"
_PENDING = "SELECT tbl, key, register, body, signature, author, seq FROM changes INDEXED BY changes_unverified WHERE verified = 0 "
# Rows of the system first: they bring the keys with which the others are checked.
_ALL = _PENDING + "ORDER BY tbl <> 'devices', tbl <> 'authors', author, seq LIMIT ?"
_PAGE = _PENDING + "AND (author, seq) > (?, ?) ORDER BY author, seq LIMIT ?"
_CHECKED = "UPDATE changes SET verified = 1 WHERE tbl = ? AND key = ? AND register = ?"
Place = tuple[bytes, int]  # an author and a number


def is_verified(connection: sqlite3.Connection, table: str, key: str, register: str) -> bool:
    """Says whether a register's write is here and its signature was checked (or it needs none)."""
    query = "SELECT verified FROM changes WHERE tbl = ? AND key = ? AND register = ?"
    row = connection.execute(query, (table, key, register)).fetchone()
    return row is not None and bool(row[0])


def verify_one(writer: Writer, table: str, key: str, register: str) -> Refused | None:
    """Checks one write that was left unchecked; what fails is taken out and set aside.

    The answer is None where the signature holds. As long as its author's key isn't here the write stays, unused.
    """
    row = writer.connection.execute(_SELECT, (table, key, register)).fetchone()
    if row is None or row[2]:
        return None
    refused = _check(writer, [(table, key, register, row[0], row[1])])
    return refused[0] if refused else None


def verify_pending(writer: Writer, limit: int) -> tuple[Refused, ...]:
    """Checks up to `limit` writes that were left unchecked; gives those that don't hold."""
    return tuple(_check(writer, writer.connection.execute(_ALL, (limit,)).fetchall()))


def verify_page(writer: Writer, after: Place, limit: int) -> tuple[tuple[Refused, ...], Place | None]:
    """The same for those behind a place, in the order of authors and numbers; and where the next page begins, None at the end."""
    rows = writer.connection.execute(_PAGE, (*after, limit)).fetchall()
    return tuple(_check(writer, rows)), (rows[-1][5], rows[-1][6]) if len(rows) == limit else None


def _check(writer: Writer, rows: Sequence[Sequence[Any]]) -> list[Refused]:
    refused: list[Refused] = []
    sound: list[Sequence[Any]] = []
    for table, key, register, body, signature, *_ in rows:
        write = write_from_body(body, signature)
        problem = writer.keyring.problem(writer.connection, write)
        if problem is None:
            sound.append((table, key, register))
            if table in ("authors", "devices"):  # others are checked by what it says
                writer.connection.execute(_CHECKED, sound.pop())
        elif problem == UNKNOWN_AUTHOR:
            refused.append(_refused(write, problem))
        else:
            remove(writer.connection, writer.shapes.get(table), table, key, register)
            writer.note(table, (key,))
            refused.append(set_aside(writer.connection, write, problem, held=False, now=writer.now))
    writer.connection.executemany(_CHECKED, sound)
    return refused


def pending(connection: sqlite3.Connection) -> int:
    """How many writes are still unchecked."""
    row = connection.execute("SELECT count(*) FROM changes INDEXED BY changes_unverified WHERE verified = 0").fetchone()
    return int(row[0])


def _refused(write: Write, problem: str) -> Refused:
    stamp: Stamp = write.stamp
    return Refused(write.table, write.key, write.register, stamp, write.seq, problem, lasting=False)
