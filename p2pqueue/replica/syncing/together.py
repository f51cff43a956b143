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
from operator import itemgetter
from typing import Any

from p2pqueue.replica.spans import Span, Spans
from p2pqueue.replica.system import SYSTEM_NAMES

_ROWS = (
    "SELECT tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature FROM changes "
    "WHERE tbl = ? AND key IN (SELECT value FROM json_each(?)) AND verified = 1 ORDER BY key"
)
_AT_ONCE = 256  # rows that are looked up at once
_key = itemgetter(1)

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
    lacks = _Lacking(above, not_held, only)
    taken = [row for row in newest if row[0] in SYSTEM_NAMES]
    places = dict.fromkeys((row[0], row[1]) for row in newest if row[0] not in SYSTEM_NAMES)
    sent: set[_Place] = set()
    waiting = iter(places)
    while some := list(islice(waiting, _AT_ONCE)):
        found: dict[_Place, list[Row]] = {}
        for table, alike in groupby(sorted(some), lambda place: place[0]):
            rows = lacks.of(connection.execute(_ROWS, (table, json.dumps([key for _, key in alike]))).fetchall())
            found.update({(table, key): list(of_row) for key, of_row in groupby(rows, _key)})
        for place in some:
            rows = found.get(place, [])
            if taken and len(taken) + len(rows) > limit:
                return taken, _numbers(row for row in newest if row[0] not in SYSTEM_NAMES and (row[0], row[1]) not in sent)
            taken += rows
            sent.add(place)
    return taken, {}


class _Lacking:
    """Which writes a peer neither counts nor holds."""

    def __init__(self, above: Mapping[bytes, int], held: Mapping[bytes, Iterable[Span]], only: Collection[bytes] | None) -> None:
        self._above = above
        self._held = {author: Spans(spans) for author, spans in held.items()}
        self._only = only

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """Those of these rows."""
        authors = {row[7] for row in rows if self._only is None or row[7] in self._only}
        # Most of what is lacking lies in one gap between what the peer holds: that needs no further look.
        gaps = {author: self._widest_gap(author) for author in authors}
        return [row for row in rows if row[7] in authors and (gaps[row[7]][0] <= row[8] <= gaps[row[7]][1] or self._is(row[7], row[8]))]

    def _widest_gap(self, author: bytes) -> Span:
        above, held = self._above.get(author, 0), self._held.get(author, Spans())
        return max(held.gaps(above), key=lambda gap: gap[1] - gap[0], default=(max(above, held.highest) + 1, 1 << 62))

    def _is(self, author: bytes, seq: int) -> bool:
        return seq > self._above.get(author, 0) and seq not in self._held.get(author, ())


def _numbers(rows: Iterable[Row]) -> dict[bytes, list[int]]:
    numbers: dict[bytes, list[int]] = {}
    for row in rows:
        numbers.setdefault(row[7], []).append(row[8])
    return numbers
