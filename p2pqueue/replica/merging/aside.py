"""Where do writes go that can't be taken, and how do they stay visible?

A write whose signature fails is kept for the record and does not count as held. One that makes SQLite fail here
may be fine elsewhere or after an upgrade: it is kept, passed on, and counts as held.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from p2pqueue import wire
from p2pqueue.clock import COUNTER_BITS
from p2pqueue.errors import P2PQueueError
from p2pqueue.replica.counting import counting
from p2pqueue.replica.merging.merged import Refused
from p2pqueue.replica.merging.pending import is_of_data
from p2pqueue.replica.signatures.bodies import BODY_LIMIT
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.statements import DELETE_CHANGE, Shape
from p2pqueue.replica.write import Write

UNSTORABLE = "its values can't be stored"
_INSERT = (
    "INSERT OR REPLACE INTO set_aside "
    "(tbl, key, register, author, seq, generation, rank, claim, hlc, body, signature, held, reason, since) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def set_aside(connection: sqlite3.Connection, write: Write, reason: str, *, held: bool, now: int) -> Refused:
    """Keeps a write with the reason why it wasn't taken."""
    refused = Refused(write.table, write.key, write.register, write.stamp, write.seq, reason)
    body = write.body
    if body is None:
        try:
            body = wire.pack(list(write.values))
        except P2PQueueError:
            return refused
    generation, rank, claim, hlc, author = write.stamp
    values = (write.table, write.key, write.register, author, write.seq, generation, rank, claim, hlc, body, write.signature)
    try:
        connection.execute(_INSERT, (*values, int(held), reason, now))
    except UnicodeEncodeError:
        pass  # a name that is no text can't be kept in a database of text; the refusal alone tells of it
    return refused


def unstorable(connection: sqlite3.Connection, shape: Shape, write: Write, values: Sequence[object]) -> str | None:
    """Says in words whether SQLite refuses these values of a register."""
    connection.execute("SAVEPOINT trial")
    try:
        connection.execute(shape.upsert((write.register,)), ["", 0, *values, *shape.kept[write.register](write.stamp)])
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        if not is_of_data(error):
            raise
        return f"{UNSTORABLE}: {error}"
    finally:
        connection.execute("ROLLBACK TO trial")
        connection.execute("RELEASE trial")
    return None


def drop_outranked(connection: sqlite3.Connection, table: str, keys: Iterable[str]) -> None:
    """Forgets what was set aside where something greater now stands."""
    if connection.execute("SELECT 1 FROM set_aside WHERE tbl = ? AND held LIMIT 1", (table,)).fetchone() is None:
        return
    query = (
        "DELETE FROM set_aside WHERE tbl = ?1 AND key = ?2 AND held AND EXISTS (SELECT 1 FROM changes WHERE changes.tbl = set_aside.tbl "
        "AND changes.key = set_aside.key AND changes.register = set_aside.register "
        "AND (changes.generation, changes.rank, changes.claim, changes.hlc, changes.author) "
        "> (set_aside.generation, set_aside.rank, set_aside.claim, set_aside.hlc, set_aside.author))"
    )
    connection.executemany(query, [(table, key) for key in keys])


def remove(connection: sqlite3.Connection, shape: Shape | None, table: str, key: str, register: str) -> None:
    """Takes a register's write out of its row and out of `changes`."""
    if shape is None or register not in shape.kept:
        connection.execute(DELETE_CHANGE, (table, key, register))
        return
    with counting(connection, shape, (key,)):
        connection.execute(DELETE_CHANGE, (table, key, register))
        connection.execute(shape.clear((register,)), (key,))
        if register == shape.creating:
            _show_waiting(connection, shape, key)


def _show_waiting(connection: sqlite3.Connection, shape: Shape, key: str) -> None:
    """Without a creating register nothing waits for a later life: what did stands in the columns again."""
    query = (
        "SELECT register, generation, rank, claim, hlc, author, body, signature FROM changes WHERE tbl = ? AND key = ? AND body IS NOT NULL"
    )
    for register, *parts, body, signature in connection.execute(query, (shape.name, key)).fetchall():
        if register not in shape.kept:
            continue
        stamp = Stamp(*parts)
        values = wire.unpack(body, limit=BODY_LIMIT)
        if signature is not None:
            values = values[-1]
        newest = abs(stamp.hlc) >> COUNTER_BITS
        try:
            connection.execute(shape.upsert((register,)), [key, newest, *values, *shape.kept[register](stamp)])
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            if not is_of_data(error):
                raise
            continue  # what can't be stored goes on waiting
        if signature is None:
            connection.execute("UPDATE changes SET body = NULL WHERE tbl = ? AND key = ? AND register = ?", (shape.name, key, register))


def held_aside(connection: sqlite3.Connection) -> list[tuple[Write, str]]:
    """The writes that are kept aside and passed on, with their reasons."""
    query = (
        "SELECT tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature, reason "
        "FROM set_aside WHERE held ORDER BY since"
    )
    return [
        (Write(tbl, key, register, Stamp(*stamp), seq, (), body, signature), reason)
        for tbl, key, register, *stamp, seq, body, signature, reason in connection.execute(query)
    ]
