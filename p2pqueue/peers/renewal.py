"""How does a device that was cloned with its disk get a key of its own again?

Two devices with one key would be taken for one. The one that renews becomes a new device under a new key and a new
author, and issues again what only it may have.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from p2pqueue.home import Home
from p2pqueue.identity import keys
from p2pqueue.identity.keys import Identity, JoinedSpace
from p2pqueue.jobs.opening import open_replica
from p2pqueue.nodelock import NodeLock
from p2pqueue.replica.merging.forks import RENEWED


def renew(home: Home, space: JoinedSpace | None = None) -> Identity:
    """Gives the device of a home a new key. Raises `HomeInUse` while its node runs, and what `keys.renew` raises.

    A crash in the midst leaves the old key with a new author, or the new key whose author comes at the next opening.
    """
    with NodeLock(home.node_lock_file):
        old = keys.load(home)
        open_replica(home, old).close()
        _expect_new_author(home)
        renewed = keys.renew(home, space)
        open_replica(home, renewed).close()
        return renewed


def check_stopped(home: Home) -> None:
    """Raises `HomeInUse` while a node runs on this home."""
    with NodeLock(home.node_lock_file):
        pass


def _expect_new_author(home: Home) -> None:
    """Marks the database, so that whoever opens it next goes on under a new author."""
    with closing(sqlite3.connect(home.replica_file, timeout=10.0)) as connection, connection:
        connection.execute("UPDATE incarnation SET copied = ?", (RENEWED,))
