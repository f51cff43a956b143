"""How does a database become a sound copy while it is being written, and come back from one?

SQLite's own backup takes a snapshot beside running writers; copying the files one by one does not. The copy is
marked, so that whoever opens it goes on under a new author (page "forks").
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from p2pqueue.errors import AlreadyInitialised, DamagedHome, MisuseError
from p2pqueue.private import in_words as os_words
from p2pqueue.private import sync_dir
from p2pqueue.replica.file import migrations
from p2pqueue.replica.file.connection import in_words, open_reader


def backup(replica_file: Path | str, target: Path | str) -> None:
    """Writes a copy of a replica, checked, private and durable, to a file that must not be there yet.

    Writers go on meanwhile. Raises `MisuseError`, `DiskFull`, `DamagedHome`.
    """
    source, target = Path(replica_file), Path(target)
    if not source.exists():
        raise DamagedHome(f"The database {source} is missing")
    if target.exists():
        raise MisuseError(f"{target} is there already; choose another name or remove it")
    with closing(open_reader(str(source))) as reading, in_words(str(source)):
        _copy(reading, target)


def restore(backup_file: Path | str, replica_file: Path | str) -> None:
    """Puts a backup's database into a home that has none. Opened, it goes on under a new author.

    Raises `AlreadyInitialised`, `DamagedHome` for a backup that isn't sound, `NewerDatabase`, `DiskFull`.
    """
    source, target = Path(backup_file), Path(replica_file)
    if target.exists():
        raise AlreadyInitialised(f"{target} is there already; restore into a home that has no space")
    if not source.is_file():
        raise MisuseError(f"There is no backup at {source}")
    with in_words(str(source)), closing(_open_backup(source)) as reading:
        migrations.check(reading, str(source))
        _copy(reading, target)


def _open_backup(path: Path) -> sqlite3.Connection:
    # immutable: a backup on read-only media has no place for -wal and -shm, and needs none.
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)


def _copy(source: sqlite3.Connection, target: Path) -> None:
    partial = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        try:
            os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            _fill(source, partial)
            _name(partial, target)
            sync_dir(target.parent)
        finally:
            for suffix in ("", "-journal", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    partial.with_name(partial.name + suffix).unlink()
    except FileExistsError as error:
        raise MisuseError(f"{target} is there already; choose another name or remove it") from error
    except OSError as error:
        raise os_words(error, target) from error


def _name(partial: Path, target: Path) -> None:
    try:
        os.link(partial, target)  # unlike a rename it fails where the name is taken
    except FileExistsError:
        raise
    except OSError:  # a stick's file system has no links
        if target.exists():
            raise FileExistsError(target) from None
        os.rename(partial, target)


def _fill(source: sqlite3.Connection, partial: Path) -> None:
    with in_words(str(partial)), closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = OFF")  # one file, not three; what fails is removed whole
        _check(copy, partial)
        copy.execute("UPDATE incarnation SET copied = 1")
    descriptor = os.open(partial, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(copy: sqlite3.Connection, path: Path) -> None:
    try:
        (found,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        raise DamagedHome(f"{path} is no sound database ({error})") from error
    if found != "ok":
        raise DamagedHome(f"{path} is no sound database ({found})")
    tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema")}
    if not {"changes", "heads", "incarnation"} <= tables:
        raise DamagedHome(f"{path} is no database of p2pqueue")
