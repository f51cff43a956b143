"""How does a command get at the rows of a home?

Reading takes a plain connection, since it must be quick and needs no key; writing takes a `Replica` of its own and
rings the node's doorbell afterwards.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from p2pqueue.errors import DamagedHome, HomeBusy, NotInitialised, ReadOnlyHome

if TYPE_CHECKING:
    from p2pqueue.home import Home
    from p2pqueue.payload.shelf import Shelf
    from p2pqueue.replica.replica import Replica


@contextmanager
def reading(home: Home) -> Iterator[sqlite3.Connection]:
    """One consistent look at the rows: a connection inside a read transaction."""
    connection = open_reader(home)
    try:
        with words():
            connection.execute("BEGIN")
            yield connection
    finally:
        connection.close()


def open_reader(home: Home) -> sqlite3.Connection:
    """A connection for reading only, in no transaction; the caller closes it."""
    from p2pqueue.jobs import opening

    check_initialised(home)
    return opening.open_reader(home)


def check_initialised(home: Home) -> None:
    """Raises `NotInitialised` where this home has no space, and `ReadOnlyHome` where this user may not enter it."""
    try:
        os.stat(home.identity_file)
        os.stat(home.replica_file)
    except PermissionError as error:
        raise ReadOnlyHome(f"{home.path} belongs to another user; choose your own home with --home or P2PQUEUE_HOME") from error
    except (FileNotFoundError, NotADirectoryError):
        if os.path.exists(home.identity_file):
            raise DamagedHome(
                f"{home.path} has keys but no database; `p2pqueue init` makes an empty one, `p2pqueue --home DIR restore PATH` "
                "takes a backup into a new home"
            ) from None
        if os.path.exists(home.replica_file):
            raise DamagedHome(
                f"{home.identity_file} is missing though the home holds a database; put the file back, or restore a backup"
            ) from None
        raise NotInitialised(f"{home.path} has no space yet; make one with `p2pqueue init`, or `join` another device's") from None
    if not os.access(home.replica_file, os.R_OK):
        raise ReadOnlyHome(f"{home.path} belongs to another user; choose your own home with --home or P2PQUEUE_HOME")


@contextmanager
def words() -> Iterator[None]:
    """Turns what SQLite says about a database that can't be used into errors of the house."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise HomeBusy("another program has held the database for too long; try again, or see who has it open") from error
        if "readonly" in text or "unable to open" in text:
            raise ReadOnlyHome(f"the database can't be opened ({text}); check that its folder can be written and is not full") from error
        raise
    except sqlite3.DatabaseError as error:
        raise DamagedHome(f"the database is damaged ({error}); `p2pqueue doctor` looks closer, `restore` takes a backup") from error


@contextmanager
def writing(home: Home) -> Iterator[Replica]:
    """The replica of a home, opened for writing; rings the node's doorbell at the end."""
    from p2pqueue.identity.keys import load
    from p2pqueue.jobs.opening import open_replica
    from p2pqueue.replica.door.doorbell import ring

    check_initialised(home)
    replica = open_replica(home, load(home))
    try:
        with words():
            yield replica
    finally:
        replica.close()
        ring(home.socket_path)


def remember_shared(home: Home, capability: str) -> None:
    """Keeps a file of this device that was shared without a job."""
    from p2pqueue.jobs import local

    with writing(home) as replica:
        replica.write(lambda writer: local.remember_shared(writer.connection, capability, writer.now))


def node_pid(home: Home) -> int | None:
    """The process id of the node that runs on this home, or None."""
    from p2pqueue.nodelock import running_pid

    return running_pid(home.node_lock_file)


def open_shelf(home: Home, *, fetches: bool = True) -> Shelf:
    """The files of a home, within its quota; what is on other devices is fetched by the node, if it `fetches`.

    The caller closes it.
    """
    from p2pqueue.config import load_settings
    from p2pqueue.identity.keys import load
    from p2pqueue.jobs.bringing import bring
    from p2pqueue.payload.shelf import Shelf

    settings, fetch = load_settings(home), partial(bring, home) if fetches else None
    return Shelf(home, load(home).space_key, quota=settings.quota, reserve=settings.reserve, bring=fetch)
