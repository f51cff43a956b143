"""Which files can this device give now, by what its catalogue and the marks of plain files tell?"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from p2pqueue.payload.capability import Capability
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.format import LARGEST_SHARD
from p2pqueue.payload.listing import unpack_files
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
FIND_FOLDER: Final = """
SELECT d.id, d.path
FROM files f JOIN folders d ON d.id = f.folder
WHERE f.address = ?  -- primary key
"""
LISTS: Final = "SELECT path, files FROM listings WHERE folder = ?"  # primary key
FOLDER_SIZES: Final = """
SELECT max(f.size), max(d.owned)
FROM folders d JOIN files f ON f.folder = d.id  -- files_folder
WHERE NOT f.copied
GROUP BY d.id
"""
OWNED_SIZE: Final = """
SELECT coalesce(sum(size), 0) FROM (
    SELECT max(f.size) AS size FROM sources s JOIN files f ON f.source = s.id WHERE s.owned GROUP BY s.id      -- files_source
    UNION ALL SELECT max(f.size) FROM folders d JOIN files f ON f.folder = d.id WHERE d.owned GROUP BY d.id  -- files_folder
)
"""
KNOWN_COPY: Final = """
SELECT f.address, f.capability, f.name, f.size
FROM known k JOIN files f ON f.address = k.root
WHERE k.path = ? AND k.identity = ? AND k.name = ? AND f.copied  -- primary key
"""
MEMBERS: Final = """
SELECT f.address
FROM uses u JOIN files f ON f.address = u.address
WHERE u.root = ? AND u.address <> u.root  -- primary key
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
    return _holds(catalogue, root.address, set())


def _holds(catalogue: Catalogue, address: bytes, found: set[bytes]) -> bool:
    """`found` are those of which it is known: several may list one."""
    row = catalogue.read(lambda c: c.execute("SELECT copied FROM files WHERE address = ?", (address,)).fetchone())
    if row is None or catalogue.read(lambda c: c.execute(IS_INCOMPLETE, (address,)).fetchone()[0]):
        return False
    if not row[0]:
        return find_place(catalogue, address) is not None
    found.add(address)
    members = [member for (member,) in catalogue.read(lambda c: c.execute(MEMBERS, (address,)).fetchall())]
    return all(_holds(catalogue, member, found) for member in members if member not in found)


def is_known(catalogue: Catalogue, root: Capability) -> bool:
    """Says whether this device has ever had the file, whatever became of it."""
    return catalogue.read(lambda c: c.execute("SELECT 1 FROM files WHERE address = ?", (root.address,)).fetchone()) is not None


def locate(catalogue: Catalogue, root: Capability) -> Path | None:
    """A plain file or folder that holds the content and is unchanged by its marks; None where there is none."""
    return find_place(catalogue, root.address)


def find_place(catalogue: Catalogue, address: bytes) -> Path | None:
    """The same, by the address of the manifest."""
    row = catalogue.read(lambda c: c.execute(FIND_SOURCE, (address,)).fetchone())
    if row is not None:
        found = identify(os.fsdecode(row[0]))
        return Path(found.path) if found is not None and found.marks == row[1] else None
    row = catalogue.read(lambda c: c.execute(FIND_FOLDER, (address,)).fetchone())
    if row is None:
        return None
    lists = catalogue.read(lambda c: c.execute(LISTS, (row[0],)).fetchall())
    base = os.fsdecode(row[1])
    unchanged = os.path.isdir(base) and all(is_unchanged(os.path.join(base, os.fsdecode(path)), packed) for path, packed in lists)
    return Path(base) if unchanged else None


def is_unchanged(folder: str, packed: bytes) -> bool:
    """Says whether the files of one folder are, by their marks, what they were."""
    for name, known in unpack_files(packed):
        try:
            told = os.stat(os.path.join(folder, name))
        except OSError:
            return False
        if (told.st_size, told.st_mtime_ns, told.st_ino) != known.state[:3]:
            return False
    return True


