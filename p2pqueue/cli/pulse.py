"""When does something change in the jobs that somebody watches?

The database is asked every now and then whether anybody committed; where a node runs, its local socket also tells
every step of progress at once.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from p2pqueue.cli.opening import open_reader, words

if TYPE_CHECKING:
    from p2pqueue.home import Home
    from p2pqueue.jobs.rows import JobRow
    from p2pqueue.replica.door.doorbell import DoorbellClient

LOOK_AGAIN = 0.1  # seconds between two looks at whether the database changed
REDIAL = 1.0  # seconds between two tries to reach a node


def follow(home: Home, ids: Sequence[str], *, deadline: float | None = None) -> Iterator[list[JobRow | None]]:
    """The rows of these jobs (None for a deleted one), at once and whenever one of them changes.

    Ends when all have ended, or at `deadline` (monotonic).
    """
    connection = open_reader(home)
    live = _Live(home, ids)
    try:
        shown: list[JobRow | None] = []
        version = -1
        while True:
            steps = live.steps()
            latest = _data_version(connection)
            if latest != version or steps:
                version = latest
                found = [_with_step(row, live.latest) for row in _rows(connection, ids)]
                if found != shown:
                    shown = found
                    yield found
            if all(row is None or row.ended for row in shown):
                return
            if deadline is not None and time.monotonic() >= deadline:
                return
            live.wait(LOOK_AGAIN)
    finally:
        live.close()
        connection.close()


def _data_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def _rows(connection: sqlite3.Connection, ids: Sequence[str]) -> list[JobRow | None]:
    from p2pqueue.jobs import rows

    with words():
        connection.execute("BEGIN")
        try:
            return [rows.get(connection, job_id) for job_id in ids]
        finally:
            connection.execute("ROLLBACK")


def _with_step(row: JobRow | None, latest: dict[str, dict[str, Any]]) -> JobRow | None:
    """The row with the newest step of progress that the node told, where it runs."""
    step = latest.get(row.id) if row is not None else None
    if row is None or step is None or row.status != "running" or step.get("status") != "running":
        return row
    fraction = step.get("progress")
    if not isinstance(fraction, (int, float)) or fraction < row.progress:
        return row
    return row._replace(progress=float(fraction), phase=step.get("phase") or row.phase)


class _Live:
    """Listens to the node in a thread of its own; silent where no node runs."""

    def __init__(self, home: Home, ids: Sequence[str]) -> None:
        self.latest: dict[str, dict[str, Any]] = {}
        self._home = home
        self._ids = frozenset(ids)
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._held: list[dict[str, Any]] = []
        self._closed = threading.Event()
        self._client: DoorbellClient | None = None
        threading.Thread(target=self._listen, daemon=True, name="p2pqueue-events").start()

    def steps(self) -> bool:
        """Takes in what came since the last call; says whether anything did."""
        found, self._held = self._held, []
        while True:
            try:
                found.append(self._events.get_nowait())
            except queue.Empty:
                break
        for event in found:
            job_id = event.get("id")
            if job_id in self._ids:
                self.latest[str(job_id)] = event
        return bool(found)

    def wait(self, seconds: float) -> None:
        """Waits for an event, at most so long."""
        try:
            self._held.append(self._events.get(timeout=seconds))
        except queue.Empty:
            pass

    def close(self) -> None:
        """Ends the thread, at once or when its call for a node returns."""
        self._closed.set()
        if self._client is not None:
            self._client.close()

    def _listen(self) -> None:
        from p2pqueue.errors import WorldError
        from p2pqueue.replica.door.doorbell import DoorbellClient

        while not self._closed.is_set():
            self._client = client = DoorbellClient(self._home.socket_path)
            try:
                for event in client.stream("watch", jobs=sorted(self._ids)):
                    if self._closed.is_set():
                        return
                    self._events.put(event)
            except (WorldError, OSError):
                pass
            self._closed.wait(REDIAL)
