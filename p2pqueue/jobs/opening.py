"""How is the database of a home opened?"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from p2pqueue.errors import DamagedHome, NotInitialised

if TYPE_CHECKING:
    from p2pqueue.home import Home
    from p2pqueue.identity.keys import Identity
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.store import Store


def open_replica(home: Home, identity: Identity) -> Replica:
    """Opens the replica of a home for reading and writing, and makes it where there is none yet."""
    from p2pqueue.jobs.local import LOCAL_TABLES
    from p2pqueue.jobs.tables import TABLES
    from p2pqueue.replica.replica import Replica

    return Replica.open(home.replica_file, tables=TABLES, identity=identity, local_tables=LOCAL_TABLES)


async def open_store(home: Home, identity: Identity) -> Store:
    """Opens the replica of a home for a node: the same file, behind asyncio."""
    from p2pqueue.jobs.local import LOCAL_TABLES
    from p2pqueue.jobs.tables import TABLES
    from p2pqueue.replica.store import Store

    return await Store.open(home.replica_file, tables=TABLES, identity=identity, local_tables=LOCAL_TABLES)


def open_reader(home: Home) -> sqlite3.Connection:
    """A connection that only reads the replica of a home; needs no keys and imports nothing heavy.

    Raises `NotInitialised` and `DamagedHome`.
    """
    if not home.replica_file.exists():
        raise NotInitialised(f"The home {home.path} has no space yet: run `p2pqueue init`, or `p2pqueue join CODE`")
    try:
        connection = sqlite3.connect(f"{home.replica_file.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0, isolation_level=None)
        connection.execute("PRAGMA query_only = 1")
        connection.execute("SELECT 1 FROM jobs LIMIT 1")
    except sqlite3.DatabaseError as error:
        raise DamagedHome(f"The database {home.replica_file} can't be read ({error}); run `p2pqueue doctor`") from error
    return connection
