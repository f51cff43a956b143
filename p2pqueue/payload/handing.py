"""How does what was fetched come from the home to the place that its user wants, without being copied?

It is moved there, and served on from there: from then on it is a plain file or folder of the user's, as if it had been
shared. Where that isn't possible (another disk) it stays in the home, and is copied by whoever asked.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from p2pqueue.payload import saving
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.catalogue import Catalogue

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


def hand_over(catalogue: Catalogue, root: Capability, target: Path) -> bool:
    """Moves a file or folder of this home to a path where it may go; False where it isn't in the home, or can't be moved."""
    place = catalogue.read(lambda c: c.execute(OWN_FILE, (root.address,)).fetchone() or c.execute(OWN_FOLDER, (root.address,)).fetchone())
    if place is None:
        return False
    number, path, table = place
    here = Path(os.fsdecode(path))
    try:
        os.makedirs(target.parent, exist_ok=True)
        if os.stat(target.parent).st_dev != os.stat(here).st_dev:
            return False
        os.replace(here, target)
    except OSError:
        return False  # copying tells what is in the way, if that is in its way too
    try:
        saving.open_up(target)
        catalogue.write(_moved(table, number, target))
    except BaseException:
        os.replace(target, here)
        raise
    try:
        here.parent.rmdir()
    except OSError:
        pass  # the next sweep tries again
    return True


def _moved(table: str, number: int, target: Path) -> Callable[[sqlite3.Connection], object]:
    query = f"UPDATE {table} SET path = ?, owned = 0 WHERE id = ?"
    return lambda connection: connection.execute(query, (os.fsencode(target), number))
