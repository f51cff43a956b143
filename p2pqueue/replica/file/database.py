"""How does a program hold the file of a replica: its writer and its readers?

Writing is one IMMEDIATE transaction under the home's write lock; reading a short transaction on a connection of
its own. Both see what was deferred as if it had been made at once.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar

from p2pqueue.clock import Wall
from p2pqueue.replica import deferring
from p2pqueue.replica.deferring import MOST_DEFERRED, CarryOut
from p2pqueue.replica.file.connection import MEMORY, in_words, open_reader, words
from p2pqueue.replica.file.lock import WriteLock
from p2pqueue.replica.file.log import Log
from p2pqueue.replica.merging.merged import Done, Signer
from p2pqueue.replica.signatures.hand import fast_signer
from p2pqueue.replica.signatures.signing import Keyring
from p2pqueue.replica.statements import Shape
from p2pqueue.replica.writer import Own, Writer

T = TypeVar("T")
Transaction = Callable[[Writer], Any]
_log = logging.getLogger(__name__)
_READERS_KEPT = 4
CARRY_OUT_AGAIN = 5.0  # seconds until readers try again what could not be written: it may have taken them as long as a busy file does
_LOOK_EVERY = 8  # register writes


class Database:
    """The file of a replica, opened. Its methods may be called from any thread."""

    def __init__(
        self, path: str, connection: sqlite3.Connection, lock: WriteLock, signer: Signer, wall: Wall, random: Callable[[int], bytes]
    ) -> None:
        self.path = path
        self.connection = connection
        self._cursor = connection.cursor()  # a new one for each statement takes half as long as the statement
        self.shapes: Mapping[str, Shape] = {}
        self.numbers = (b"", 0, 0)  # of the last transaction: author, its number before and after
        self.touched: Set[tuple[str, str]] = frozenset()  # by the last transaction
        self._lock = lock
        self._signer = signer
        self._sign = fast_signer(signer)
        self._keyring = Keyring(signer)
        self._wall = wall
        self._random = random
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        self.log = Log(path, connection, lock)
        self._unlooked = 0  # numbers given out since the log was looked at
        self._make_deferred: CarryOut | None = None
        self._deferred = 0  # changes that were deferred here and are still to be carried out
        self._carry_out_at = 0.0  # monotonic time before which a reader doesn't try to
        self.commits_begun = self.commits_ended = 0  # so many may be seen by readers; so many are certainly written
        self._own: Own | None = None  # as the last transaction here left it, at this version of the data:
        self._version: tuple[int] | None = None

    @property
    def signer(self) -> Signer:
        """Who writes here."""
        return self._signer

    @signer.setter
    def signer(self, signer: Signer) -> None:
        """The same device under another label."""
        self._signer = signer

    def write(self, fn: Callable[[Writer], T]) -> T:
        """Runs one function in one durable transaction and gives what it gave; if it raises, nothing is written."""
        self._lock.acquire()
        try:
            writer = self._begin()
            result = fn(writer)
            self._commit(writer)
        except BaseException as error:
            self._undo(error)
            raise
        self._lock.release()
        self._unlooked += writer.seq - writer.began_at or 1
        if self._unlooked >= _LOOK_EVERY:  # small transactions look at the log by turns
            self._unlooked = 0
            self.log.checkpoint_if_due()
        return result

    def defer(self, change: bytes) -> None:
        """Makes a change durable that is carried out before anything else is read or written, here or elsewhere.

        It is the cheapest way to write: for changes that need to see nothing, on a replica opened with `carry_out`.
        Whoever defers much calls `carry_out_many` after it.
        """
        self._lock.acquire()
        try:
            self._ending(deferring.INSERT, (change,))
        except BaseException as error:
            self._undo(error)
            raise
        self._lock.release()
        self._deferred += 1
        if self._deferred % _LOOK_EVERY == 0:
            self.log.checkpoint_if_due()

    def carry_out_many(self) -> None:
        """Carries out what was deferred here, if that is much."""
        if self._deferred >= MOST_DEFERRED:
            self.carry_out()

    def has_deferred(self, connection: sqlite3.Connection) -> bool:
        """Says whether changes are still to be carried out, as a connection to this file sees it."""
        return self._make_deferred is not None and time.monotonic() >= self._carry_out_at and deferring.waits(connection)

    def carry_out(self) -> None:
        """Carries out what was deferred. Where it can't be written now, it stays, as durable as it was."""
        (done,) = self.write_many([deferring.nothing])
        if done.error is not None:
            self._carry_out_at = time.monotonic() + CARRY_OUT_AGAIN
            _log.warning("what was deferred in %s can't be carried out yet: %s", self.path, done.error)

    def write_many(self, fns: Sequence[Transaction]) -> list[Done]:
        """Runs several functions in one transaction; one that raises is undone alone."""
        done, _ = self.commit(fns)
        self.log.checkpoint_if_due()
        return done

    def commit(self, fns: Sequence[Transaction], *, loud: Sequence[bool] = ()) -> tuple[list[Done], frozenset[tuple[str, str]]]:
        """`write_many` without the checkpoint; gives the rows too that functions marked as `loud` touched."""
        if len(fns) == 1:
            try:
                with self._transaction() as writer:
                    done = [Done(fns[0](writer))]
            except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets it
                return [Done(error=error)], frozenset()
            return done, frozenset(self.touched) if loud and loud[0] else frozenset()
        heard: set[tuple[str, str]] = set()
        with self._transaction() as writer:
            done = []
            for index, fn in enumerate(fns):
                kept, writer.touched = writer.touched, set()
                done.append(writer.alone(index, fn))
                if loud and loud[index]:
                    heard |= writer.touched
                writer.touched |= kept
        for index, failure in writer.failures.items():
            done[index] = Done(error=failure)
        return done, frozenset(heard)

    def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a function on a connection that only reads, in one short transaction; it gives plain values."""
        with in_words(self.path):
            if self.path == MEMORY:
                if self._deferred:
                    self.carry_out()
                with self._lock.held():
                    return fn(self.connection)
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                if self.has_deferred(connection):
                    connection.execute("ROLLBACK")
                    self.carry_out()
                    connection.execute("BEGIN")
                return fn(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._give_back(connection)

    def now(self) -> int:
        """The wall time of this replica: milliseconds since 1970, UTC."""
        return self._wall()

    def image(self) -> bytes:
        """The bytes of the whole database, as `open(image=…)` takes them."""
        with self._lock.held():
            return self.connection.serialize()

    def close(self) -> None:
        """Closes every connection."""
        with self._readers_lock:
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.close()
        self.log.close()
        self.connection.close()
        self._lock.close()

    def abandon(self) -> None:
        """In a child made by fork: gives back what would keep the parent's lock held after its end; nothing else is touched."""
        self._lock.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _transaction(self) -> _Transaction:
        return _Transaction(self)

    def _begin(self) -> Writer:
        """Begins a transaction; the lock is held."""
        cursor = self._cursor
        cursor.execute("BEGIN IMMEDIATE")
        # What another process has committed since, SQLite tells by the version: until then author, number and clock are known.
        version = cursor.execute("PRAGMA data_version").fetchone()
        own = self._own if version == self._version else None
        self._own, self._version = None, version
        writer = self._writer(own)
        if self._make_deferred is not None and (own is None or self._deferred):
            return self._carry_out(writer, self._make_deferred)
        return writer

    def _carry_out(self, writer: Writer, make: CarryOut) -> Writer:
        """Begins a transaction with what was deferred; what follows counts as written after it."""
        try:
            deferring.carry_out(writer, make)
        except Exception as error:  # one of them is at fault: each for itself
            if deferring.is_of_the_disk(error):
                raise
            _log.debug("deferred changes are made one by one: %s", error)
            self._roll_back()
            self._cursor.execute("BEGIN IMMEDIATE")
            writer = self._writer()
            deferring.carry_out_singly(writer, make)
        self._deferred = 0
        writer.began_at = writer.seq
        return writer

    def _commit(self, writer: Writer) -> None:
        writer.finish()
        self._ending("COMMIT")
        author, seq = writer.author, writer.seq
        self._own = (author, writer.hlc, seq)
        self.numbers = (author, writer.began_at, seq)
        self.touched = writer.touched

    def _ending(self, statement: str, parameters: tuple[bytes, ...] = ()) -> None:
        """Executes a statement that ends a transaction, in view of those who ask how far the disk has come."""
        self.commits_begun += 1
        try:
            self._cursor.execute(statement, parameters)
        finally:
            self.commits_ended += 1

    def _undo(self, error: BaseException) -> None:
        """Undoes a transaction and gives the lock back. Raises in words."""
        try:
            self._roll_back()
        finally:
            self._lock.release()
        told = words(error, self.path) if isinstance(error, sqlite3.Error) else None
        if told is not None:
            raise told from error

    def _roll_back(self) -> None:
        self._own = None
        self._keyring.forget()
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _writer(self, own: Own | None = None) -> Writer:
        return Writer(
            self.connection,
            self.shapes,
            self._signer,
            sign=self._sign,
            keyring=self._keyring,
            now=self._wall(),
            random=self._random,
            own=own,
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


class _Transaction:
    """One IMMEDIATE transaction under the write lock; committed where its block ends well, else undone. Raises in words."""

    __slots__ = ("_database", "_writer")

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Writer:
        database = self._database
        database._lock.acquire()
        try:
            self._writer = database._begin()
        except BaseException as error:
            database._undo(error)
            raise
        return self._writer

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        database = self._database
        if error is not None:
            database._undo(error)
            return
        try:
            database._commit(self._writer)
        except BaseException as failure:
            database._undo(failure)
            raise
        database._lock.release()
