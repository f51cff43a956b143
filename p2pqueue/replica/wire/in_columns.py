"""How are the writes of many rows read column by column, as they travel?"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter

from p2pqueue.replica.reading import Row, values_of, with_values
from p2pqueue.replica.signatures.bodies import new_packer
from p2pqueue.replica.statements import Shape
from p2pqueue.replica.system import SYSTEM_NAMES
from p2pqueue.replica.wire.columns import AlikeRows, RegisterColumns, WellFormed

FEWEST = 4  # rows that go column by column

_of_row = itemgetter(0, 1)  # table and key
_Kind = tuple[tuple[str, bool], ...]  # of each register: its name, and whether it is signed


def in_columns(connection: sqlite3.Connection, shapes: Mapping[str, Shape], rows: Sequence[Row]) -> WellFormed:
    """The writes that rows of `changes` stand for, which come row by row; signed ones that go singly keep their values in their bodies.

    Raises `DamagedHome` where a row stands for nothing that there is.
    """
    left, alike = _sorted_out(rows)
    taken = []
    for (table, _), found in alike.items():
        columns = _columns(connection, shapes, table, found) if len(found) >= FEWEST else None
        if columns is None:
            left += chain.from_iterable(found)
        else:
            taken.append(columns)
    return WellFormed(with_values(connection, shapes, left, unread=True), taken)


def _sorted_out(rows: Sequence[Row]) -> tuple[list[Row], dict[tuple[str, _Kind], list[list[Row]]]]:
    """What goes one by one, as what says who is who, whose order matters; and rows of one table with the same registers."""
    left: list[Row] = []
    alike: dict[tuple[str, _Kind], list[list[Row]]] = {}
    for (table, _), some in groupby(rows, _of_row):
        of_row = list(some)
        if table in SYSTEM_NAMES or any((row[9] is None) != (row[10] is None) for row in of_row):
            left += of_row
        else:
            alike.setdefault((table, tuple([(row[2], row[9] is not None) for row in of_row])), []).append(of_row)
    return left, alike


def _columns(connection: sqlite3.Connection, shapes: Mapping[str, Shape], table: str, rows: Sequence[Sequence[Row]]) -> AlikeRows | None:
    """These rows; None where something in them has to go by itself."""
    shape, names = shapes.get(table), [row[2] for row in rows[0]]
    if shape is None or not set(names) <= shape.registers.keys():
        return None
    keys = [of_row[0][1] for of_row in rows]
    found = values_of(connection, shape, names, keys)
    if found is None:
        return None
    columns = list(zip(*found, strict=True))
    pack = new_packer().pack
    registers = []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        _, _, _, generations, ranks, claims, hlcs, authors, seqs, bodies, signatures = zip(*column, strict=True)
        stamps = (generations, ranks, claims, hlcs, authors)
        values, columns = tuple(columns[: shape.width[name]]), columns[shape.width[name] :]
        if bodies[0] is None:
            registers.append(RegisterColumns(name, stamps, seqs, values))
            continue
        # Whoever gets the columns packs the bodies again: they have to come out as they are.
        parts = zip(repeat(table), keys, repeat(name), zip(*stamps, strict=True), seqs, zip(*values, strict=True))
        if tuple(map(pack, parts)) != bodies:
            return None
        registers.append(RegisterColumns(name, stamps, seqs, values, bodies, signatures, (False,) * len(keys)))
    return AlikeRows(table, keys, tuple(registers))
