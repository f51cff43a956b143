"""How does a peer's batch of writes become part of the state?

The greater stamp wins, whatever the order of arrival, and a batch may repeat what is here already. What can't be
taken is named with its reason and never stops the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from p2pqueue import wire
from p2pqueue.replica.aside import drop_outranked, set_aside
from p2pqueue.replica.batch import Batch
from p2pqueue.replica.merged import Merged, Refused
from p2pqueue.replica.reading import content_of
from p2pqueue.replica.signing import UNKNOWN_AUTHOR, mismatch
from p2pqueue.replica.stamp import Stamp, is_wellformed
from p2pqueue.replica.statements import Shape
from p2pqueue.replica.system import ALWAYS_VERIFIED, SYSTEM_TABLES
from p2pqueue.replica.tables import Table
from p2pqueue.replica.write import Write
from p2pqueue.replica.writer import Writer

KEY_LIMIT = 1024  # characters
NAME_LIMIT = 63
SEQ_LIMIT = 1 << 62
_SYSTEM_ORDER = {table.name: index for index, table in enumerate(SYSTEM_TABLES)}
_DATA_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeEncodeError,
)


@dataclass
class _Tally:
    applied: int = 0
    counted: int = 0
    ignored: int = 0
    refused: list[Refused] = field(default_factory=list)
    aside: list[Refused] = field(default_factory=list)


def merge(writer: Writer, writes: Sequence[Write], *, repair: bool = False) -> Merged:
    """Merges a batch inside the writer's transaction. Moves no head."""
    tally = _Tally()
    heads: dict[bytes, int] = dict(writer.connection.execute("SELECT author, seq FROM heads"))
    by_table: dict[str, list[Write]] = {}
    for write in writes:
        problem = malformed(write)
        if problem is not None:
            tally.refused.append(_refused(write, problem))
        elif not repair and write.seq <= heads.get(write.stamp.author, 0):
            tally.ignored += 1
        else:
            by_table.setdefault(write.table, []).append(write)
    for table in sorted(by_table, key=lambda name: _SYSTEM_ORDER.get(name, len(_SYSTEM_ORDER))):
        _merge_table(writer, table, by_table[table], tally, heads if repair else None)
    _merge_late(writer, by_table, tally)
    return Merged(tally.applied, tally.counted, tally.ignored, tuple(tally.refused), tuple(tally.aside), frozenset(writer.touched))


def merge_kept(writer: Writer, table: str, writes: Sequence[Write]) -> None:
    """Merges what was kept unread here for an upgrade: it is counted, held and checked already, whatever the heads say."""
    _merge_table(writer, table, writes, _Tally(), None)


def _merge_late(writer: Writer, by_table: dict[str, list[Write]], tally: _Tally) -> None:
    """Tries again what came before the key of its author, in the same batch."""
    early = {(each.table, each.author, each.seq) for each in tally.refused if each.reason == UNKNOWN_AUTHOR}
    if not early or not by_table.keys() & {"authors", "devices"}:
        return
    tally.refused = [each for each in tally.refused if each.reason != UNKNOWN_AUTHOR]
    for table, writes in by_table.items():
        again = [write for write in writes if (table, write.stamp.author, write.seq) in early]
        if again:
            _merge_table(writer, table, again, tally, None)


def malformed(write: Write) -> str | None:
    """What is wrong with the form of a peer's write, in words."""
    stamp, seq = write.stamp, write.seq
    try:
        if not is_wellformed(stamp) or {*map(type, stamp[:4]), type(seq)} != {int} or type(stamp.author) is not bytes:
            return "its stamp is malformed"
    except (TypeError, AttributeError):
        return "its stamp is malformed"
    if not 0 < seq < SEQ_LIMIT:
        return "its number is malformed"
    for name, limit in ((write.table, NAME_LIMIT), (write.register, NAME_LIMIT), (write.key, KEY_LIMIT)):
        if type(name) is not str or not 0 < len(name) <= limit:
            return "a name in it is malformed"
    return None


def _merge_table(writer: Writer, table: str, writes: Sequence[Write], tally: _Tally, repaired: dict[bytes, int] | None) -> None:
    shape = writer.shapes.get(table) or Shape(Table(table, "key", ()))
    if repaired is not None:
        writes = _repairable(writer.connection, shape, writes, repaired, tally)
    counts = (tally.applied, tally.counted, len(tally.refused))
    connection = writer.connection
    connection.execute("SAVEPOINT merging")
    try:
        _merge_writes(writer, shape, writes, tally)
        connection.execute("RELEASE merging")
        return
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        _undo(connection, error)
    tally.applied, tally.counted = counts[:2]
    del tally.refused[counts[2] :]
    for write in writes:
        _merge_alone(writer, shape, write, tally)


