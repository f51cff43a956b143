"""What does a program hold in its hand when it has opened a replica?

One SQLite file with the rows of a space. Writing is one function in one durable transaction, ordered among all
processes of the home; reading is a short transaction on a connection of its own; merging takes a peer's writes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from p2pqueue.clock import Wall
from p2pqueue.errors import DamagedHome
from p2pqueue.replica import deferring, reading, retention, schema
from p2pqueue.replica.file import migrations
from p2pqueue.replica.file.connection import MEMORY, in_words, open_writer
from p2pqueue.replica.file.database import Database
from p2pqueue.replica.file.lock import WriteLock
from p2pqueue.replica.merging import forks
from p2pqueue.replica.merging.merge import merge as merge_into
from p2pqueue.replica.merging.merged import Done, Merged, Put, Refused, RowRef, Signer
from p2pqueue.replica.merging.upgrade import apply_known
from p2pqueue.replica.signatures.verification import is_verified, pending, verify_page, verify_pending
from p2pqueue.replica.spans import Span, Spans
from p2pqueue.replica.statements import shapes_of
from p2pqueue.replica.system import SYSTEM_TABLES
from p2pqueue.replica.tables import Table
from p2pqueue.replica.wire.columns import numbers_of
from p2pqueue.replica.write import Head, Write
from p2pqueue.replica.writer import SELECT_OWN, Writer

__all__ = ["Done", "Head", "Merged", "Put", "Refused", "Replica", "Signer", "Write", "Writer"]

_log = logging.getLogger(__name__)


def wall_clock() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


class Replica(Database):
    """An open replica. Its methods may be called from any thread."""

    fork_reason: str | None = None  # why this replica took a new author since it was opened

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        tables: Sequence[Table],
        identity: Signer,
        wall: Wall = wall_clock,
        random: Callable[[int], bytes] = os.urandom,
        create: bool = True,
        machine: str | None = None,
        local_tables: Sequence[str] = (),
        carry_out: deferring.CarryOut | None = None,
        image: bytes | None = None,
    ) -> Replica:
        """Opens the replica in a file, or one in memory (`:memory:`, from an `image` if given).

        `local_tables` are statements (`CREATE … IF NOT EXISTS`) for what never replicates; `carry_out` makes the
        changes that are deferred (`defer`), without it there are none. A file that was copied
        or restored goes on under a new author. Raises `NewerDatabase`, `DamagedHome`, `ReadOnlyHome`, `DiskFull`
        and `HomeBusy`.
        """
        name = str(path)
        lock = WriteLock(None if name == MEMORY else Path(name).with_suffix(".lock"))
        try:
            connection = open_writer(name, create=create)
        except BaseException:
            lock.close()
            raise
        replica = cls(name, connection, lock, identity, wall, random)
        try:
            if image is not None:
                connection.deserialize(image)
            with in_words(name):
                local = local_tables if carry_out is None else (*local_tables, deferring.TABLE)
                replica._prepare(tables, local, forks.machine_id() if machine is None else machine)
                replica._make_deferred = carry_out
        except BaseException:
            replica.close()
            raise
        return replica

    def _prepare(self, declared: Sequence[Table], local_tables: Sequence[str], machine: str) -> None:
        connection = self.connection
        missing = migrations.check(connection, self.path)
        inode = None if self.path == MEMORY else forks.inode_of(self.path)
        if not missing:
            tables = schema.unite(schema.stored_tables(connection), (*SYSTEM_TABLES, *declared))
            self.shapes = shapes_of(tables)
            place = connection.execute("SELECT inode, machine, copied FROM incarnation").fetchone()
            here = place == (inode, machine or place[1], 0)
            if here and schema.is_current(connection, tables) and schema.has_local(connection, local_tables):
                return
        with self._lock.held():
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._make_current(declared, local_tables, inode, machine)
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _make_current(self, declared: Sequence[Table], local_tables: Sequence[str], inode: int | None, machine: str) -> None:
        connection = self.connection
        fresh = migrations.version_of(connection) == 0
        if fresh and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,):
            raise DamagedHome(f"{self.path} is some other program's database; choose another home")
        migrations.migrate(connection)
        tables = schema.unite(schema.stored_tables(connection), (*SYSTEM_TABLES, *declared))
        self.shapes = shapes_of(tables)
        new = schema.declare(connection, tables)
        for statement in local_tables:
            connection.execute(statement)
        if fresh:
            author = forks.new_author(self._random)
            insert = "INSERT INTO incarnation (one, author, hlc, inode, machine) VALUES (1, ?, 0, ?, ?)"
            connection.execute(insert, (author, inode, machine))
        writer = self._writer()
        if fresh:
            forks.introduce(writer)
        else:
            apply_known(writer, new)
            reason = forks.copied(writer, inode, machine)
            if reason is not None:
                self._fork(writer, reason)
            forks.settle_place(writer, inode, machine)
        writer.finish()

    # Writing

    def merge(self, writes: Sequence[Write], *, repair: bool = False) -> Merged:
        """Merges a peer's writes; they are durable when it returns. Moves no head.

        A write under this replica's own author with a number above its own shows that the database was copied or
        restored: then it goes on under a new author first.
        """
        with self._transaction() as writer:
            forked = max(numbers_of(writes).get(writer.author, (0,))) > writer.seq
            if forked:
                self._fork(writer, "a peer holds a number of this author that was never given here")
            merged = merge_into(writer, writes, repair=repair)
        self.log.checkpoint_if_due()
        return merged if not forked else Merged(**{**merged.__dict__, "forked": True})

    def move_heads(self, heads: Mapping[bytes, Head], *, falls: int | None = None) -> tuple[Refused, ...] | None:
        """Raises heads to those of a finished round (`done`), once every signed write up to them is verified.

        Gives the writes that don't hold, and then moves nothing; () means moved. None if a head has fallen since
        the round began (`falls`).
        """
        with self._transaction() as writer:
            connection = self.connection
            if falls is not None and connection.execute("SELECT falls FROM incarnation").fetchone() != (falls,):
                return None
            refused = verify_pending(writer, 1 << 30)
            if any(each.seq <= heads[each.author].seq for each in refused if each.author in heads):
                return refused
            connection.executemany(
                "INSERT INTO counted (author, seq, tag) VALUES (?, ?, ?) "
                "ON CONFLICT (author) DO UPDATE SET seq = excluded.seq, tag = excluded.tag WHERE excluded.seq > counted.seq",
                [(author, *head) for author, head in heads.items() if author != writer.author],
            )
        return ()

    def verify_pending(self, limit: int = 200) -> tuple[Refused, ...]:
        """Checks signatures that were left for later; gives those that don't hold, which are set aside."""
        if self.read(lambda connection: connection.execute("SELECT 1 FROM changes WHERE verified = 0 LIMIT 1").fetchone()) is None:
            return ()
        with self._transaction() as writer:
            return verify_pending(writer, limit)

    def verify_page(self, after: tuple[bytes, int], limit: int) -> tuple[tuple[Refused, ...], tuple[bytes, int] | None]:
        """Checks a page of them, behind an author and a number; gives those that don't hold, and where the next page begins."""
        with self._transaction() as writer:
            return verify_page(writer, after, limit)

    def is_verified(self, table: str, key: str, register: str) -> bool:
        """Says whether a register's write is here and its signature was checked (or it needs none)."""
        return self.read(lambda connection: is_verified(connection, table, key, register))

    def acknowledge(self, peer: str, seq: int, *, author: bytes | None = None) -> None:
        """Notes that a peer has everything of the own author up to a number; nothing if `author` is no longer that."""
        query = (
            "INSERT INTO acks (peer, author, seq) VALUES (?, ?, ?) ON CONFLICT (peer, author) DO UPDATE SET seq = max(seq, excluded.seq)"
        )
        with self._transaction() as writer:
            if author in (None, writer.author):
                self.connection.execute(query, (peer, writer.author, seq))

    def fork(self, reason: str, *, author: bytes | None = None) -> bytes:
        """Goes on under a new author, since the old one's numbers are used elsewhere too; gives the new author.

        If `author` is given and no longer the one that writes here, nothing is done: it forked already.
        """
        with self._transaction() as writer:
            return self._fork(writer, reason) if author in (None, writer.author) else writer.author

    def _fork(self, writer: Writer, reason: str) -> bytes:
        old = writer.author
        new = forks.fork(writer)
        self.fork_reason = reason
        _log.warning("This database goes on under a new author (%s → %s): %s", old.hex()[-8:], new.hex()[-8:], reason)
        return new

    # Reading

    @property
    def author(self) -> bytes:
        """The author that this replica writes under now."""
        return bytes(self.read(lambda connection: connection.execute("SELECT author FROM incarnation").fetchone()[0]))

    @property
    def hlc(self) -> int:
        """The highest value of the clock that was used or seen here."""
        return int(self.read(lambda connection: connection.execute(SELECT_OWN).fetchone()[1]))

    @property
    def falls(self) -> int:
        """How often a head of this replica has fallen."""
        return int(self.read(lambda connection: connection.execute("SELECT falls FROM incarnation").fetchone()[0]))

    def heads(self) -> dict[bytes, Head]:
        """How far each author's writes are counted here."""
        return self.read(reading.heads)

    def held(self) -> dict[bytes, Spans]:
        """The numbers above the heads whose writes are here."""
        return self.read(reading.held)

    def live_writes(
        self,
        *,
        above: Mapping[bytes, int],
        not_held: Mapping[bytes, Iterable[Span]] = {},
        limit: int = 200,
        only: Iterable[bytes] | None = None,
    ) -> list[Write]:
        """Live writes above a receiver's heads that it doesn't hold, the newest first; `only` of these authors."""
        return self.read(
            lambda connection: reading.live_writes(connection, self.shapes, above=above, not_held=not_held, limit=limit, only=only)
        )

    def counts(self, table: str) -> dict[str, int]:
        """How many live rows of a table have which status."""
        query = "SELECT status, n FROM counts WHERE tbl = ? AND n > 0"
        return self.read(lambda connection: dict(connection.execute(query, (table,)).fetchall()))

    def unverified(self) -> int:
        """How many signed writes still wait to be checked."""
        return self.read(pending)

    def live_rows(self, *, after: tuple[str, str] | None = None, limit: int = 1000) -> tuple[list[RowRef], tuple[str, str] | None]:
        """Rows that have not ended and were here for more than a day, by (table, key); and where the next page begins."""
        now, shapes = self._wall(), self.shapes.values()
        rows = self.read(lambda connection: retention.live_rows_since(connection, shapes, now, after=after, limit=limit))
        return rows, (rows[-1].table, rows[-1].key) if len(rows) >= limit else None

    def ended_of(self, rows: Iterable[tuple[str, str, bytes, int]]) -> list[RowRef]:
        """Those of a peer's live rows that ended here: their creating write is counted here, and they are gone."""
        asked = [RowRef(*row) for row in rows]
        return self.read(lambda connection: retention.ended_among(connection, self.shapes, asked))

    def drop_ended(self, rows: Iterable[tuple[str, str, bytes, int]], *, falls: int | None = None) -> int:
        """Drops rows that ended elsewhere; gives how many. Does nothing if a head has fallen since `falls` was read."""
        with self._transaction() as writer:
            if falls is not None and self.connection.execute("SELECT falls FROM incarnation").fetchone() != (falls,):
                return 0
            return retention.drop_ended(writer, [RowRef(*row) for row in rows])

    def __enter__(self) -> Replica:
        return self
