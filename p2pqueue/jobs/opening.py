"""How is the database of a home opened?"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import DamagedHome, NewerDatabase, NotInitialised, P2PQueueError
from p2pqueue.private import check_owner

if TYPE_CHECKING:
    from pathlib import Path

    from p2pqueue.clock import Wall
    from p2pqueue.home import Home
    from p2pqueue.identity.keys import Identity
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.store import Store

BUSY_WAIT = 10.0  # seconds that a reader waits for whoever just mends or closes the database
KNOWN_VERSION = 1  # that of `replica.migrations`, whose import would cost each command more than its whole query


def open_replica(home: Home, identity: Identity, *, wall: Wall | None = None) -> Replica:
    """Opens the replica of a home for reading and writing, and makes it where there is none yet; on another clock, if given."""
    from p2pqueue.replica.replica import Replica

    check_owner(home.path)
    _refuse_empty(home)
    clock: dict[str, Any] = {} if wall is None else {"wall": wall}
    return Replica.open(home.replica_file, identity=identity, **_declared(), **clock)


async def open_store(home: Home, identity: Identity) -> Store:
    """Opens the replica of a home for a node: the same file, behind asyncio."""
    from p2pqueue.replica.store import Store

    check_owner(home.path)
    _refuse_empty(home)
    return await Store.open(home.replica_file, identity=identity, **_declared())


def _declared() -> dict[str, Any]:
    from p2pqueue.jobs.deferring import carry_out
    from p2pqueue.jobs.local import LOCAL_TABLES
    from p2pqueue.jobs.tables import TABLES

    return {"tables": TABLES, "local_tables": LOCAL_TABLES, "carry_out": carry_out}


def _refuse_empty(home: Home) -> None:
    """A file cut down to nothing is a loss to be told, not a new database to be begun."""
    path = home.replica_file
    if path.exists() and path.stat().st_size == 0:
        raise DamagedHome(f"The database {path} is empty: put back an undamaged copy, or take the file away and restore a backup")


def open_reader(home: Home) -> sqlite3.Connection:
    """A connection that only reads the replica of a home; needs no keys and imports nothing heavy.

    Raises `NotInitialised`, `NewerDatabase`, and what is wrong with disk or file in words.
    """
    path = home.replica_file
    if not path.exists():
        raise NotInitialised(f"The home {home.path} has no space yet: run `p2pqueue init`, or `p2pqueue join CODE`")
    try:
        try:
            connection = _connect(path, "mode=ro")
            if _has_deferred(connection):
                carry_out_deferred(home)
            return connection
        except sqlite3.OperationalError:
            # On a full or read-only disk SQLite can't make the file that readers and writers share. Where no log of
            # unfinished work stands beside the database nobody has it open, and it can be read as it is.
            wal = path.with_name(path.name + "-wal")
            if wal.exists() and wal.stat().st_size > 0:
                raise
            return _connect(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError as error:
        from p2pqueue.replica.file.connection import words

        told = words(error, str(path)) or DamagedHome(f"The database {path} can't be read ({error}); run `p2pqueue doctor`")
        raise told from error
    except UnicodeDecodeError as error:
        from p2pqueue.replica.file.connection import garbled

        raise garbled(str(path)) from error


def carry_out_deferred(home: Home) -> None:
    """Makes the rows of jobs that programs of this home have deferred, where they can be made now."""
    from p2pqueue.identity.keys import load

    with contextlib.suppress(P2PQueueError):
        replica = open_replica(home, load(home))
        try:
            replica.carry_out()
        finally:
            replica.close()


def _has_deferred(connection: sqlite3.Connection) -> bool:
    try:
        if connection.execute("SELECT 1 FROM deferred LIMIT 1").fetchone() is None:
            return False
    except sqlite3.OperationalError:  # a home that no program of this version has opened for writing
        return False
    from p2pqueue.replica import deferring

    return deferring.waits(connection)


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=BUSY_WAIT, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only = 1")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > KNOWN_VERSION:
            raise NewerDatabase(f"The database {path} was written by a newer version of p2pqueue; upgrade this one. Nothing was changed")
        connection.execute("SELECT 1 FROM jobs LIMIT 1")
    except BaseException:
        connection.close()
        raise
    return connection
