"""How does a session's request become a reading or a writing of the replica?

`answer` carries one request out, synchronously, and gives what `Session.answered` takes. The simulator calls it
in virtual time, a node in the threads of its store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from p2pqueue.replica import reading
from p2pqueue.replica.reading import with_values
from p2pqueue.replica.replica import Merged, Refused, Replica
from p2pqueue.replica.spans import Span, Spans
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.comparing import bucket_writes, digests, greater_writes
from p2pqueue.replica.syncing.digest import mark_of
from p2pqueue.replica.syncing.effects import (
    Answer,
    BucketPage,
    DigestRead,
    DropEnded,
    Merge,
    MoveHeads,
    Observe,
    Observed,
    Page,
    ReadBucket,
    ReadDigest,
    ReadEnded,
    ReadGreater,
    ReadRows,
    ReadState,
    ReadUnsent,
    Recheck,
    Request,
    RowPage,
    State,
    Taken,
)
from p2pqueue.replica.syncing.messages import MAX_MARKS, MAX_MENDED, Refusal, RowId
from p2pqueue.replica.syncing.recheck import recheck
from p2pqueue.replica.syncing.together import whole_rows
from p2pqueue.replica.wire.columns import WellFormed, authors_of, numbers_of
from p2pqueue.replica.wire.cutting import cut
from p2pqueue.replica.wire.in_columns import in_columns
from p2pqueue.replica.write import Head, Write

_MANY = 64  # writes from which on they are sent row by row
_REGISTERS = 3  # of a row, mostly: so many writes go along with the newest of a row
VERIFY_BATCH = 250  # signatures checked in one transaction: 10 ms
Place = tuple[bytes, int]  # an author and a number
NOT_RELAYED = "a device of this role may not relay"


@dataclass(frozen=True)
class Peering:
    """A replica's side of one session: with whom, and what both roles allow."""

    replica: Replica
    peer: str  # device id
    peer_relays: bool = True

    def answer(self, request: Request) -> Answer:
        """Carries a request out."""
        replica = self.replica
        match request:
            case ReadState():
                return replica.read(self._state)
            case ReadUnsent():
                return replica.read(lambda connection: self._page(connection, request))
            case Merge():
                return self._merge(request)
            case MoveHeads():
                return self._move_heads(request)
            case Observe():
                return self._observe(request)
            case Recheck():
                replica.write(lambda writer: recheck(writer, [(each.author, each.seq) for each in request.refusals]))
                return None
            case ReadRows():
                rows, resume = replica.live_rows(after=request.after, limit=request.limit)
                return RowPage(tuple(RowId(*row) for row in rows), resume)
            case ReadEnded():
                return tuple(RowId(*row) for row in replica.ended_of(request.rows))
            case DropEnded():
                replica.drop_ended(request.rows, falls=request.falls)
                return None
            case ReadDigest():
                return replica.read(self._digest)
            case ReadBucket():
                return replica.read(lambda connection: self._bucket(connection, request))
            case ReadGreater():
                return tuple(replica.read(lambda connection: greater_writes(connection, replica.shapes, request.writes))[:MAX_MENDED])

    def observe(self, request: Observe) -> Observed | None:
        """Answers by reading alone; None where something must be written, so that `answer` has to."""
        heads, author, problem, acknowledged = self.replica.read(lambda connection: _compare(connection, request, self.peer))
        if problem is not None or _is_record(request, author, acknowledged):
            return None
        return Observed(heads, forked=False)

    def check(self, after: Place) -> tuple[tuple[Refusal, ...], Place | None]:
        """Checks a page of the signatures that were left for later; gives those that don't hold, and where the next page begins.

        `MoveHeads` checks all that are left; where they are many, this keeps transactions short.
        """
        refused, place = self.replica.verify_page(after, VERIFY_BATCH)
        return tuple(_refusal(each) for each in refused if each.lasting), place

    def _state(self, connection: sqlite3.Connection) -> State:
        (author,) = connection.execute("SELECT author FROM incarnation").fetchone()
        held = reading.held(connection)
        theirs = held.keys() & _authors_of(connection, self.peer) if held else ()
        marks = {each: _marks(connection, each, held[each]) for each in theirs}
        return State(author, reading.heads(connection), held, _falls(connection), marks)

    def _page(self, connection: sqlite3.Connection, request: ReadUnsent) -> Page:
        shapes, heads = self.replica.shapes, reading.heads(connection)
        only = _authors_of(connection, None) if request.own_only else None
        if only is not None:
            heads = {author: head for author, head in heads.items() if author in only}
        reached = reading.reached(connection, request.counted) if request.reached else {}
        if not reading.is_anything_unsent(connection, request.counted, request.held):  # as nearly always
            return Page((), "nothing", heads, _falls(connection), reached=reached)
        limit = request.messages * request.max_writes
        rows, left, is_more = _unsent_rows(connection, request, only, limit // _REGISTERS + 1)
        writes = (
            in_columns(connection, shapes, rows) if len(rows) >= _MANY else WellFormed(with_values(connection, shapes, rows, unread=True))
        )
        aside = reading.unsent_aside(connection, above=request.counted, not_held=request.held, limit=limit + 1 - len(writes), only=only)
        writes = WellFormed((*writes.single, *aside), writes.alike) if aside else writes
        messages = list(cut(writes, max_writes=request.max_writes, max_bytes=request.max_bytes))
        kept, unkept = messages[: request.messages], messages[request.messages :]
        rest: Literal["nothing", "more", "not ours to relay"] = "more" if unkept or is_more else "nothing"
        if rest == "nothing" and only is not None:
            others = set(reading.authors(connection)) - only
            if reading.live_writes(connection, shapes, above=request.counted, not_held=request.held, limit=1, only=others):
                rest = "not ours to relay"
        for message in unkept:
            for author, numbers in numbers_of(message).items():
                left.setdefault(author, []).extend(numbers)
        return Page(tuple(kept), rest, heads, _falls(connection), _covered(connection, request, heads, left), reached)

    def _merge(self, request: Merge) -> Taken:
        writes: Sequence[Write] = request.writes
        refusals: list[Refusal] = []
        if not self.peer_relays:
            own = self.replica.read(lambda connection: _authors_of(connection, self.peer))
            own |= {write.stamp.author for write in writes if _introduces(write, self.peer)}
            refusals = [Refusal(w.stamp.author, w.seq, NOT_RELAYED) for w in writes if w.stamp.author not in own]
            writes = [write for write in writes if write.stamp.author in own]
        author = self.replica.read(lambda connection: _contradicted(connection, writes))
        if author is not None:
            self.replica.fork("a peer holds another write under a number that was given here", author=author)
        merged: Merged = self.replica.merge(writes, repair=request.repair)
        refusals += map(_refusal, merged.refused)
        closes = any(write.register == "closed" for write in (writes.single if isinstance(writes, WellFormed) else writes))
        if request.repair or closes:  # no `done` follows a repair that would have it checked
            refusals += map(_refusal, self._verify())
        closed = self.replica.read(_closed_author) if closes else None
        if closed is not None:
            self.replica.fork("another database of this device has closed this author", author=closed)
        forked = merged.forked or author is not None or closed is not None
        return Taken(tuple(refusals), tuple(map(_refusal, merged.set_aside)), forked)

    def _move_heads(self, request: MoveHeads) -> tuple[Refusal, ...] | None:
        heads = request.heads
        if not self.peer_relays:
            own = self.replica.read(lambda connection: _authors_of(connection, self.peer))
            heads = {author: head for author, head in heads.items() if author in own}
        refused = list(self._verify())
        answer = self.replica.move_heads(heads, falls=request.falls)
        if answer is None:
            return None
        refused += answer
        return tuple(_refusal(each) for each in refused if each.author in heads and each.seq <= heads[each.author].seq)

    def _verify(self) -> Sequence[Refused]:
        """Checks what was left for later in short transactions, before the one that moves heads checks the rest."""
        refused: list[Refused] = []
        place: tuple[bytes, int] | None = (b"", 0) if self.replica.unverified() else None
        while place is not None:
            answers, place = self.replica.verify_page(place, VERIFY_BATCH)
            refused += [each for each in answers if each.lasting]
        return refused

    def _observe(self, request: Observe) -> Observed:
        replica = self.replica
        heads, author, problem, acknowledged = replica.read(lambda connection: _compare(connection, request, self.peer))
        if problem is not None:
            replica.fork(problem, author=author)
        elif _is_record(request, author, acknowledged):
            replica.acknowledge(self.peer, request.heads[author].seq, author=author)
        return Observed(heads, problem is not None)

    def _digest(self, connection: sqlite3.Connection) -> DigestRead:
        return DigestRead(reading.heads(connection), reading.held(connection), digests(connection, self.replica.shapes))

    def _bucket(self, connection: sqlite3.Connection, request: ReadBucket) -> BucketPage:
        table, number = request.bucket
        writes, resume = bucket_writes(connection, self.replica.shapes, table, number, after=request.after, limit=MAX_MENDED)
        return BucketPage(tuple(writes), resume)


def _marks(connection: sqlite3.Connection, author: bytes, held: Spans) -> dict[int, int]:
    """The marks of the highest held writes of an author."""
    query = (
        "SELECT seq, tbl, key, register, generation, rank, claim, hlc, author FROM changes "
        "WHERE author = ? AND seq BETWEEN ? AND ? AND verified = 1 ORDER BY seq DESC LIMIT ?"
    )
    marks: dict[int, int] = {}
    for first, last in reversed(list(held)):
        rows = connection.execute(query, (author, first, last, MAX_MARKS - len(marks)))
        marks.update((seq, mark_of(table, key, register, Stamp(*stamp))) for seq, table, key, register, *stamp in rows)
        if len(marks) == MAX_MARKS:
            break
    return marks


def _unsent_rows(
    connection: sqlite3.Connection, request: ReadUnsent, only: set[bytes] | None, limit: int
) -> tuple[list[reading.Row], dict[bytes, list[int]], bool]:
    """The rows of `changes` to send next, the numbers that were met and left for later, and whether others surely follow.

    They are those of the newest writes, so many of which are looked at.
    """
    counted, held, most = request.counted, request.held, request.messages * request.max_writes
    rows, left = reading.unsent(connection, above=counted, not_held=held, limit=limit, only=only)
    if len(rows) < _MANY and (limit > most or len(rows) < limit):
        return rows, left, False
    taken, later = whole_rows(connection, rows, above=counted, not_held=held, limit=most, only=only)
    if len(rows) == limit <= most and len(taken) <= most // 2:  # their rows have fewer registers than most
        return _unsent_rows(connection, request, only, most + 1)
    for author, numbers in later.items():
        left.setdefault(author, []).extend(numbers)
    return taken, left, bool(later) or len(rows) == limit


def _covered(
    connection: sqlite3.Connection, request: ReadUnsent, heads: Mapping[bytes, Head], left: Mapping[bytes, list[int]]
) -> dict[bytes, Span]:
    """Of each author the counted numbers above all that were left for later: nothing can come to life among them any more."""
    found: dict[bytes, Span] = {}
    for author, numbers in left.items():
        last = heads[author].seq if author in heads else 0
        below = max([request.counted.get(author, 0), *numbers])
        if below < last:
            first = max(below, reading.highest_hole(connection, author, last)) + 1
            if first <= last:
                found[author] = (first, last)
    return found


def _falls(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT falls FROM incarnation").fetchone()[0])


def _compare(connection: sqlite3.Connection, request: Observe, peer: str) -> tuple[dict[bytes, Head], bytes, str | None, int]:
    """Our heads and author, what is wrong with what the peer knows of it, and what it has acknowledged so far."""
    heads = reading.heads(connection)
    (author,) = connection.execute("SELECT author FROM incarnation").fetchone()
    own, known = heads.get(author, Head(0, b"")), request.heads.get(author, Head(0, b""))
    if max(known.seq, request.held.get(author, Spans()).highest) > own.seq:
        return heads, author, "a peer knows a number of this author that was never given here", 0
    if known.seq and connection.execute("SELECT tag FROM commits WHERE seq = ?", (known.seq,)).fetchone() != (known.tag,):
        return heads, author, "a peer knows another commit under a number that was given here", 0
    marks = request.marks.get(author)
    if marks:
        ours = _marks(connection, author, Spans((seq, seq) for seq in marks))
        if any(marks[seq] != mark for seq, mark in ours.items()):
            return heads, author, "a peer holds another write under a number that was given here", 0
    row = connection.execute("SELECT seq FROM acks WHERE peer = ? AND author = ?", (peer, author)).fetchone()
    return heads, author, None, 0 if row is None else row[0]


def _is_record(request: Observe, author: bytes, acknowledged: int) -> bool:
    return request.record and author in request.heads and request.heads[author].seq > acknowledged


def _closed_author(connection: sqlite3.Connection) -> bytes | None:
    """Our author, if a row closes it: a clone was quicker to see that two databases write under it."""
    query = (
        "SELECT incarnation.author FROM incarnation JOIN changes ON tbl = 'authors' AND key = lower(hex(incarnation.author)) "
        "AND register = 'closed' AND verified = 1"
    )
    row = connection.execute(query).fetchone()
    return None if row is None else bytes(row[0])


def _contradicted(connection: sqlite3.Connection, writes: Sequence[Write]) -> bytes | None:
    """Our author, if one of these writes bears a number of it under which something else stands here."""
    (author,) = connection.execute("SELECT author FROM incarnation").fetchone()
    query = "SELECT tbl, key, register, generation, rank, claim, hlc FROM changes WHERE author = ? AND seq = ?"
    for write in writes if author in authors_of(writes) else ():
        if write.stamp.author == author:
            ours = connection.execute(query, (author, write.seq)).fetchone()
            if ours is not None and ours != (write.table, write.key, write.register, *write.stamp[:4]):
                return bytes(author)
    return None


def _authors_of(connection: sqlite3.Connection, device: str | None) -> set[bytes]:
    """The authors of a device, or (None) of this one."""
    if device is None:
        query = (
            "SELECT author FROM authors WHERE device IN (SELECT authors.device FROM authors JOIN incarnation "
            "ON authors.author = lower(hex(incarnation.author)))"
        )
        return {bytes.fromhex(author) for (author,) in connection.execute(query)}
    return {bytes.fromhex(author) for (author,) in connection.execute("SELECT author FROM authors WHERE device = ?", (device,))}


def _introduces(write: Write, device: str) -> bool:
    return (write.table, write.register) == ("authors", "author") and write.values == (device,) and write.key == write.stamp.author.hex()


def _refusal(refused: Refused) -> Refusal:
    return Refusal(refused.author, refused.seq, refused.reason)


__all__ = ["Head", "Peering"]
