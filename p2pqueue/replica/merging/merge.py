"""How does a peer's batch of writes become part of the state?

The greater stamp wins, whatever the order of arrival, and a batch may repeat what is here already. What can't be
taken is named with its reason and never stops the rest.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

from p2pqueue.replica.merging.aside import UNSTORABLE, drop_outranked, set_aside
from p2pqueue.replica.merging.batch import Batch
from p2pqueue.replica.merging.contest import Tally, offer, sift
from p2pqueue.replica.merging.fresh import take_new
from p2pqueue.replica.merging.merged import Merged
from p2pqueue.replica.merging.pending import is_of_data
from p2pqueue.replica.signatures.signing import UNKNOWN_AUTHOR
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.statements import Shape
from p2pqueue.replica.system import SYSTEM_TABLES
from p2pqueue.replica.tables import Table
from p2pqueue.replica.wire.columns import WellFormed, keys_of, numbers_of, tables_of
from p2pqueue.replica.write import Write
from p2pqueue.replica.writer import Writer

_SYSTEM_ORDER = {table.name: index for index, table in enumerate(SYSTEM_TABLES)}


def merge(writer: Writer, writes: Sequence[Write], *, repair: bool = False) -> Merged:
    """Merges a batch inside the writer's transaction. Moves no head."""
    tally = Tally()
    heads: dict[bytes, int] = dict(writer.connection.execute("SELECT author, seq FROM heads"))
    writes = sift(writes, tally)
    late = [] if repair else _late(writes, heads)
    if late:
        writes = [write for write in writes if write.seq > heads.get(write.stamp.author, 0)]
    by_table = _by_table(writes)
    for table, counted in _by_table(late).items():
        taken = _of_rows_here(writer, table, counted)
        tally.ignored += len(counted) - len(taken)
        if taken:
            by_table[table] = [*by_table.get(table, ()), *taken]
    for table in sorted(by_table, key=lambda name: _SYSTEM_ORDER.get(name, len(_SYSTEM_ORDER))):
        _merge_table(writer, table, by_table[table], tally, heads if repair else None)
    _merge_late(writer, by_table, tally)
    return Merged(tally.applied, tally.counted, tally.ignored, tuple(tally.refused), tuple(tally.aside), frozenset(writer.touched))


def _late(writes: Sequence[Write], heads: Mapping[bytes, int]) -> list[Write]:
    """Those at or below the head of their author."""
    numbers = numbers_of(writes)
    if all(min(of_author) > heads.get(author, 0) for author, of_author in numbers.items()):
        return []
    return [write for write in writes if write.seq <= heads.get(write.stamp.author, 0)]


def _by_table(writes: Sequence[Write]) -> dict[str, Sequence[Write]]:
    tables = tables_of(writes)
    if len(tables) == 1:
        return {tables.pop(): writes}
    if isinstance(writes, WellFormed):
        return {table: writes.of_table(table) for table in tables}
    return {table: [write for write in writes if write.table == table] for table in tables}


def _of_rows_here(writer: Writer, table: str, counted: Sequence[Write]) -> list[Write]:
    """Of writes at or below the head, those whose row is here.

    Without its row such a write belongs to one that ended. Where the row is here it is outranked already, or it
    fills a hole: the head was raised by a peer that had dropped the row.
    """
    shape = writer.shapes.get(table)
    if shape is None:
        return []
    query = "SELECT key FROM changes WHERE tbl = ? AND register = ? AND key IN (SELECT value FROM json_each(?))"
    keys = json.dumps(list({write.key for write in counted}))
    here = {key for (key,) in writer.connection.execute(query, (table, shape.creating, keys))}
    return [write for write in counted if write.key in here]


def merge_kept(writer: Writer, table: str, writes: Sequence[Write]) -> None:
    """Merges what was kept unread here for an upgrade: it is counted, held and checked already, whatever the heads say."""
    _merge_table(writer, table, writes, Tally(), None)


def _merge_late(writer: Writer, by_table: Mapping[str, Sequence[Write]], tally: Tally) -> None:
    """Tries again what came before the key of its author, in the same batch."""
    early = {(each.table, each.author, each.seq) for each in tally.refused if each.reason == UNKNOWN_AUTHOR}
    if not early or not by_table.keys() & {"authors", "devices"}:
        return
    tally.refused = [each for each in tally.refused if each.reason != UNKNOWN_AUTHOR]
    for table, writes in by_table.items():
        again = [write for write in writes if (table, write.stamp.author, write.seq) in early]
        if again:
            _merge_table(writer, table, again, tally, None)


def _merge_table(writer: Writer, table: str, writes: Sequence[Write], tally: Tally, repaired: dict[bytes, int] | None) -> None:
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


def _merge_alone(writer: Writer, shape: Shape, write: Write, tally: Tally) -> None:
    connection = writer.connection
    connection.execute("SAVEPOINT merging")
    try:
        _merge_writes(writer, shape, (write,), tally)
        connection.execute("RELEASE merging")
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        _undo(connection, error)
        tally.aside.append(set_aside(connection, write, f"{UNSTORABLE}: {error}", held=True, now=writer.now))


def _undo(connection: sqlite3.Connection, error: Exception) -> None:
    """Takes a failed part back; raises the error again where it was not the data's fault."""
    if not is_of_data(error):
        raise error
    connection.execute("ROLLBACK TO merging")
    connection.execute("RELEASE merging")


def _merge_writes(writer: Writer, shape: Shape, writes: Sequence[Write], tally: Tally) -> None:
    batch = Batch(writer.connection, shape)
    batch.load(keys_of(writes))
    new, others = take_new(batch, writes)
    tally.applied += new.taken
    writer.note(shape.name, new.keys)
    keys = new.keys
    if others:
        offer(writer, batch, others, tally)
        tally.applied += batch.apply()
        writer.note(shape.name, batch.keys)
        keys = [*keys, *batch.keys]
    if keys:
        drop_outranked(writer.connection, shape.name, keys)
    writer.hlc = max(writer.hlc, new.newest, *[abs(write.stamp.hlc) for write in others])


def _repairable(
    connection: sqlite3.Connection, shape: Shape, writes: Iterable[Write], heads: dict[bytes, int], tally: Tally
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
