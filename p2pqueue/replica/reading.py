"""What does this replica hold, as a peer would ask for it?"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from p2pqueue import wire
from p2pqueue.errors import DamagedHome
from p2pqueue.replica.merging.aside import held_aside
from p2pqueue.replica.signatures.bodies import write_from_body
from p2pqueue.replica.spans import Span, Spans
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.statements import Shape
from p2pqueue.replica.system import SYSTEM_TABLES
from p2pqueue.replica.write import Head, Write

_CHANGE = "tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature"
_SYSTEM = ", ".join(f"'{table.name}'" for table in SYSTEM_TABLES)
Row = Sequence[Any]  # of `changes`: what `_CHANGE` names
_make = tuple.__new__  # a named tuple's own way of making takes three times as long
_FEW = 8  # runs of held numbers that are looked at one by one
# A walk along the index: the next author is the least that is greater.
_WALK = (
    "WITH RECURSIVE known(author) AS (SELECT min(author) FROM changes UNION ALL "
    "SELECT (SELECT min(changes.author) FROM changes WHERE changes.author > known.author) FROM known WHERE known.author IS NOT NULL)"
)
_AUTHORS = f"{_WALK} SELECT author FROM known WHERE author IS NOT NULL UNION SELECT author FROM set_aside WHERE held"
# All of these are read from the index alone, without a look at the rows.
_KNOWN = (
    f"{_WALK} SELECT author, coalesce((SELECT seq FROM heads WHERE heads.author = known.author), 0) FROM known WHERE author IS NOT NULL"
)
_LOOSE = "FROM changes INDEXED BY changes_by_author WHERE author = ? AND seq BETWEEN ? AND ?"
# All in one value: each row that Python fetches would give other threads a chance to take the interpreter.
# Distinct ones: an author that writes under one number twice must not make a hole look filled.
_EXTENT = f"SELECT count(*), min(seq), max(seq) FROM (SELECT DISTINCT seq {_LOOSE})"
_NUMBERS_AT_ONCE = 16_384
_NUMBERS = f"SELECT json_group_array(seq) FROM (SELECT DISTINCT seq {_LOOSE} ORDER BY seq LIMIT {_NUMBERS_AT_ONCE})"
_UNVERIFIED = "SELECT author, seq FROM changes INDEXED BY changes_unverified WHERE verified = 0"
_HELD_ASIDE = (
    "SELECT author, seq FROM set_aside WHERE held AND seq > coalesce((SELECT seq FROM heads WHERE heads.author = set_aside.author), 0)"
)


def heads(connection: sqlite3.Connection) -> dict[bytes, Head]:
    """How far each author's writes are counted here."""
    return {author: Head(seq, tag) for author, seq, tag in connection.execute("SELECT author, seq, tag FROM heads")}


def authors(connection: sqlite3.Connection) -> Iterator[bytes]:
    """Every author that has a live write here, by one probe of the index each; and those of writes that are kept aside."""
    for (author,) in connection.execute(_AUTHORS).fetchall():
        yield author


def is_anything_unsent(connection: sqlite3.Connection, counted: Mapping[bytes, int], held: Mapping[bytes, Sequence[Span]]) -> bool:
    """Says whether there may be a live write, or one kept aside, that a peer neither counts nor holds; quick where there is none."""
    query = "SELECT 1 FROM changes WHERE author = ? AND seq BETWEEN ? AND ? LIMIT 1"
    for author in authors(connection):
        above, spans = counted.get(author, 0), held.get(author, ())
        if len(spans) > _FEW:
            return True
        starts = [above, *(last for _, last in spans)]
        ends = [*(first for first, _ in spans), 1 << 62]
        if any(connection.execute(query, (author, a + 1, b - 1)).fetchone() for a, b in zip(starts, ends, strict=True) if a + 1 < b):
            return True
    return connection.execute("SELECT 1 FROM set_aside WHERE held LIMIT 1").fetchone() is not None


def held(connection: sqlite3.Connection) -> dict[bytes, Spans]:
    """The numbers above each author's head whose writes are here; unchecked signed ones don't count."""
    found = {author: _loose(connection, author, above) for author, above in connection.execute(_KNOWN).fetchall()}
    for author, seq in connection.execute(_UNVERIFIED):
        found[author].remove(seq)
    for author, seq in connection.execute(_HELD_ASIDE):
        found.setdefault(author, Spans()).add(seq)
    return {author: spans for author, spans in found.items() if spans}


def _loose(connection: sqlite3.Connection, author: bytes, above: int) -> Spans:
    """An author's numbers above one: counted where they are one run, as nearly always, else read some thousands at a time."""
    found = Spans()
    number, first, last = connection.execute(_EXTENT, (author, above + 1, 1 << 62)).fetchone()
    if number and number == last - first + 1:
        found.add(first, last)
        return found
    while True:
        (listed,) = connection.execute(_NUMBERS, (author, above + 1, 1 << 62)).fetchone()
        numbers = json.loads(listed)
        found.update(Spans.of_distinct(numbers))
        if len(numbers) < _NUMBERS_AT_ONCE:
            return found
        above = numbers[-1]


