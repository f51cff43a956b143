"""Which files can this device give now, by what its catalogue and the marks of plain files tell?"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from p2pqueue.payload.capability import Capability, parse_capability
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.names import wellformed_name
from p2pqueue.payload.plain import FileIdentity, identify
from p2pqueue.payload.publish import Stored
from p2pqueue.payload.store import ShardStore, is_unneeded
from p2pqueue.payload.sweep import remove_sources

FIND_SOURCE: Final = """
SELECT s.path, s.marks
FROM files f JOIN sources s ON s.id = f.source
WHERE f.address = ?  -- primary key
"""
KNOWN_FILE: Final = """
SELECT f.address, f.capability, f.name, f.size
FROM sources s JOIN files f ON f.source = s.id
WHERE s.path = ? AND s.marks = ? AND f.name = ?  -- sources_path, files_source
"""
IS_INCOMPLETE: Final = """
SELECT EXISTS (
    SELECT 1 FROM uses u WHERE u.root = ?  -- primary key
    AND NOT EXISTS (SELECT 1 FROM stored s WHERE s.address = u.address)
)
"""
MEMBERS: Final = """
SELECT f.capability
FROM uses u JOIN files f ON f.address = u.address
WHERE u.root = ?1 AND u.address <> ?1  -- primary key
"""


@dataclass(frozen=True)
class Usage:
    """What the shelf takes on the disk, in bytes, beside how many files it can give."""

    stored: int  # sealed shards
    quota: int  # the most that those may take
    outputs: int  # plain outputs of jobs, in the home
    referenced: int  # files that are served from where they lie; they take no room in the home
    files: int


def holds(catalogue: Catalogue, root: Capability) -> bool:
    """Says whether everything under a capability can be given from here."""
    row = catalogue.read(lambda c: c.execute("SELECT copied FROM files WHERE address = ?", (root.address,)).fetchone())
    if row is None or catalogue.read(lambda c: c.execute(IS_INCOMPLETE, (root.address,)).fetchone()[0]):
        return False
    if not row[0]:
        return locate(catalogue, root) is not None
    members = catalogue.read(lambda c: c.execute(MEMBERS, (root.address,)).fetchall())
    return all(holds(catalogue, parse_capability(member[0])) for member in members)


def is_known(catalogue: Catalogue, root: Capability) -> bool:
    """Says whether this device has ever had the file, whatever became of it."""
    return catalogue.read(lambda c: c.execute("SELECT 1 FROM files WHERE address = ?", (root.address,)).fetchone()) is not None


def locate(catalogue: Catalogue, root: Capability) -> Path | None:
    """A plain file that holds the content and is unchanged by its marks; None where there is none."""
    row = catalogue.read(lambda c: c.execute(FIND_SOURCE, (root.address,)).fetchone())
    if row is None:
        return None
    found = identify(os.fsdecode(row[0]))
    return Path(found.path) if found is not None and found.marks == row[1] else None


def find_known(catalogue: Catalogue, identity: FileIdentity, name: str) -> Stored | None:
    """What a plain file was published as, if it is the same still; held from now on like something new."""
    values = (os.fsencode(identity.path), identity.marks, wellformed_name(name))

    def find(connection: sqlite3.Connection) -> Stored | None:
        row = connection.execute(KNOWN_FILE, values).fetchone()
        if row is None or connection.execute(IS_INCOMPLETE, row[:1]).fetchone()[0]:
            return None
        root = connection.execute("INSERT INTO roots (pid, touched_at, finished) VALUES (?, ?, 1)", (os.getpid(), time.time()))
        connection.execute("INSERT INTO holds VALUES (?, ?)", (root.lastrowid, row[0]))
        return Stored(row[1], row[2], row[3], True)

    return catalogue.write(find)


def remove(connection: sqlite3.Connection, store: ShardStore, root: Capability) -> int:
    """Forgets a file, with the shards that nothing else needs, and tells the bytes freed; one that a folder lists stays."""
    address = (root.address,)
    if connection.execute("SELECT 1 FROM uses WHERE address = ?1 AND root <> ?1", address).fetchone() is not None:  # uses_address
        return 0
    used = [row[0] for row in connection.execute("SELECT address FROM uses WHERE root = ?", address)]
    connection.execute("DELETE FROM roots WHERE finished AND id IN (SELECT root FROM holds WHERE address = ?)", address)  # holds_address
    connection.execute("DELETE FROM uses WHERE root = ?", address)
    connection.execute("DELETE FROM files WHERE address = ?", address)
    freed = store.remove_unneeded(connection, [each for each in used if is_unneeded(connection, each)])
    return freed + remove_sources(connection)


def usage(catalogue: Catalogue, store: ShardStore) -> Usage:
    """What the shelf takes now."""
    stored, files = catalogue.read(lambda c: c.execute("SELECT bytes, (SELECT count(*) FROM files) FROM total").fetchone())
    sources = catalogue.read(lambda c: c.execute("SELECT marks, owned FROM sources").fetchall())
    sizes = [(int(marks.split(":")[1]), owned) for marks, owned in sources]
    outputs = sum(size for size, owned in sizes if owned)
    return Usage(stored, store.quota(), outputs, sum(size for size, owned in sizes if not owned), files)
