"""How is the database file opened, and what do SQLite's errors mean in words?"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from p2pqueue.errors import DamagedHome, DiskFull, HomeBusy, ReadOnlyHome, WorldError
from p2pqueue.private import in_words as os_words
from p2pqueue.private import loosened

MEMORY = ":memory:"
_log = logging.getLogger(__name__)
BUSY_WAIT_MS = 10_000  # how long a foreign transaction on the file is waited for
WAL_LIMIT = 4 << 20  # bytes; beyond, the writer checkpoints
_PRAGMAS = (
    "PRAGMA page_size = 2048",  # of a new file: a job touches many trees at one place each, and a commit writes whole pages
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 0",
    f"PRAGMA journal_size_limit = {WAL_LIMIT}",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -8000",  # a commit that split pages walks through all that are kept: twice as many took a tenth of its time
    "PRAGMA secure_delete = OFF",
)
_READER_PRAGMAS = ("PRAGMA query_only = ON", "PRAGMA temp_store = MEMORY", "PRAGMA cache_size = -8000")
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


# For None and bytes the sqlite3 module asks for an adapter at every value that it binds, and looks through attributes
# where there is none: that took more than half the time of an insert. These two give back what they get.
sqlite3.register_adapter(type(None), cast("Callable[[None], None]", {}.get))
sqlite3.register_adapter(bytes, bytes)


def open_writer(path: str, *, create: bool) -> sqlite3.Connection:
    """The connection that writes: WAL, every commit durable, checkpoints by hand. Raises in words."""
    if path != MEMORY:
        _prepare(Path(path), create=create)
    with in_words(path):
        connection = _connect(path, timeout=BUSY_WAIT_MS / 1000)
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection


def open_reader(path: str) -> sqlite3.Connection:
    """A connection that only reads."""
    with in_words(path):
        connection = _connect(path, timeout=BUSY_WAIT_MS / 1000)
        for pragma in _READER_PRAGMAS:
            connection.execute(pragma)
        return connection


def _connect(path: str, *, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=512)


def _prepare(path: Path, *, create: bool) -> None:
    """Makes the file private before SQLite sees it; SQLite gives -wal and -shm the mode of the database."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        if create:
            descriptor = os.open(path, flags, 0o600)
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o600)
            os.close(descriptor)
        elif not path.exists():
            raise DamagedHome(f"The database {path} is missing; restore it from a backup, or begin anew in another home")
    except FileExistsError:
        pass
    except OSError as error:
        raise os_words(error, path) from error
    problem = loosened(path) if path.exists() else None
    if problem is not None:
        _log.warning("%s", problem)
    if not os.access(path, os.W_OK):
        raise ReadOnlyHome(f"{path} can't be written by this user; check its owner and mode, or choose another home")


@contextmanager
def in_words(path: str) -> Iterator[None]:
    """Turns what SQLite raises about the world into errors of the house; mistakes in SQL pass as they are."""
    try:
        yield
    except sqlite3.Error as error:
        told = words(error, path)
        if told is None:
            raise
        raise told from error
    except UnicodeDecodeError as error:
        raise garbled(path) from error


def garbled(path: str) -> DamagedHome:
    """What it means that SQLite's own words can't be decoded: it quotes a schema whose bytes were changed."""
    return DamagedHome(f"The database {path} is damaged (its schema is no text); run `p2pqueue doctor`, or restore a backup")


def words(error: sqlite3.Error, path: str) -> WorldError | None:
    """What an error of SQLite says about disk and file, None if it says nothing about them."""
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return HomeBusy(
            f"another program has held a transaction on {path} for more than {BUSY_WAIT_MS // 1000} s; "
            "close it (a sqlite3 shell, perhaps) and try again"
        )
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path)):
        return DiskFull(f"No space left to write {path}; nothing was written, what was there before is whole. Free some and try again")
    if code == sqlite3.SQLITE_READONLY:
        return ReadOnlyHome(f"{path} can't be written ({error}); check its owner and mode, or choose another home")
    if code in _CORRUPT:
        return DamagedHome(f"The database {path} is damaged ({error}); run `p2pqueue doctor`, or restore a backup")
    if code == sqlite3.SQLITE_CANTOPEN:
        return _unopened(error, path)
    if code == sqlite3.SQLITE_IOERR:
        return DamagedHome(f"The disk failed to read or write {path} ({error})")
    return None


def _unopened(error: sqlite3.Error, path: str) -> WorldError:
    folder = Path(path).parent
    if folder.is_dir() and not os.access(folder, os.W_OK):
        return os_words(OSError(errno.EACCES, os.strerror(errno.EACCES)), folder)
    return DamagedHome(f"The database {path} can't be opened ({error})")


def _is_full(path: str) -> bool:
    try:
        return path != MEMORY and shutil.disk_usage(Path(path).parent).free < 1 << 16
    except OSError:
        return False