def live_writes(
    connection: sqlite3.Connection,
    shapes: Mapping[str, Shape],
    *,
    above: Mapping[bytes, int],
    not_held: Mapping[bytes, Iterable[Span]],
    limit: int,
    only: Iterable[bytes] | None = None,
    unread: bool = False,
) -> list[Write]:
    """Live writes above the receiver's heads that the receiver doesn't hold: what says who is who, then the newest."""
    rows, _ = unsent(connection, above=above, not_held=not_held, limit=limit, only=only)
    found = with_values(connection, shapes, rows, unread=unread)
    return found + unsent_aside(connection, above=above, not_held=not_held, limit=limit - len(found), only=only)


def unsent(
    connection: sqlite3.Connection,
    *,
    above: Mapping[bytes, int],
    not_held: Mapping[bytes, Iterable[Span]],
    limit: int,
    only: Iterable[bytes] | None = None,
) -> tuple[list[Row], dict[bytes, list[int]]]:
    """The rows of such writes; and of each author the numbers that were met and left for later, the highest first.

    An author's rows are met from its highest number downwards: what is not named lies below all that is.
    """
    wanted = set(authors(connection)) if only is None else set(only)
    covered = {author: Spans(not_held.get(author, ())) for author in wanted}
    first = _system_rows(connection, above, covered)
    listed = {(row[7], row[8], row[0], row[1], row[2]) for row in first}
    rows: list[Row] = list(first[:limit])
    if len(rows) == limit:
        return rows, {author: [1 << 62] for author in wanted}
    newest: list[Row] = []
    reached: dict[bytes, list[int]] = {}
    for author in wanted:
        most = limit - len(rows) + len(listed)
        met = _author_rows(connection, author, above.get(author, 0), covered[author], most)
        reached[author] = [met[-1][8] - 1] if len(met) == most else []
        newest += met
    newest = [row for row in newest if (row[7], row[8], row[0], row[1], row[2]) not in listed] if listed else newest
    if len(wanted) > 1:
        newest.sort(key=lambda row: (abs(row[6]), row[8]), reverse=True)
    room = limit - len(rows)
    for row in newest[room:]:
        reached[row[7]].append(row[8])
    return [*rows, *newest[:room]], reached


def row_writes(connection: sqlite3.Connection, shapes: Mapping[str, Shape], table: str, keys: Sequence[str]) -> list[Write]:
    """Every live write of some rows, as for a repair."""
    query = f"SELECT {_CHANGE} FROM changes WHERE tbl = ? AND key IN (SELECT value FROM json_each(?)) AND verified = 1"
    rows = connection.execute(query, (table, json.dumps(list(keys)))).fetchall()
    return with_values(connection, shapes, rows)


def with_values(
    connection: sqlite3.Connection, shapes: Mapping[str, Shape], rows: Sequence[Sequence[Any]], *, unread: bool = False
) -> list[Write]:
    """The writes that rows of `changes` stand for, their values read from the columns in one query per register.

    `unread` leaves the values of signed ones in their bodies, as they travel. Raises `DamagedHome` where a row stands for
    nothing that there is.
    """
    if not rows:
        return []
    tables, keys, registers, *stamps, seqs, bodies, signatures = zip(*rows, strict=True)
    wanted: dict[tuple[str, str], list[str]] = {}
    for table, key, register, body in zip(tables, keys, registers, bodies, strict=True):
        if body is None:
            wanted.setdefault((table, register), []).append(key)
    try:
        found = {place: _values(connection, shapes[place[0]], place[1], of_rows) for place, of_rows in wanted.items()}
        values = [() if body is not None else found[table, register][key]
                  for table, key, register, body in zip(tables, keys, registers, bodies, strict=True)]  # fmt: skip
    except KeyError as error:
        raise DamagedHome(f"The database is damaged: a change in it has no values ({error}); restore a backup into a new home") from error
    made = map(_make, repeat(Stamp), zip(*stamps, strict=True))
    parts = zip(tables, keys, registers, made, seqs, values, bodies, signatures, repeat(False))
    writes = map(_make, repeat(Write), parts)
    return list(writes) if unread else [_read(write) for write in writes]


def _read(write: Write) -> Write:
    return write if write.body is None or write.signature is None else write_from_body(write.body, write.signature)


def values_of(connection: sqlite3.Connection, shape: Shape, registers: Sequence[str], keys: Sequence[str]) -> list[Row] | None:
    """The values of registers of these rows, in their order; None where a row isn't there."""
    found = {row[0]: row[1:] for row in connection.execute(shape.select(*registers), (json.dumps(keys),))}
    return [found[key] for key in keys] if found.keys() >= set(keys) else None


