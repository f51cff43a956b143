"""Which writes go along with the newest ones that a peer lacks?

The registers of a row were mostly written at different times, so that their numbers lie far apart. A peer that gets all
of a row at once writes it once, where it would write it again for each register: so what else it lacks of a row goes
along with the newest write of that row.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from p2pqueue.replica.spans import Span, Spans
from p2pqueue.replica.system import SYSTEM_TABLES

_ROWS = (
    "SELECT tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature FROM changes "
    "WHERE tbl = ? AND key IN (SELECT value FROM json_each(?)) AND verified = 1"
)
_AT_ONCE = 256  # rows that are looked up at once
_SYSTEM = frozenset(table.name for table in SYSTEM_TABLES)

Row = Sequence[Any]  # of `changes`, as `_ROWS` names its columns
_Place = tuple[str, str]  # table and key


def whole_rows(
    connection: sqlite3.Connection,
    newest: Sequence[Row],
    *,
    above: Mapping[bytes, int],
    not_held: Mapping[bytes, Iterable[Span]],
    limit: int,
    only: Collection[bytes] | None = None,
) -> tuple[list[Row], dict[bytes, list[int]]]:
    """What a peer lacks of the rows that these writes are of, row by row in their order, up to `limit` writes, or one row.

    Of those that no longer fit it gives the numbers, by author. What says who is who stays before all others.
    """
    held = {author: Spans(spans) for author, spans in not_held.items()}
    none = Spans()
    taken = [row for row in newest if row[0] in _SYSTEM]
    places = dict.fromkeys((row[0], row[1]) for row in newest if row[0] not in _SYSTEM)
    sent: set[_Place] = set()
    waiting = iter(places)
    while some := list(islice(waiting, _AT_ONCE)):
        found: dict[_Place, list[Row]] = {place: [] for place in some}
        for table, alike in groupby(sorted(some), lambda place: place[0]):
            for row in connection.execute(_ROWS, (table, json.dumps([key for _, key in alike]))):
                author, seq = row[7], row[8]
                if seq > above.get(author, 0) and seq not in held.get(author, none) and (only is None or author in only):
                    found[table, row[1]].append(row)
        for place, rows in found.items():
            if taken and len(taken) + len(rows) > limit:
                return taken, _numbers(row for row in newest if row[0] not in _SYSTEM and (row[0], row[1]) not in sent)
            taken += rows
            sent.add(place)
    return taken, {}


def _numbers(rows: Iterable[Row]) -> dict[bytes, list[int]]:
    numbers: dict[bytes, list[int]] = {}
    for row in rows:
        numbers.setdefault(row[7], []).append(row[8])
    return numbers
