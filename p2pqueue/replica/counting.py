"""How many rows have each status? Counters follow each change of a batch, so that nobody has to count a million rows.

Triggers would do it row by row, and cost as much again as the change itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from p2pqueue.replica.statements import Shape

_ADD = "INSERT INTO counts (tbl, status, n) VALUES (?, ?, ?) ON CONFLICT (tbl, status) DO UPDATE SET n = n + excluded.n"


@contextmanager
def counting(connection: sqlite3.Connection, shape: Shape, keys: Collection[str], *, fresh: bool = False) -> Iterator[None]:
    """Keeps the counters right across a change to these rows; `fresh` ones were not there before."""
    if not shape.table.counted or not keys:
        yield
        return
    before = Counter[str]() if fresh else _statuses(connection, shape, keys)
    yield
    after = _statuses(connection, shape, keys)
    after.subtract(before)
    for status, difference in after.items():
        if difference:
            connection.execute(_ADD, (shape.name, status, difference))


def _statuses(connection: sqlite3.Connection, shape: Shape, keys: Collection[str]) -> Counter[str]:
    if len(keys) == 1:
        rows = connection.execute(shape.select_status, tuple(keys))
    else:
        rows = connection.execute(shape.select_statuses, (json.dumps(list(keys)),))
    return Counter(status for (status,) in rows)
