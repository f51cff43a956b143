"""How is a register written for the first time in many rows at once, if nobody else has written it since they were read?

The rows need not be read again: each statement changes its row only where that still stands as expected. If one does
not, nothing is changed at all, and the caller has to look what became of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from p2pqueue.clock import COUNTER_BITS, tick
from p2pqueue.replica.first_changes import insert_changes_of_rows
from p2pqueue.replica.stamp import RETRY_BITS
from p2pqueue.replica.statements import live_sql, quote

if TYPE_CHECKING:
    from p2pqueue.replica.statements import Shape
    from p2pqueue.replica.writer import Writer


def put_first(
    writer: Writer, table: str, register: str, rows: Sequence[tuple[str, tuple[Any, ...]]], *, generation: int, rank: int, earliest: bool,
    before: str, after: str,
) -> bool:  # fmt: skip
    """Writes a register of rows that count as `before` and, by this, as `after`; says whether it did, in all of them.

    Of each row its key and the values, in declared order and with the types of their columns; the register is not
    signed. It does nothing at all where one of them lives no more, is in another life than that of the `generation`,
    counts as something else, or had the register written in this life.
    """
    shape, connection, author = writer.shapes[table], writer.connection, writer.author
    by, parts = bytearray(author), shape.kept[register]  # the sqlite3 module binds a bytearray in a third of the time
    hlc, seq = tick(writer.hlc, writer.now) - 1, writer.seq
    writes: list[tuple[Any, ...]] = []
    changes: list[tuple[Any, ...]] = []
    for key, values in rows:
        hlc += 1
        seq += 1
        time = -hlc if earliest else hlc
        writes.append((key, hlc >> COUNTER_BITS, *values, *parts((generation, rank, 0, time, author)), before))
        changes.append((key, by, seq, generation, rank, 0, time))
    connection.execute("SAVEPOINT first")
    try:
        written = connection.executemany(_update(shape, register), writes).rowcount == len(writes)
        if written:
            insert_changes_of_rows(connection, table, ((register, False),), changes)
    except sqlite3.IntegrityError:  # something stands in `changes` that its row does not show
        written = False
    if not written:
        connection.execute("ROLLBACK TO first")
    connection.execute("RELEASE first")
    if written:
        writer.hlc, writer.seq = hlc, seq
        writer.count(table, {before: -len(writes), after: len(writes)})
        writer.note(table, [key for key, _ in rows])
    return written


@lru_cache(maxsize=32)
def _update(shape: Shape, register: str) -> str:
    """Updates the register of a row that stands as expected; the last parameter is the status that it must count as."""
    columns = shape.columns((register,))
    generation = f"?{columns.index(f'{register}_generation') + 3}"
    expected = (
        f"{quote(f'{register}_generation')} IS NULL AND {quote(f'{shape.creating}_generation')} >> {RETRY_BITS} = "
        f"{generation} >> {RETRY_BITS} AND {live_sql(shape.table)} AND status = ?{len(columns) + 3}"
    )
    return f"{shape.update((register,))} AND {expected}"
