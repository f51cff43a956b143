"""How does a database of an earlier version become one of this version?

`PRAGMA user_version` counts the steps. All that are missing run in one transaction, and they only ever add.
"""

from __future__ import annotations

import sqlite3

from p2pqueue.errors import NewerDatabase
from p2pqueue.replica.schema import CORE

STEPS: tuple[tuple[str, ...], ...] = (CORE,)  # STEPS[n] leads from version n to n + 1
VERSION = len(STEPS)


def version_of(connection: sqlite3.Connection) -> int:
    """The version that a database stands at; 0 for a new one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def check(connection: sqlite3.Connection, path: str) -> bool:
    """Says whether steps are missing. Raises `NewerDatabase`."""
    version = version_of(connection)
    if version > VERSION:
        raise NewerDatabase(
            f"The database {path} is of version {version}, this program knows up to {VERSION}; upgrade p2pqueue. Nothing was changed"
        )
    return version < VERSION


def migrate(connection: sqlite3.Connection) -> None:
    """Runs the missing steps inside the caller's transaction."""
    version = version_of(connection)
    for step in STEPS[version:]:
        for statement in step:
            connection.execute(statement)
    if version < VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")
