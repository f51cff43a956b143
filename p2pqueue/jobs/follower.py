"""How does a program learn that a job has changed?

One thread for all that wait in the program, and only while somebody waits. It looks at the rows when SQLite says
that somebody wrote (`PRAGMA data_version`: 50 ms apart at first, later 250), and a second thread listens to the
node, where one runs: its word comes at once and carries every step of progress.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.home import Home
from p2pqueue.jobs.job import TERMINAL
from p2pqueue.jobs.opening import open_reader
from p2pqueue.replica.door.doorbell import DoorbellClient

POLL_FIRST: Final = 0.05  # seconds between two looks while jobs change
POLL_LONGEST: Final = 0.25  # seconds, when nothing has changed for a while
LINGER: Final = 1.0  # seconds that the threads outlive the last who waits
REDIAL: Final = 1.0  # seconds between two tries to reach a node
MOST_STREAMS: Final = 8  # then one takes the place of all
MOST_JOBS: Final = 1000  # that a node tells of on one stream

_LOOK = """
    SELECT id, CASE WHEN live = 1 THEN status END, progress, phase, worker_label,
           coalesce(state_generation, spec_generation), coalesce(claim, 0)
    FROM jobs WHERE id IN (SELECT value FROM json_each(?))
"""  # by the primary key

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """A job at one moment. `status` is None where the job is no more; `attempt` is unknown (None) in a node's word."""

    status: str | None
    fraction: float
    phase: str | None
    device: str | None
    attempt: tuple[int, int] | None = None

    @property
    def is_final(self) -> bool:
        """Says whether nothing more is to come unless somebody retries the job."""
        return self.status is None or self.status in TERMINAL


GONE: Final = Seen(None, 0.0, None, None)
Tell = Callable[[Seen], None]


def look(connection: sqlite3.Connection, ids: Collection[str]) -> dict[str, Seen]:
    """These jobs as their rows show them now."""
    rows = connection.execute(_LOOK, (json.dumps(list(ids)),))
    return dict.fromkeys(ids, GONE) | {row[0]: Seen(row[1], row[2] or 0.0, row[3], row[4], (row[5], row[6])) for row in rows}


