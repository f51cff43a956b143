"""What does a program hold in its hand when it has opened a replica?

One SQLite file with the rows of a space. Writing is one function in one durable transaction, ordered among all
processes of the home; reading is a short transaction on a connection of its own; merging takes a peer's writes.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from p2pqueue.clock import Wall
from p2pqueue.errors import DamagedHome
from p2pqueue.replica import forks, migrations, reading, schema
from p2pqueue.replica.connection import MEMORY, WAL_LIMIT, in_words, open_reader, open_writer
from p2pqueue.replica.lock import WriteLock
from p2pqueue.replica.merge import merge as merge_into
from p2pqueue.replica.merged import Done, Merged, Put, Refused, Signer
from p2pqueue.replica.signing import Keyring, fast_signer
from p2pqueue.replica.spans import Span, Spans
from p2pqueue.replica.statements import Shape, shapes_of
from p2pqueue.replica.system import SYSTEM_TABLES
from p2pqueue.replica.tables import Table
from p2pqueue.replica.upgrade import apply_known
from p2pqueue.replica.verification import is_verified, verify_pending
from p2pqueue.replica.write import Head, Write
from p2pqueue.replica.writer import Writer

__all__ = ["Done", "Head", "Merged", "Put", "Refused", "Replica", "Signer", "Write", "Writer"]

T = TypeVar("T")
Transaction = Callable[[Writer], Any]
_log = logging.getLogger(__name__)
_READERS_KEPT = 4


def wall_clock() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


class Replica:
    """An open replica. Its methods may be called from any thread."""

    def __init__(
        self, path: str, connection: sqlite3.Connection, lock: WriteLock, signer: Signer, wall: Wall, random: Callable[[int], bytes]
    ) -> None:
        self.path = path
        self.connection = connection
        self.shapes: dict[str, Shape] = {}
        self.fork_reason: str | None = None
        self.numbers = (b"", 0, 0)  # of the last transaction: author, its number before and after
        self.touched: frozenset[tuple[str, str]] = frozenset()  # by the last transaction
        self._lock = lock
        self._signer = signer
        self._sign = fast_signer(signer)
        self._keyring = Keyring(signer)
        self._wall = wall
        self._random = random
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        self._wal = path + "-wal"
        self._wal_size = 0

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
        image: bytes | None = None,
    ) -> Replica:
        """Opens the replica in a file, or one in memory (`:memory:`, from an `image` if given).

        `local_tables` are statements (`CREATE … IF NOT EXISTS`) for what never replicates. A file that was copied
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
                replica._prepare(tables, local_tables, machine or forks.machine_id())
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
            here = place == (inode, machine, 0)
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

    def write(self, fn: Callable[[Writer], T]) -> T:
        """Runs one function in one durable transaction and gives what it gave; if it raises, nothing is written."""
        with self._transaction() as writer:
            result = fn(writer)
        self.checkpoint_if_due()
        return result

    def write_many(self, fns: Sequence[Transaction]) -> list[Done]:
        """Runs several functions in one transaction; one that raises is undone alone."""
        done, _ = self.commit(fns)
        self.checkpoint_if_due()
        return done

    def commit(self, fns: Sequence[Transaction], *, loud: Sequence[bool] = ()) -> tuple[list[Done], frozenset[tuple[str, str]]]:
        """`write_many` without the checkpoint; gives the rows too that functions marked as `loud` touched."""
        if len(fns) == 1:
            try:
                with self._transaction() as writer:
                    done = [Done(fns[0](writer))]
            except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets it
                return [Done(error=error)], frozenset()
            return done, self.touched if loud and loud[0] else frozenset()
        heard: set[tuple[str, str]] = set()
        with self._transaction() as writer:
            done = []
            for index, fn in enumerate(fns):
                if loud and loud[index]:
                    kept, writer.touched = writer.touched, set()
                    done.append(self._alone(writer, fn))
                    heard |= writer.touched
                    writer.touched |= kept
                else:
                    done.append(self._alone(writer, fn))
        return done, frozenset(heard)

    def _alone(self, writer: Writer, fn: Transaction) -> Done:
        connection = self.connection
        connection.execute("SAVEPOINT one")
        before = writer.mark()
        try:
            value = fn(writer)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            writer.return_to(before)
            return Done(error=error)
        connection.execute("RELEASE one")
        return Done(value)

    def merge(self, writes: Sequence[Write], *, repair: bool = False) -> Merged:
        """Merges a peer's writes; they are durable when it returns. Moves no head.

        A write under this replica's own author with a number above its own shows that the database was copied or
        restored: then it goes on under a new author first.
        """
        with self._transaction() as writer:
            forked = any(write.stamp.author == writer.author and write.seq > writer.seq for write in writes)
            if forked:
                self._fork(writer, "a peer holds a number of this author that was never given here")
            merged = merge_into(writer, writes, repair=repair)
        self.checkpoint_if_due()
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
                "INSERT INTO heads (author, seq, tag) VALUES (?, ?, ?) "
                "ON CONFLICT (author) DO UPDATE SET seq = excluded.seq, tag = excluded.tag WHERE excluded.seq > heads.seq",
                [(author, *head) for author, head in heads.items() if author != writer.author],
            )
        return ()

    def verify_pending(self, limit: int = 200) -> tuple[Refused, ...]:
        """Checks signatures that were left for later; gives those that don't hold, which are set aside."""
        if self.read(lambda connection: connection.execute("SELECT 1 FROM changes WHERE verified = 0 LIMIT 1").fetchone()) is None:
            return ()
        with self._transaction() as writer:
            return verify_pending(writer, limit)

    def is_verified(self, table: str, key: str, register: str) -> bool:
        """Says whether a register's write is here and its signature was checked (or it needs none)."""
        return self.read(lambda connection: is_verified(connection, table, key, register))

    def acknowledge(self, peer: str, seq: int) -> None:
        """Notes that a peer has everything of the own author up to a number."""
        query = (
            "INSERT INTO acks (peer, author, seq) VALUES (?, ?, ?) "
            "ON CONFLICT (peer, author) DO UPDATE SET seq = max(seq, excluded.seq)"
        )
        with self._transaction() as writer:
            self.connection.execute(query, (peer, writer.author, seq))

    def fork(self, reason: str) -> bytes:
        """Goes on under a new author, since the old one's numbers are used elsewhere too; gives the new author."""
        with self._transaction() as writer:
            return self._fork(writer, reason)

    def _fork(self, writer: Writer, reason: str) -> bytes:
        old = writer.author
        new = forks.fork(writer)
        self.fork_reason = reason
        _log.warning("This database goes on under a new author (%s → %s): %s", old.hex()[:8], new.hex()[:8], reason)
        return new

    # Reading

    def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a function on a connection that only reads, in one short transaction; it gives plain values."""
        with in_words(self.path):
            if self.path == MEMORY:
                with self._lock.held():
                    return fn(self.connection)
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                return fn(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._give_back(connection)

    @property
    def author(self) -> bytes:
        """The author that this replica writes under now."""
        return bytes(self.read(lambda connection: connection.execute("SELECT author FROM incarnation").fetchone()[0]))

    @property
    def hlc(self) -> int:
        """The highest value of the clock that was used or seen here."""
        return int(self.read(lambda connection: connection.execute("SELECT hlc FROM incarnation").fetchone()[0]))

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

    def own_tag(self, seq: int) -> bytes | None:
        """The tag of the own commit that ends at a number; None if none does."""
        row = self.read(lambda connection: connection.execute("SELECT tag FROM commits WHERE seq = ?", (seq,)).fetchone())
        return None if row is None else bytes(row[0])

    def counts(self, table: str) -> dict[str, int]:
        """How many live rows of a table have which status."""
        query = "SELECT status, n FROM counts WHERE tbl = ? AND n > 0"
        return self.read(lambda connection: dict(connection.execute(query, (table,)).fetchall()))

    def image(self) -> bytes:
        """The bytes of the whole database, as `open(image=…)` takes them."""
        with self._lock.held():
            return self.connection.serialize()

    # The file

    def checkpoint_if_due(self) -> None:
        """Moves the log into the database once it has grown beyond 4 MB; waits for nobody."""
        if self.path == MEMORY:
            return
        try:
            size = os.stat(self._wal).st_size
        except OSError:
            return
        if size > WAL_LIMIT and size != self._wal_size:
            self._checkpoint("PASSIVE")
            self._wal_size = size

    def truncate_log(self) -> None:
        """Moves the log into the database and empties it; for idle moments."""
        if self.path != MEMORY:
            self._checkpoint("TRUNCATE")
            self._wal_size = 0

    def _checkpoint(self, mode: str) -> None:
        with self._lock.held():
            try:
                self.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            except sqlite3.OperationalError as error:
                _log.info("the log of %s could not be checkpointed now: %s", self.path, error)

    def close(self) -> None:
        """Closes every connection."""
        with self._readers_lock:
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.close()
        self.connection.close()
        self._lock.close()

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Transactions

    @contextmanager
    def _transaction(self) -> Iterator[Writer]:
        connection = self.connection
        with self._lock.held(), in_words(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                writer = self._writer()
                yield writer
                writer.finish()
                connection.execute("COMMIT")
                self.numbers = (writer.author, writer.began_at, writer.seq)
                self.touched = frozenset(writer.touched)
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        self._keyring.forget()
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _writer(self) -> Writer:
        return Writer(
            self.connection, self.shapes, self._signer, sign=self._sign, keyring=self._keyring, now=self._wall(), random=self._random
        )

    def _reader(self) -> sqlite3.Connection:
        with self._readers_lock:
            if self._readers:
                return self._readers.pop()
        return open_reader(self.path)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._readers_lock:
            if len(self._readers) < _READERS_KEPT:
                self._readers.append(connection)
                return
        connection.close()
