"""How does what was fetched come from the home to the place that its user wants, and is served on from there?

It is moved, or, on another disk, copied and then removed here. From then on it is a plain file or folder of the user's,
as if it had been shared.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgpack

from p2pqueue.errors import P2PQueueError
from p2pqueue.payload import saving
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.folders import ADD_LISTING
from p2pqueue.payload.listing import listed
from p2pqueue.payload.plain import identify, settle_since
from p2pqueue.payload.scan import scan
from p2pqueue.payload.sweep import remove_path

OWN_FILE: Final = """
SELECT s.id, s.path, 'sources'
FROM files f JOIN sources s ON s.id = f.source
WHERE f.address = ? AND s.owned AND (SELECT count(*) FROM files o WHERE o.source = s.id) = 1  -- files_source
"""
OWN_FOLDER: Final = """
SELECT d.id, d.path, 'folders'
FROM files f JOIN folders d ON d.id = f.folder
WHERE f.address = ? AND d.owned AND (SELECT count(*) FROM files o WHERE o.folder = d.id) = 1  -- files_folder
"""


class Place(NamedTuple):
    """A plain file or folder of this home that belongs to one manifest."""

    number: int
    path: bytes
    table: str


def own_place(catalogue: Catalogue, root: Capability) -> Place | None:
    """Where it lies, if it lies in this home and nothing else needs it there."""
    return catalogue.read(lambda connection: _find(connection, root))


def _find(connection: sqlite3.Connection, root: Capability) -> Place | None:
    row = connection.execute(OWN_FILE, (root.address,)).fetchone() or connection.execute(OWN_FOLDER, (root.address,)).fetchone()
    return None if row is None else Place(*row)


def move(catalogue: Catalogue, root: Capability, place: Place, target: Path) -> bool:
    """Moves it to a path where it may go; False where it can't be moved, or another process was first."""
    number, path, table = place
    here = Path(os.fsdecode(path))
    moved = []

    def go(connection: sqlite3.Connection) -> bool:  # alone in the catalogue: of several who want it one has it
        if _find(connection, root) != place:
            return False
        os.replace(here, target)
        moved.append(True)
        saving.open_up(target)
        _enter_path(connection, table, number, target)
        return True

    try:
        os.makedirs(target.parent, exist_ok=True)
        if os.stat(target.parent).st_dev != os.stat(here).st_dev or not catalogue.write(go):
            return False
    except BaseException as error:
        if moved:
            os.replace(target, here)
        elif isinstance(error, OSError):
            return False  # copying tells what is in the way, if that is in its way too
        raise
    try:
        here.parent.rmdir()
    except OSError:
        pass  # the next sweep tries again
    return True


def settle_at(catalogue: Catalogue, place: Place, copy: Path) -> bool:
    """Serves on from a copy that was just written, and removes what lies in the home; False where the copy isn't as that is."""
    try:
        enter = _file_at(place, copy) if place.table == "sources" else _folder_at(catalogue, place, copy)
        catalogue.write(enter)
    except (KeyError, P2PQueueError):  # a disk that knows other names; then it stays here
        return False
    remove_path(os.fsdecode(place.path))
    return True


def _enter_path(connection: sqlite3.Connection, table: str, number: int, target: Path) -> None:
    connection.execute(f"UPDATE {table} SET path = ?, owned = 0 WHERE id = ?", (os.fsencode(target), number))


def _file_at(place: Place, copy: Path) -> Callable[[sqlite3.Connection], None]:
    identity = identify(copy)
    if identity is None:
        raise KeyError(copy)
    settle_since(identity.mtime_ns)

    def enter(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE sources SET marks = ?, device = ? WHERE id = ?", (identity.marks, str(identity.device), place.number))
        _enter_path(connection, "sources", place.number, copy)

    return enter


def _folder_at(catalogue: Catalogue, place: Place, copy: Path) -> Callable[[sqlite3.Connection], None]:
    found = scan(copy)
    settle_since(found.newest)
    listings, marks = listed(found)
    query = "SELECT address, made_of FROM pieces WHERE folder = ?"  # pieces_folder
    rows = catalogue.read(lambda connection: connection.execute(query, (place.number,)).fetchall())
    made = [(_with_marks(made_of, marks), place.number, address) for address, made_of in rows]

    def enter(connection: sqlite3.Connection) -> None:
        connection.executemany("UPDATE pieces SET made_of = ? WHERE folder = ? AND address = ?", made)
        connection.execute("DELETE FROM listings WHERE folder = ?", (place.number,))
        connection.executemany(ADD_LISTING, listings.rows(place.number))
        connection.execute("UPDATE folders SET digest = ? WHERE id = ?", (found.digest, place.number))
        _enter_path(connection, "folders", place.number, copy)

    return enter


def _with_marks(made_of: bytes, marks: dict[str, str]) -> bytes:
    pieces = [(path, marks[os.fsdecode(path)], offset, length) for path, _, offset, length in msgpack.unpackb(made_of)]
    packed: bytes = msgpack.packb(pieces)
    return packed
