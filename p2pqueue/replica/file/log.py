"""When does SQLite's log reach the database, and how long is it?

It is moved by hand: most of it beside the writers, on another connection, and what came in the meantime between two
transactions. Then the next commit writes over it from its beginning.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from p2pqueue.replica.file.connection import MEMORY, WAL_LIMIT

if TYPE_CHECKING:
    from p2pqueue.replica.file.lock import WriteLock

_log = logging.getLogger(__name__)
_MANY = 4  # looks after which somebody writes much: then the log gets its usual size
_LONGEST = 4 * WAL_LIMIT  # bytes of a log up to which it is moved beside the writers
_LITTLE = 1 << 20  # bytes of a log that are moved between two transactions
_REWIND_AGAIN = 2.0  # seconds until readers are waited for again in the middle of writing
_REWIND_WAIT_MS = 100  # how long readers are waited for before the log begins anew


class Log:
    """The write-ahead log of one database file, as its writer sees it."""

    def __init__(self, path: str, connection: sqlite3.Connection, lock: WriteLock) -> None:
        self._path = path
        self._connection = connection
        self._lock = lock
        self._file = path + "-wal"
        self._size = 0
        self._looks = 0
        self._mover: threading.Thread | None = None
        self._looking = threading.Lock()  # whoever reads carries out what was deferred, so any thread may have written
        self._rewind_at = 0.0  # monotonic time before which readers aren't waited for again
        self._moving = 0  # bytes of the log when it began

    def checkpoint_if_due(self) -> None:
        """Moves the log into the database once it has grown beyond 4 MB; waits for nobody."""
        if self._path == MEMORY or not self._looking.acquire(blocking=False):
            return
        try:
            self._look()
        finally:
            self._looking.release()

    def _look(self) -> None:
        self._looks += 1
        if self._looks == _MANY:
            self.lengthen()
        try:
            size = os.stat(self._file).st_size
        except OSError:
            return
        if size <= WAL_LIMIT:
            return
        if self._mover is None:
            if size != self._size:
                self._begin_to_move(size)
        elif size >= _LONGEST or not self._mover.is_alive():
            self._mover.join()
            if size - self._moving > _LITTLE and size < _LONGEST:
                self._begin_to_move(size)
            else:
                self._end_move(size)

    def _begin_to_move(self, size: int) -> None:
        self._moving = size
        self._mover = threading.Thread(target=self._move, name="p2pqueue-log")
        try:
            self._mover.start()
        except RuntimeError:  # the interpreter ends: nothing goes on beside it
            self._end_move(size)

    def _end_move(self, size: int) -> None:
        """Moves what came in the meantime: with nothing left to move, the log begins anew."""
        self._mover = None
        if size >= _LONGEST and time.monotonic() >= self._rewind_at:  # readers who overlap would let it grow without end
            self._rewind_at = time.monotonic() + _REWIND_AGAIN
            self.rewind()
        else:
            self._checkpoint("PASSIVE")
        self._size = size

    def move_all(self) -> bool:
        """Moves the log on a connection of its own, which syncs the database; says whether that was all of it."""
        found = self._move()
        return found is not None and found[0] == 0 and found[1] == found[2]

    def _move(self) -> tuple[int, int, int] | None:
        """Moves most of the log on a connection of its own, while writers go on; gives what SQLite says of it."""
        try:
            with closing(sqlite3.connect(f"{Path(self._path).absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)) as connection:
                found: tuple[int, int, int] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                return found
        except sqlite3.Error as error:
            _log.info("the log of %s could not be moved now: %s", self._path, error)
            return None

    def close(self) -> None:
        """Waits for what is under way."""
        with self._looking:
            if self._mover is not None:
                self._mover.join()

    def rewind(self) -> None:
        """Moves the log into the database, so that the next commit writes over it from its beginning; for idle moments.

        The file keeps its size: a commit that doesn't make it grow is durable a third sooner.
        """
        if self._path == MEMORY:
            return
        (patience,) = self._connection.execute("PRAGMA busy_timeout").fetchone()
        self._connection.execute(f"PRAGMA busy_timeout = {_REWIND_WAIT_MS}")
        try:
            self._checkpoint("RESTART")
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {patience}")
        self._size = 0

    def lengthen(self) -> None:
        """Gives the log its usual size at once: SQLite takes zeros for its end. Where there is no room, it stays as it is."""
        if self._path == MEMORY:
            return
        with self._lock.held():
            try:
                with open(self._file, "r+b") as log:
                    size = log.seek(0, os.SEEK_END)
                    if size < WAL_LIMIT:
                        _fill(log, size)
            except OSError as error:
                _log.info("the log of %s keeps its size: %s", self._path, error)

    def _checkpoint(self, mode: str) -> None:
        with self._lock.held():
            try:
                self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            except sqlite3.OperationalError as error:
                _log.info("the log of %s could not be checkpointed now: %s", self._path, error)


def _fill(log: BinaryIO, size: int) -> None:
    try:
        log.write(bytes(WAL_LIMIT - size))
        log.flush()
        os.fsync(log.fileno())
    except OSError:
        os.ftruncate(log.fileno(), size)
        raise