def find_known(catalogue: Catalogue, identity: FileIdentity, name: str, *, copied: bool = False) -> Stored | None:
    """What a plain file was published as, if it is the same still; held from now on like something new.

    With `copied` it has to lie, sealed, in the store; else it may be served from where it lies.
    """
    called, path = wellformed_name(name), os.fsencode(identity.path)
    query, marks = (KNOWN_COPY, identity.whole) if copied else (KNOWN_FILE, identity.marks)

    def find(connection: sqlite3.Connection) -> Stored | None:
        row = connection.execute(query, (path, marks, called)).fetchone()
        if row is None or connection.execute(IS_INCOMPLETE, row[:1]).fetchone()[0]:
            return None
        hold(connection, row[0])
        return Stored(row[1], row[2], row[3], not copied)

    return catalogue.write(find)


def is_sound(catalogue: Catalogue, store: ShardStore, root: Capability) -> bool:
    """Reads what is stored of a file or folder, its manifest at least, and says whether all of it is right. Drops what is not."""
    rows = catalogue.read(lambda c: c.execute("SELECT address FROM uses WHERE root = ?", (root.address,)).fetchall())
    buffer = memoryview(bytearray(LARGEST_SHARD))
    return all(store.load(address, buffer) is not None for (address,) in rows)


def remember_copy(connection: sqlite3.Connection, identity: FileIdentity, root: Capability, name: str) -> None:
    """Keeps what a plain file was published as when it was copied."""
    values = (os.fsencode(identity.path), identity.whole, name, root.address)
    connection.execute("INSERT OR REPLACE INTO known (path, identity, name, root) VALUES (?, ?, ?, ?)", values)


def hold(connection: sqlite3.Connection, address: bytes) -> None:
    """Holds a manifest from now on like something that was just made."""
    root = connection.execute("INSERT INTO roots (pid, touched_at, finished) VALUES (?, ?, 1)", (os.getpid(), time.time()))
    connection.execute("INSERT INTO holds VALUES (?, ?)", (root.lastrowid, address))


def remove(connection: sqlite3.Connection, store: ShardStore, root: Capability) -> int:
    """Forgets a file, with the shards that nothing else needs, and tells the bytes freed; one that a folder lists stays."""
    address = (root.address,)
    if connection.execute("SELECT 1 FROM uses WHERE address = ? AND root <> address", address).fetchone() is not None:  # uses_address
        return 0
    used = [row[0] for row in connection.execute("SELECT address FROM uses WHERE root = ?", address)]
    connection.execute("DELETE FROM roots WHERE finished AND id IN (SELECT root FROM holds WHERE address = ?)", address)  # holds_address
    connection.execute("DELETE FROM uses WHERE root = ?", address)
    connection.execute("DELETE FROM files WHERE address = ?", address)
    freed = store.remove_unneeded(connection, [each for each in used if is_unneeded(connection, each)])
    return freed + remove_sources(connection)


def plain_size(catalogue: Catalogue) -> int:
    """How many bytes fetched files and outputs take that lie in the home in the plain."""
    return int(catalogue.read(lambda c: c.execute(OWNED_SIZE).fetchone()[0]))


def usage(catalogue: Catalogue, store: ShardStore) -> Usage:
    """What the shelf takes now."""
    stored, files = catalogue.read(lambda c: c.execute("SELECT bytes, (SELECT count(*) FROM files) FROM total").fetchone())
    sources = catalogue.read(lambda c: c.execute("SELECT marks, owned FROM sources").fetchall())
    sizes = [(int(marks.split(":")[1]), owned) for marks, owned in sources]
    sizes += catalogue.read(lambda c: c.execute(FOLDER_SIZES).fetchall())
    outputs = sum(size for size, owned in sizes if owned)
    return Usage(stored, store.quota(), outputs, sum(size for size, owned in sizes if not owned), files)