class Follower:
    """Tells whoever follows a job each change of it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._followed: dict[str, list[Tell]] = {}
        self._told: dict[str, Seen] = {}
        self._fresh: set[str] = set()  # followed since the last look
        self._looker: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def following(self, job_id: str, tell: Tell) -> Iterator[None]:
        """Calls `tell`, from a thread, with the job as it is now and after each change, while the block runs."""
        self._add(job_id, tell)
        try:
            yield
        finally:
            self._remove(job_id, tell)

    def close(self) -> None:
        """Ends the threads; those who still wait are told nothing more."""
        with self._lock:
            self._closed = True
            self._followed.clear()
            looker = self._looker
        self._woken.set()
        if looker is not None and looker is not threading.current_thread():
            looker.join(timeout=5)

    def _add(self, job_id: str, tell: Tell) -> None:
        with self._lock:
            self._followed.setdefault(job_id, []).append(tell)
            self._told.pop(job_id, None)
            self._fresh.add(job_id)
            if self._looker is None:
                self._looker = threading.Thread(target=self._look_on, name="p2pqueue-follow", daemon=True)
                self._looker.start()
        self._woken.set()

    def _remove(self, job_id: str, tell: Tell) -> None:
        with self._lock:
            tells = self._followed.get(job_id, [])
            if tell in tells:
                tells.remove(tell)
            if not tells:
                self._followed.pop(job_id, None)
                self._told.pop(job_id, None)

    def _look_on(self) -> None:
        listener = _Listener(self._home.socket_path, self._heard)
        try:
            while not self._is_done():
                try:
                    self._watch_rows(listener)
                except (P2PQueueError, sqlite3.Error) as error:
                    _log.warning("jobs can't be followed, trying again: %s", error)
                    time.sleep(POLL_LONGEST)
        finally:
            with self._lock:
                if self._looker is threading.current_thread():
                    self._looker = None
            listener.listen(())

    def _is_done(self) -> bool:
        """Ends the thread's time where nobody follows anything, in one step with finding so."""
        with self._lock:
            if self._followed and not self._closed:
                return False
            self._looker = None
            return True

    def _watch_rows(self, listener: _Listener) -> None:
        """Looks at the rows until nobody has followed any for a while."""
        connection = open_reader(self._home)
        try:
            version, behind, look_at = -1, True, 0.0
            pause, lonely_since = POLL_FIRST, 0.0
            while True:
                self._woken.wait(pause)
                self._woken.clear()
                ids, fresh = self._take()
                now = time.monotonic()
                lonely_since = 0.0 if ids else lonely_since or now
                if lonely_since and (self._closed or now - lonely_since > LINGER):
                    return
                listener.listen(ids)
                (found,) = connection.execute("PRAGMA data_version").fetchone()
                changed, version = found != version, found
                behind |= changed
                pause = POLL_FIRST if changed or fresh else min(POLL_LONGEST, pause * 1.2)
                if behind and now >= look_at:
                    self._look(connection, ids)
                    # A node that ends a thousand jobs a second mustn't make us look at a thousand rows each time.
                    behind, look_at = False, now + max(POLL_FIRST, 10 * (time.monotonic() - now))
                else:
                    self._look(connection, fresh.intersection(ids))
        finally:
            connection.close()

    def _take(self) -> tuple[list[str], set[str]]:
        """The jobs that are followed, and those that must be looked at now."""
        with self._lock:
            fresh, self._fresh = self._fresh, set()
            return list(self._followed), fresh

    def _look(self, connection: sqlite3.Connection, ids: Collection[str]) -> None:
        if not ids:
            return
        for job_id, seen in look(connection, ids).items():
            self._hand_on(job_id, seen)

    def _heard(self, event: Mapping[str, Any]) -> None:
        job_id = event.get("id")
        if not isinstance(job_id, str):
            return
        status = event.get("status")
        if status is None or status in TERMINAL or "progress" not in event:
            with self._lock:
                self._fresh.add(job_id)  # the row has more to say than the node's word: look at it now
            self._woken.set()
            return
        self._hand_on(job_id, Seen(status, float(event["progress"] or 0.0), event.get("phase"), event.get("worker_label")))

    def _hand_on(self, job_id: str, seen: Seen) -> None:
        with self._lock:
            if self._told.get(job_id) == seen:
                return
            tells = list(self._followed.get(job_id, ()))
            if tells:
                self._told[job_id] = seen
        for tell in tells:
            tell(seen)


class _Listener:
    """Listens to the node for the jobs that are followed now: a stream for each handful that was added."""

    def __init__(self, socket: Path, heard: Callable[[Mapping[str, Any]], None]) -> None:
        self._socket = socket
        self._heard = heard
        self._streams: list[_Stream] = []
        self._dial_at = 0.0  # monotonic

    def listen(self, ids: Collection[str]) -> None:
        """Listens for these jobs from now on; for none, it ends."""
        alive = [stream for stream in self._streams if stream.is_alive()]
        if len(alive) < len(self._streams):
            self._dial_at = time.monotonic() + REDIAL
        self._streams = []
        for stream in alive:
            if stream.jobs.isdisjoint(ids):
                stream.close()
            else:
                self._streams.append(stream)
        missing = set(ids).difference(*(stream.jobs for stream in self._streams))
        if not missing or time.monotonic() < self._dial_at or not self._socket.exists():
            return
        if len(self._streams) >= MOST_STREAMS:
            if len(ids) > MOST_JOBS:
                return  # so many are followed by their rows alone
            self._end()
            missing = set(ids)
        stream = _Stream(self._socket, frozenset(sorted(missing)[:MOST_JOBS]), self._heard)
        self._streams.append(stream)
        stream.start()

    def _end(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams = []


class _Stream(threading.Thread):
    """One stream of a node's events about some jobs."""

    def __init__(self, socket: Path, jobs: frozenset[str], heard: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(name="p2pqueue-listen", daemon=True)
        self.jobs = jobs
        self._client = DoorbellClient(socket)
        self._heard = heard

    def run(self) -> None:
        """Hands on what the node says until it ends, or `close` does."""
        try:
            for event in self._client.stream("watch", jobs=sorted(self.jobs)):
                self._heard(event)
        except (P2PQueueError, OSError) as error:
            _log.debug("the node's word ended: %s", error)
        finally:
            self._client.close()

    def close(self) -> None:
        """Ends the stream from another thread."""
        self._client.close()
