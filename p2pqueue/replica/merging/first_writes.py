"""How is a register written for the first time in many rows at once, where all of them get the same values?

One statement does it for all rows of a group, from their keys in JSON: running a statement for each of them, and binding
what is the same again and again, takes twice as long. The writes share one time, as they are of different rows.

The rows need not be read: a statement changes only those that still stand as expected. If one does not, nothing is
changed at all, and the caller has to look what became of them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from p2pqueue.clock import COUNTER_BITS, tick
from p2pqueue.replica.merging.first_changes import insert_alike_changes
from p2pqueue.replica.stamp import RETRY_BITS
from p2pqueue.replica.statements import live_sql, quote

if TYPE_CHECKING:
    from p2pqueue.replica.statements import Shape
    from p2pqueue.replica.writer import Writer


class Group:
    """Rows that are written together, each by the name that its values begin with."""

    __slots__ = ("listed", "names")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.listed = json.dumps(names)


class Named(NamedTuple):
    """A value that begins with the name by which a row of the group goes, and ends with this."""

    ending: str = ""


OWN: Final = Named("\0")  # the number that each row has for itself

_BESIDES = 2  # parameters before the values: the group in JSON, and the newest time
_Wanted = tuple[str | None, ...]  # of each value how SQL gets it: bound, as NULL (None), from a name or from a number


def put_first(
    writer: Writer, table: str, register: str, group: Group, values: Sequence[Any], *, generation: int, rank: int,
    earliest: bool, before: str, after: str,
) -> bool:  # fmt: skip
    """Writes a register of rows that count as `before` and, by this, as `after`; says whether it did, in all of them.

    They are named by their keys. The values go in declared order, with the types of their columns; the register is not
    signed. It does nothing at all where one of the rows lives no more, is in another life than that of the
    `generation`, counts as something else, or had the register written in this life.
    """
    shape, connection = writer.shapes[table], writer.connection
    hlc = tick(writer.hlc, writer.now)
    stamp = (generation, rank, 0, -hlc if earliest else hlc, writer.author)
    given = (*values, *shape.kept[register](stamp))
    keys, listed = group.names, group.listed
    bound = [value.ending if isinstance(value, Named) else value for value in given if value is not None]
    connection.execute("SAVEPOINT first")
    try:
        text = _update(shape, register, _wanted(given))
        written = connection.execute(text, (listed, hlc >> COUNTER_BITS, *bound, generation, before)).rowcount == len(keys)
        if written:
            insert_alike_changes(connection, table, register, listed, stamp, writer.seq + 1)
    except sqlite3.IntegrityError:  # something stands in `changes` that its row does not show
        written = False
    if not written:
        connection.execute("ROLLBACK TO first")
    connection.execute("RELEASE first")
    if written:
        writer.hlc, writer.seq = hlc, writer.seq + len(keys)
        writer.count(table, {before: -len(keys), after: len(keys)})
        writer.note(table, keys)
    return written


def make_alike(
    writer: Writer, table: str, register: str, group: Group, own: Sequence[float], *, key: Named, values: Sequence[Any]
) -> None:  # fmt: skip
    """Makes new rows with their creating register; `own` are the numbers that stand for `OWN` in their values, one for each row.

    Their keys are ones that no row has had. The register is not signed, and the rows of the table are not counted.
    """
    shape, connection = writer.shapes[table], writer.connection
    writer.hlc = hlc = tick(writer.hlc, writer.now)
    stamp = (0, 0, 0, hlc, writer.author)
    given = (*values, *shape.kept[register](stamp))
    bound = [value.ending if isinstance(value, Named) else value for value in given if value is not None and value is not OWN]
    rows = json.dumps(dict(zip(group.names, own, strict=True)))
    connection.execute(_insert(shape, register, _wanted(given)), (rows, hlc >> COUNTER_BITS, *bound, key.ending))
    insert_alike_changes(connection, table, register, group.listed, stamp, writer.seq + 1, ending=key.ending)
    writer.seq += len(group.names)
    writer.note(table, [name + key.ending for name in group.names])


def _wanted(values: Sequence[Any]) -> _Wanted:
    return tuple([None if value is None else "own" if value is OWN else "named" if isinstance(value, Named) else "" for value in values])


def _given(columns: Sequence[str], wanted: _Wanted, name: str) -> tuple[dict[str, str], int]:
    """How the columns get their values, where rows go by that name; and how many parameters there are."""
    given, number = {}, _BESIDES
    for column, how in zip(columns, wanted, strict=True):
        if how == "own":
            given[column] = "each.value"
        elif how is None:
            given[column] = "NULL"
        else:
            number += 1
            given[column] = f"({name} || ?{number})" if how else f"?{number}"
    return given, number


@lru_cache(maxsize=64)
def _update(shape: Shape, register: str, wanted: _Wanted) -> str:
    """Updates rows that stand as expected; the last parameters are their generation and the status that they count as."""
    given, number = _given(shape.columns((register,)), wanted, quote(shape.table.key))
    expected = (
        f"{quote(f'{register}_generation')} IS NULL AND {quote(f'{shape.creating}_generation')} >> {RETRY_BITS} = "
        f"?{number + 1} >> {RETRY_BITS} AND {live_sql(shape.table)} AND +status = ?{number + 2}"  # by key, not by the status
    )
    return f"{shape.update_each(given)} AND {expected}"


@lru_cache(maxsize=64)
def _insert(shape: Shape, register: str, wanted: _Wanted) -> str:
    """Inserts rows; the last parameter is what their keys end with."""
    given, number = _given(shape.columns((register,)), wanted, "each.key")
    return shape.insert_each(given, f"each.key || ?{number + 1}")
