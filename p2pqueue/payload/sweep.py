"""What on this shelf does nobody need any more, and how is it freed?

Needed is what the caller's live manifests reach, and what temporary roots hold: everything that is being made now, or
was made within the last hour. Shards are removed before their rows are written, so that freeing works on a full disk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.store import ShardStore

ROOT_AGE: Final = 3600.0  # seconds that a temporary root holds after its end: by then a job's row names the manifest
DEAD_AGE: Final = 60.0  # seconds after which a temporary file of a process that is gone is removed
ONE_BATCH: Final = 5000  # shards removed in one transaction

NEEDED: Final = """
WITH RECURSIVE needed (address) AS (
    SELECT address FROM temp.live
    UNION SELECT address FROM holds
    UNION SELECT u.address FROM needed n JOIN uses u ON u.root = n.address  -- primary key
)
"""
UNNEEDED_SHARDS: Final = NEEDED + "SELECT address FROM stored WHERE address NOT IN needed LIMIT ?"
UNNEEDED_FILES: Final = NEEDED + "SELECT address FROM files WHERE address NOT IN needed"
UNNEEDED_SOURCES: Final = "SELECT id, path, owned FROM sources WHERE id NOT IN (SELECT source FROM files WHERE source IS NOT NULL)"

UNNEEDED_FOLDERS: Final = "SELECT id, path, owned FROM folders WHERE id NOT IN (SELECT folder FROM files WHERE folder IS NOT NULL)"

_TEMPORARY = re.compile(r"\.[0-9a-f]{64}\.(\d+)-[0-9a-f]+")
_SHARD = re.compile(r"[0-9a-f]{64}")


def sweep(catalogue: Catalogue, store: ShardStore, outputs: Path, live: Iterable[bytes]) -> int:
    """Removes what neither the manifests of these addresses nor a temporary root needs; tells how many bytes that freed."""
    roots = [(address,) for address in live]
    freed = _remove_all_shards(catalogue, store, roots)  # before anything that needs room for its own rows
    catalogue.free(_expire_roots)
    freed += _remove_all_shards(catalogue, store, roots)
    freed += catalogue.free(lambda connection: _remove_files(connection, roots))
    freed += _remove_strays(catalogue, store, outputs)
    catalogue.compact()
    return freed


def clear_leftovers(catalogue: Catalogue, store: ShardStore, outputs: Path) -> int:
    """Removes what killed processes left, for a node that begins: of the outputs it alone makes any. Tells the bytes freed.

    What another living process is taking in stays. A shard is named and entered in one transaction, so that whoever is
    alone in the catalogue sees which have no row.
    """
    if not catalogue.path.exists():
        return 0  # a start is quick where nothing was ever taken in
    if catalogue.read(lambda c: c.execute("SELECT 1 FROM roots WHERE NOT finished").fetchone()) is not None:
        catalogue.free(_forget_the_dead)
    freed, now, names = 0, time.time(), []
    for path, age in _aged(store.folder):
        names.append(path.name)
        temporary = _TEMPORARY.fullmatch(path.name)
        if temporary is not None and not _is_alive(int(temporary[1]), since=now - age):
            freed += _remove(path)
    stored = catalogue.read(lambda c: {row[0] for row in c.execute("SELECT address FROM stored WHERE body IS NULL")})
    for name in names:
        if _SHARD.fullmatch(name) and bytes.fromhex(name) not in stored:
            freed += catalogue.free(functools.partial(_remove_rowless, store.folder / name))
    known = _known_outputs(catalogue)
    return freed + sum(_remove_tree(folder) for folder, _ in _aged(outputs) if folder.name not in known)


def _forget_the_dead(connection: sqlite3.Connection) -> None:
    """Lets go what was being made by processes that are gone; the next sweep frees it."""
    for number, pid, touched_at in connection.execute("SELECT id, pid, touched_at FROM roots WHERE NOT finished").fetchall():
        if not _is_alive(pid, since=touched_at):
            connection.execute("DELETE FROM roots WHERE id = ?", (number,))


def remove_sources(connection: sqlite3.Connection) -> int:
    """Forgets plain files and folders that no manifest names; what lies in the home is removed. Tells the bytes freed."""
    freed = 0
    for number, path, owned in connection.execute(UNNEEDED_SOURCES).fetchall():
        if owned:
            freed += _remove_output(Path(os.fsdecode(path)))
        connection.execute("DELETE FROM plain WHERE source = ?", (number,))  # plain_source
        connection.execute("DELETE FROM sources WHERE id = ?", (number,))
    for number, path, owned in connection.execute(UNNEEDED_FOLDERS).fetchall():
        if owned:
            freed += _remove_tree(Path(os.fsdecode(path)).parent)  # each has a folder of its own, as outputs have
        connection.execute("DELETE FROM folders WHERE id = ?", (number,))
    connection.execute("DELETE FROM known WHERE root NOT IN (SELECT address FROM files)")
    return freed


def _remove_all_shards(catalogue: Catalogue, store: ShardStore, roots: list[tuple[bytes]]) -> int:
    freed = 0
    while True:
        removed, size = catalogue.free(lambda connection: _remove_shards(connection, store, roots))
        freed += size
        if removed < ONE_BATCH:
            return freed


def _remove_shards(connection: sqlite3.Connection, store: ShardStore, roots: list[tuple[bytes]]) -> tuple[int, int]:
    _mark(connection, roots)
    doomed = [row[0] for row in connection.execute(UNNEEDED_SHARDS, (ONE_BATCH,))]
    for address in doomed:
        store.path_of(address).unlink(missing_ok=True)
    return len(doomed), store.remove_unneeded(connection, doomed)


def _remove_files(connection: sqlite3.Connection, roots: list[tuple[bytes]]) -> int:
    _mark(connection, roots)
    for row in connection.execute(UNNEEDED_FILES).fetchall():
        connection.execute("DELETE FROM uses WHERE root = ?", row)
        connection.execute("DELETE FROM files WHERE address = ?", row)
    return remove_sources(connection)


def _mark(connection: sqlite3.Connection, roots: list[tuple[bytes]]) -> None:
    connection.execute("DROP TABLE IF EXISTS temp.live")
    connection.execute("CREATE TEMP TABLE live (address BLOB PRIMARY KEY) WITHOUT ROWID")
    connection.executemany("INSERT INTO temp.live VALUES (?) ON CONFLICT DO NOTHING", roots)


def _expire_roots(connection: sqlite3.Connection) -> None:
    now = time.time()
    connection.execute("UPDATE roots SET touched_at = ? WHERE touched_at > ?", (now, now + ROOT_AGE))  # the clock was set back
    old = connection.execute("SELECT id, pid, finished FROM roots WHERE touched_at < ?", (now - ROOT_AGE,)).fetchall()
    for number, pid, finished in old:
        if finished or not _is_alive(pid):
            connection.execute("DELETE FROM roots WHERE id = ?", (number,))


def _remove_strays(catalogue: Catalogue, store: ShardStore, outputs: Path) -> int:
    """Removes files that a killed process left: temporary ones, and those whose row never came to be."""
    freed = 0
    for path, age in _aged(store.folder):
        temporary = _TEMPORARY.fullmatch(path.name)
        if temporary is not None and (age > ROOT_AGE or (age > DEAD_AGE and not _is_alive(int(temporary[1])))):
            freed += _remove(path)
        elif _SHARD.fullmatch(path.name) and age > ROOT_AGE:
            freed += catalogue.free(functools.partial(_remove_rowless, path))
    known = _known_outputs(catalogue)
    for folder, age in _aged(outputs):
        if folder.name not in known and age > ROOT_AGE:
            freed += _remove_tree(folder)
    return freed


def _known_outputs(catalogue: Catalogue) -> set[str]:
    """The folders in `outputs` in which something lies that the catalogue knows."""
    query = "SELECT path FROM sources WHERE owned UNION SELECT path FROM folders WHERE owned"
    return {Path(os.fsdecode(row[0])).parent.name for row in catalogue.read(lambda c: c.execute(query).fetchall())}


def _remove_rowless(path: Path, connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT 1 FROM stored WHERE address = ?", (bytes.fromhex(path.name),)).fetchone()
    return _remove(path) if row is None else 0


def _remove_output(path: Path) -> int:
    size = _remove(path)
    try:
        path.parent.rmdir()  # each output has a folder of its own
    except OSError:
        pass
    return size


def remove_path(path: str) -> int:
    """Removes a plain file or folder of this home, with the folder of its own in which it lies; tells the bytes freed."""
    return _remove_tree(Path(path).parent)


def _remove_tree(folder: Path) -> int:
    freed = 0
    for path, folders, files in os.walk(folder, topdown=False):
        freed += sum(_remove(Path(path, name)) for name in files)
        for name in folders:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(path, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return freed


def _remove(path: Path) -> int:
    try:
        size = path.lstat().st_size
        path.unlink()
    except OSError:  # another process was first
        return 0
    return size


def _aged(folder: Path) -> Iterator[tuple[Path, float]]:
    """What lies in a folder, and since how many seconds; what is gone meanwhile is left out."""
    now = time.time()
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = folder / name
        try:
            yield path, now - path.lstat().st_mtime
        except OSError:
            continue


def _is_alive(pid: int, *, since: float | None = None) -> bool:
    """Says whether a process runs that has this id, and had it at that time, where this one is meant."""
    import psutil  # only a sweep needs it

    if since is not None and pid == os.getpid():  # in a container each run of a node may have the same id
        return bool(psutil.Process().create_time() <= since + 1)
    return bool(psutil.pid_exists(pid))