def _values(connection: sqlite3.Connection, shape: Shape, register: str, keys: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The values of a register of some rows, by key."""
    return {row[0]: row[1:] for row in connection.execute(shape.select(register), (json.dumps(keys),))}


def content_of(connection: sqlite3.Connection, shape: Shape, key: str, register: str) -> bytes:
    """The bytes of what stands in a register: its body, or its packed values."""
    row = connection.execute("SELECT body FROM changes WHERE tbl = ? AND key = ? AND register = ?", (shape.name, key, register)).fetchone()
    if row is not None and row[0] is not None:
        return bytes(row[0])
    for _, *columns in connection.execute(shape.select(register), (json.dumps([key]),)):
        return wire.pack(columns)
    return b""


def _system_rows(connection: sqlite3.Connection, above: Mapping[bytes, int], covered: Mapping[bytes, Spans]) -> list[tuple[Any, ...]]:
    rows = connection.execute(f"SELECT {_CHANGE} FROM changes WHERE tbl IN ({_SYSTEM}) AND verified = 1").fetchall()
    wanted = [row for row in rows if row[7] in covered and row[8] > above.get(row[7], 0) and row[8] not in covered[row[7]]]
    devices = dict(connection.execute("SELECT author, device FROM authors"))
    return sorted(wanted, key=lambda row: (_trust_order(row, devices), abs(row[6]), row[8]))


def _trust_order(row: Sequence[Any], devices: Mapping[str, str]) -> int:
    """Where a row stands in the chain of keys: a receiver can check each as it comes."""
    table, key, register, author = row[0], row[1], row[2], row[7].hex()
    if (table, register) == ("devices", "cert"):
        return 0 if devices.get(author) == key else 2
    return 1 if (table, register) == ("authors", "author") else 3


def _author_rows(connection: sqlite3.Connection, author: bytes, above: int, covered: Spans, limit: int) -> list[tuple[Any, ...]]:
    query = (
        f"SELECT {_CHANGE} FROM changes INDEXED BY changes_by_author WHERE author = ? AND seq BETWEEN ? AND ? AND verified = 1 "
        "ORDER BY seq DESC LIMIT ?"
    )
    rows = connection.execute(query, (author, max(covered.highest, above) + 1, (1 << 62), limit)).fetchall()
    for first, last in covered.gaps(above):
        if len(rows) >= limit:
            break
        rows += connection.execute(query, (author, first, last, limit - len(rows))).fetchall()
    return rows


def unsent_aside(
    connection: sqlite3.Connection,
    *,
    above: Mapping[bytes, int],
    not_held: Mapping[bytes, Iterable[Span]],
    limit: int,
    only: Iterable[bytes] | None = None,
) -> list[Write]:
    """Of the writes that are kept aside here, those that the receiver neither counts nor holds."""
    if limit <= 0 or connection.execute("SELECT 1 FROM set_aside WHERE held LIMIT 1").fetchone() is None:
        return []
    wanted = None if only is None else set(only)
    covered = {author: Spans(spans) for author, spans in not_held.items()}
    kept = [write for write, _ in held_aside(connection) if wanted is None or write.stamp.author in wanted]
    lacking = [w for w in kept if w.seq > above.get(w.stamp.author, 0) and w.seq not in covered.get(w.stamp.author, ())]
    return lacking[:limit]


def reached(connection: sqlite3.Connection, counted: Mapping[bytes, int]) -> dict[bytes, int]:
    """Of each author the highest number up to the counted one that is live here, or kept aside."""
    live = "SELECT max(seq) FROM changes INDEXED BY changes_by_author WHERE author = ?1 AND seq <= ?2"
    aside = "SELECT max(seq) FROM set_aside WHERE author = ?1 AND seq <= ?2"
    query = f"SELECT max(coalesce(({live}), 0), coalesce(({aside}), 0))"
    found = {author: int(connection.execute(query, (author, seq)).fetchone()[0]) for author, seq in counted.items()}
    return {author: seq for author, seq in found.items() if seq}


def highest_hole(connection: sqlite3.Connection, author: bytes, below: int) -> int:
    """The highest number up to `below` of which more is known than what may be passed on now, 0 if there is none."""
    unchecked = "SELECT max(seq) FROM changes INDEXED BY changes_unverified WHERE verified = 0 AND author = ?1 AND seq <= ?2"
    aside = "SELECT max(seq) FROM set_aside WHERE held AND author = ?1 AND seq <= ?2"
    query = f"SELECT max(coalesce(({unchecked}), 0), coalesce(({aside}), 0))"
    return int(connection.execute(query, (author, below)).fetchone()[0])
