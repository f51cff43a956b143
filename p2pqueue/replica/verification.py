"""When is the signature of a first write checked?

A write that replaces another is checked before it merges. The first write of a new register may wait, marked in
`changes.verified`, until the background reaches it, somebody uses it, or it is about to outrank something.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from p2pqueue.replica.aside import remove, set_aside
from p2pqueue.replica.merged import Refused
from p2pqueue.replica.signing import UNKNOWN_AUTHOR, write_from_body
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.write import Write

if TYPE_CHECKING:
    from p2pqueue.replica.writer import Writer

_SELECT = "SELECT body, signature, verified FROM changes WHERE tbl = ? AND key = ? AND register = ?"
# Rows of the system first: they bring the keys with which the others are checked.
_PENDING = (
    "SELECT tbl, key, register FROM changes INDEXED BY changes_unverified WHERE verified = 0 "
    "ORDER BY tbl <> 'devices', tbl <> 'authors', author, seq LIMIT ?"
)


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
    write = write_from_body(row[0], row[1])
    problem = writer.keyring.problem(writer.connection, write)
    if problem is None:
        writer.connection.execute("UPDATE changes SET verified = 1 WHERE tbl = ? AND key = ? AND register = ?", (table, key, register))
        return None
    if problem == UNKNOWN_AUTHOR:
        return _refused(write, problem)
    remove(writer.connection, writer.shapes.get(table), table, key, register)
    writer.note(table, (key,))
    return set_aside(writer.connection, write, problem, held=False, now=writer.now)


def verify_pending(writer: Writer, limit: int) -> tuple[Refused, ...]:
    """Checks up to `limit` writes that were left unchecked; gives those that don't hold."""
    pending = writer.connection.execute(_PENDING, (limit,)).fetchall()
    answers = [verify_one(writer, *each) for each in pending]
    return tuple(answer for answer in answers if answer is not None)


def pending(connection: sqlite3.Connection) -> int:
    """How many writes are still unchecked."""
    row = connection.execute("SELECT count(*) FROM changes INDEXED BY changes_unverified WHERE verified = 0").fetchone()
    return int(row[0])


def _refused(write: Write, problem: str) -> Refused:
    stamp: Stamp = write.stamp
    return Refused(write.table, write.key, write.register, stamp, write.seq, problem, lasting=False)
