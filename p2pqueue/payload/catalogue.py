"""Which shards and files does this device hold, and where do they lie?

An SQLite file of its own, `shelf.sqlite`. Several processes use it at once, each in short transactions; whoever adds,
drops or frees a shard does so inside an IMMEDIATE one, file and row together, so that they take turns.
Small shards (most manifests) lie in the database itself: one commit makes them durable.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from p2pqueue.errors import DamagedHome, DiskFull, HomeBusy, NewerDatabase, P2PQueueError, ReadOnlyHome, WorldError
from p2pqueue.private import FILE_MODE, in_words, make_private_dir, write_private

VERSION: Final = 3
SPARE_SIZE: Final = 512 * 1024  # bytes: more than the log grows by when thousands of rows are deleted
BUSY_TIMEOUT: Final = 20.0  # seconds that a write waits for those of other processes

SCHEMA: Final = """
CREATE TABLE stored (                  -- sealed shards; body NULL: the file of that name in shards/
    address BLOB PRIMARY KEY,
    size INTEGER NOT NULL,
    body BLOB
);
CREATE TABLE sources (                 -- plain files that are served from where they lie
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL,
    marks TEXT NOT NULL,               -- inode, size, time of change
    device TEXT NOT NULL,
    owned INTEGER NOT NULL             -- 1: an output that lies in this home, removed with its last manifest
);
CREATE INDEX sources_path ON sources (path);
CREATE TABLE plain (                   -- chunks of those files
    address BLOB NOT NULL,
    source INTEGER NOT NULL REFERENCES sources ON DELETE CASCADE,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    algorithm INTEGER NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (address, source, offset)
) WITHOUT ROWID;
CREATE INDEX plain_source ON plain (source);
CREATE TABLE files (                   -- manifests that are whole here, by the address of their first shard
    address BLOB PRIMARY KEY,
    capability TEXT NOT NULL,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    source INTEGER REFERENCES sources ON DELETE SET NULL,
    copied INTEGER NOT NULL            -- 1: all of its chunks are stored
);
CREATE INDEX files_source ON files (source);
CREATE TABLE uses (                    -- the stored shards and the manifests that a manifest needs, itself included
    root BLOB NOT NULL,
    address BLOB NOT NULL,
    PRIMARY KEY (root, address)
) WITHOUT ROWID;
CREATE INDEX uses_address ON uses (address);
CREATE TABLE roots (                   -- temporary: what is being made now, or was made a moment ago
    id INTEGER PRIMARY KEY,
    pid INTEGER NOT NULL,
    touched_at REAL NOT NULL,          -- seconds since 1970
    finished INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE holds (
    root INTEGER NOT NULL REFERENCES roots ON DELETE CASCADE,
    address BLOB NOT NULL,
    PRIMARY KEY (root, address)
) WITHOUT ROWID;
CREATE INDEX holds_address ON holds (address);
CREATE TABLE total (bytes INTEGER NOT NULL);
INSERT INTO total VALUES (0);
CREATE TRIGGER stored_added AFTER INSERT ON stored BEGIN UPDATE total SET bytes = bytes + new.size; END;
CREATE TRIGGER stored_removed AFTER DELETE ON stored BEGIN UPDATE total SET bytes = bytes - old.size; END;
"""
SCHEMA_2: Final = """
CREATE TABLE folders (                 -- whole folders that are served from where they lie
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL,
    digest BLOB NOT NULL,              -- of the paths below it and of what tells one state of each file from another
    owned INTEGER NOT NULL             -- 1: it lies in this home, and is removed with its last manifest
);
CREATE INDEX folders_path ON folders (path);
CREATE TABLE listings (                -- what is known of the files of each folder in them, by its path below
    folder INTEGER NOT NULL REFERENCES folders ON DELETE CASCADE,
    path BLOB NOT NULL,
    files BLOB NOT NULL,               -- MessagePack, see `listing`
    PRIMARY KEY (folder, path)
) WITHOUT ROWID;
CREATE TABLE pieces (                  -- chunks of those folders: each is put together from pieces of files
    address BLOB NOT NULL,
    folder INTEGER NOT NULL REFERENCES folders ON DELETE CASCADE,
    algorithm INTEGER NOT NULL,
    key BLOB NOT NULL,
    length INTEGER NOT NULL,
    made_of BLOB NOT NULL,             -- MessagePack: path, marks, offset and length of each
    contents BLOB NOT NULL,            -- the hash of the hashes of those files; empty where it is a part of one
    PRIMARY KEY (address, folder)
) WITHOUT ROWID;
CREATE INDEX pieces_folder ON pieces (folder);
CREATE TABLE known (                   -- single files that were copied: an unchanged one is not read again
    path BLOB PRIMARY KEY,
    identity TEXT NOT NULL,
    name TEXT NOT NULL,
    root BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX known_root ON known (root);
ALTER TABLE files ADD COLUMN folder INTEGER REFERENCES folders ON DELETE SET NULL;
ALTER TABLE files ADD COLUMN kind TEXT NOT NULL DEFAULT 'file';  -- file, folder, or set: several by their names
ALTER TABLE files ADD COLUMN fetched INTEGER NOT NULL DEFAULT 0; -- 1: it came from another device
ALTER TABLE files ADD COLUMN since REAL NOT NULL DEFAULT 0;      -- seconds since 1970
CREATE INDEX files_folder ON files (folder);
"""
SCHEMA_3: Final = """
ALTER TABLE plain ADD COLUMN tag BLOB;  -- with which the sealed chunk ends; NULL where it was not kept
DROP INDEX plain_source;
CREATE INDEX plain_source ON plain (source, offset);
"""
_STEPS: Final = (SCHEMA, SCHEMA_2, SCHEMA_3)  # from each version to the next

_FULL = 13  # SQLITE_FULL
_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
_READ_ONLY = 8
_CANNOT_OPEN = 14
_IO_ERROR = 10

T = TypeVar("T")


class Catalogue:
    """The database of one shelf. For any thread; opened at its first use, and again in a forked process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._spare = path.with_suffix(".spare")
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what was opened
        self._pid = os.getpid()

    def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """What a short function reads. It gives plain values and never a cursor."""
        with self._lock, self._worded():
            return fn(self._opened())

    def write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a short function in a transaction that is durable on return; any exception takes it back."""
        with self._lock, self._worded():
            return _transact(self._opened(), fn)

    def free(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """The same for a function that frees room. It works on a full disk too: room for its own rows is kept for that.

        The function may run twice.
        """
        with self._lock, self._worded():
            connection = self._opened()
            try:
                return _transact(connection, fn)
            except sqlite3.OperationalError as error:
                if _code(error) != _FULL:
                    raise
                self._spare.unlink(missing_ok=True)
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # then the log is written again from its beginning
                return _transact(connection, fn)

    def compact(self) -> None:
        """Gives free pages back to the disk."""
        with self._lock, self._worded():
            self._opened().execute("PRAGMA incremental_vacuum").fetchall()
            self._opened().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._keep_spare()

    def close(self) -> None:
        """Closes the database; a later use opens it again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._pid == os.getpid():
            if self._connection.in_transaction or self._file == self._found():
                return self._connection
            # Somebody took the database away: what other processes store from now on lies in another one of this name.
            self._connection.close()
        self._connection = None
        make_private_dir(self.path.parent)
        try:
            # SQLite gives its log the mode of its database, so this decides for all three files. A database that is
            # there is not opened: closing it would drop the locks of every other connection of this process.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        except FileExistsError:
            pass
        except OSError as error:
            raise in_words(error, self.path) from error
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, self.path)
        except BaseException:
            connection.close()
            raise
        self._connection, self._file, self._pid = connection, self._found(), os.getpid()
        self._keep_spare()
        return connection

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _keep_spare(self) -> None:
        """Sets room aside for `free`; on a disk that has none, the next sweep tries again."""
        if self._spare.exists():
            return
        try:
            write_private(self._spare, os.urandom(SPARE_SIZE), replace=False)
        except (FileExistsError, WorldError):
            pass

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise _in_words(error, self.path) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT * 1000)}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")  # sweeping a full disk needs no room on it
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise NewerDatabase(f"{path} was written by a newer version of p2pqueue; upgrade this one")
    if version == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts only before the first table
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    if version < VERSION:
        _transact(connection, _migrate)


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]  # looked at again: another process may have been first
    statement = ""
    for line in "".join(_STEPS[version:]).splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _transact(connection: sqlite3.Connection, fn: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        value = fn(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return value


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _in_words(error: sqlite3.DatabaseError, path: Path) -> P2PQueueError:
    code = _code(error)
    if code == _FULL or (code in (_IO_ERROR, _CANNOT_OPEN) and _has_no_space(path)):
        return DiskFull(f"No space left to write {path}; free some and try again")
    if code in _BUSY:
        return HomeBusy(f"Another program has held {path} for more than {BUSY_TIMEOUT:.0f} s; end it, or try again")
    if code == _READ_ONLY:
        return ReadOnlyHome(f"{path} can't be written; check its owner and mode, or choose another home")
    return DamagedHome(f"{path} can't be used ({error}); move it away, and enqueue again the files that are still needed")


def _has_no_space(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < 128 * 1024  # SQLite extends its files by less
    except OSError:
        return False