def _merge_alone(writer: Writer, shape: Shape, write: Write, tally: _Tally) -> None:
    connection = writer.connection
    connection.execute("SAVEPOINT merging")
    try:
        _merge_writes(writer, shape, (write,), tally)
        connection.execute("RELEASE merging")
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        _undo(connection, error)
        tally.aside.append(set_aside(connection, write, f"its values can't be stored: {error}", held=True, now=writer.now))


def _undo(connection: sqlite3.Connection, error: Exception) -> None:
    """Takes a failed part back; raises the error again where it was not the data's fault."""
    plain = isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_ERROR
    if not plain and not isinstance(error, _DATA_ERRORS):
        raise error
    connection.execute("ROLLBACK TO merging")
    connection.execute("RELEASE merging")


def _merge_writes(writer: Writer, shape: Shape, writes: Sequence[Write], tally: _Tally) -> None:
    batch = Batch(writer.connection, shape)
    batch.load({write.key for write in writes})
    newest = writer.hlc
    for write in writes:
        _offer(writer, batch, write, tally)
        newest = max(newest, write.stamp.hlc, -write.stamp.hlc)
    tally.applied += batch.apply()
    keys = batch.keys
    writer.note(shape.name, keys)
    if keys:
        drop_outranked(writer.connection, shape.name, keys)
    writer.hlc = newest


def _offer(writer: Writer, batch: Batch, write: Write, tally: _Tally) -> None:
    shape, key, register = batch.shape, write.key, write.register
    body, signature, values = write.body, write.signature, write.values
    width = shape.width.get(register)
    if width is None:
        values = ()
        if body is None:
            body = wire.pack(list(write.values))
    elif register not in shape.signed:
        if body is not None and not values:
            values = tuple(wire.unpack(body))
        body = signature = None
    signed = signature is not None or register in shape.signed
    problem = mismatch(write) if signed else None
    if problem is not None:
        _refuse(writer, write, problem, tally)
        return
    if width is not None and len(values) != width:
        tally.aside.append(set_aside(writer.connection, write, f"{len(values)} values for {width} columns", held=True, now=writer.now))
        return
    if not _wins(writer, batch, write, values, body):
        tally.counted += 1
        return
    must = signed and ((write.table, register) in ALWAYS_VERIFIED or batch.replaces(key, register, write.stamp))
    problem = writer.keyring.problem(writer.connection, write) if must else None
    if problem is not None:
        _refuse(writer, write, problem, tally)
        return
    batch.take(key, register, (write.stamp, write.seq, values, body, signature, int(must or not signed)))


def _refuse(writer: Writer, write: Write, problem: str, tally: _Tally) -> None:
    if problem == UNKNOWN_AUTHOR:
        tally.refused.append(_refused(write, problem, lasting=False))
    else:
        tally.refused.append(set_aside(writer.connection, write, problem, held=False, now=writer.now))


def _wins(writer: Writer, batch: Batch, write: Write, values: tuple[object, ...], body: bytes | None) -> bool:
    rival = batch.rival(write.key, write.register, write.stamp)
    while rival and writer.drop_unless_verified(batch, write.key, rival):
        rival = batch.rival(write.key, write.register, write.stamp)
    if rival is None:
        return True
    if rival != write.register:
        return False
    known = batch.known[write.key][rival]
    if known.stamp != write.stamp:
        return False
    # One stamp twice: the same write again, or an author whose database was copied. The bytes decide.
    standing = batch.content(write.key, rival) or content_of(writer.connection, batch.shape, write.key, rival)
    return (body or wire.pack(list(values)), write.seq) > (standing, known.seq)


def _repairable(
    connection: sqlite3.Connection, shape: Shape, writes: Iterable[Write], heads: dict[bytes, int], tally: _Tally
) -> list[Write]:
    """Leaves out of a repair the rows that ended here: their creating write is counted and they are gone."""
    writes = list(writes)
    gone: Callable[[str], bool] = lambda key: (  # noqa: E731
        connection.execute("SELECT 1 FROM changes WHERE tbl = ? AND key = ? AND register = ?", (shape.name, key, shape.creating)).fetchone()
        is None
        and connection.execute("SELECT 1 FROM awaiting WHERE tbl = ? AND key = ?", (shape.name, key)).fetchone() is None
    )
    ended = {
        write.key
        for write in writes
        if write.register == shape.creating
        and write.seq <= heads.get(write.stamp.author, 0)
        and not is_closed(connection, write.stamp)
        and gone(write.key)
    }
    taken = [write for write in writes if write.key not in ended]
    tally.ignored += len(writes) - len(taken)
    return taken


def is_closed(connection: sqlite3.Connection, stamp: Stamp) -> bool:
    """Says whether an author's row closes it: nothing is inferred from its heads."""
    query = "SELECT 1 FROM changes WHERE tbl = 'authors' AND key = ? AND register = 'closed'"
    return connection.execute(query, (stamp.author.hex(),)).fetchone() is not None


def _refused(write: Write, reason: str, *, lasting: bool = True) -> Refused:
    return Refused(write.table, write.key, write.register, write.stamp, write.seq, reason, lasting)
