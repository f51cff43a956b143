"""Which inputs of this device's jobs are not sealed yet, and who seals them?

A large input is named in its job's row at once and sealed afterwards, by the node, without holding anything up.
Until then only this device can run the job, from its own copy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from p2pqueue.errors import P2PQueueError
from p2pqueue.jobs.ledger import NewFile, put_input
from p2pqueue.payload.shelf import Shelf
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.originals import unchanged

FIRST_WAIT = 1.0  # seconds after a first failure; doubles
LONGEST_WAIT = 60.0  # seconds
CLAIM_FIRST = 0.05  # seconds from a change to the look for inputs: what was enqueued is claimed first, and undisturbed
TOGETHER = 100  # jobs looked for at a time

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unsealed:
    """A job that has inputs without a manifest."""

    job_id: str
    files: tuple[NewFile, ...]


@dataclass(frozen=True)
class Trouble:
    """What stood in the way of sealing a job's inputs, and until when it is left alone (monotonic time)."""

    problem: str
    until: float
    wait: float  # seconds


class Sealer:
    """Seals what has no manifest yet, one job after the other, and writes the manifest when it holds."""

    def __init__(self, store: Store, shelf: Shelf) -> None:
        self._store = store
        self._shelf = shelf
        self._wake = asyncio.Event()
        self._troubles: dict[str, Trouble] = {}  # by job id
        self._looked_at = 0.0  # monotonic
        self._halt = threading.Event()

    def wake(self) -> None:
        """Tells that a job was enqueued; one without an input costs a look."""
        self._wake.set()

    async def run(self) -> None:
        """Seals for ever; a file that can't be sealed is told in words and tried again with growing waits."""
        while True:
            self._wake.clear()
            while unsealed := await self._store.read(self._find):
                for each in unsealed:
                    await self._try(each)
            # What was looked for again and not found has been sealed, has ended or is gone.
            self._troubles = {job_id: trouble for job_id, trouble in self._troubles.items() if trouble.until > self._looked_at}
            waits = [trouble.until - time.monotonic() for trouble in self._troubles.values()]
            try:
                async with asyncio.timeout(max(0.0, min(waits)) if waits else None):
                    await self._wake.wait()
                await asyncio.sleep(CLAIM_FIRST)
            except TimeoutError:
                pass

    def _find(self, connection: sqlite3.Connection) -> list[Unsealed]:
        self._looked_at = now = time.monotonic()
        return find_unsealed(connection, [job_id for job_id, trouble in self._troubles.items() if trouble.until > now])

    async def _try(self, unsealed: Unsealed) -> None:
        job_id, parameter = unsealed.job_id, unsealed.files[0].parameter
        try:
            sealed: list[NewFile] = []
            for file in unsealed.files:
                parameter = file.parameter
                sealed.append(await self._seal_file(file))
            manifest = await asyncio.to_thread(bundle, self._shelf, sealed)
            await self._store.write(lambda writer: put_manifest(writer, job_id, sealed, manifest))
        except P2PQueueError as error:
            await self._note(job_id, parameter, str(error))
        else:
            self._troubles.pop(job_id, None)

    async def _note(self, job_id: str, parameter: str, problem: str) -> None:
        known = self._troubles.get(job_id)
        wait = FIRST_WAIT if known is None else min(LONGEST_WAIT, known.wait * 2)
        self._troubles[job_id] = Trouble(problem, time.monotonic() + wait, wait)
        if known is not None and known.problem == problem:
            return
        _log.warning("input %r of job %s: %s", parameter, job_id, problem)
        try:
            await self._store.write(lambda writer: note_problem(writer, job_id, parameter, problem))
        except P2PQueueError as error:
            _log.warning("job %s can't say so in its row: %s", job_id, error)

    async def _seal_file(self, file: NewFile) -> NewFile:
        if file.capability is not None or file.path is None:
            return file
        # A thread can't be cancelled: it is told to halt, and waited for, or it would read on in a file of many gigabytes.
        reading = asyncio.get_running_loop().run_in_executor(None, self._read, file)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            self._halt.set()
            await asyncio.wait([reading])
            raise

    def _read(self, file: NewFile) -> NewFile:
        path = unchanged(file)
        stored = self._shelf.ingest(path, copy=False, name=file.name, stop=self._halt.is_set)
        unchanged(file)
        return replace(file, capability=stored.capability)


def bundle(shelf: Shelf, files: list[NewFile]) -> str:
    """The manifest that a job names: that of its one file, or one that lists several by their parameters."""
    if len(files) == 1:
        return files[0].capability or ""
    return shelf.bundle({file.parameter: file.capability or "" for file in files})


# CROSS: by inputs_unsealed; SQLite would read all jobs that wait.
_UNSEALED = f"""SELECT job_id, parameter, name, size, path, capability, mtime_ns FROM inputs WHERE job_id IN (
    SELECT DISTINCT job_id FROM inputs CROSS JOIN jobs ON jobs.id = job_id
    WHERE capability IS NULL AND parameter <> '' AND live = 1 AND status IN ('queued', 'running', 'paused')
    AND job_id NOT IN (SELECT value FROM json_each(?)) LIMIT {TOGETHER}) ORDER BY job_id"""


def find_unsealed(connection: sqlite3.Connection, leave: Sequence[str] = ()) -> list[Unsealed]:
    """The jobs of this device that have not ended and whose inputs have no manifest yet, but those to leave alone."""
    found: dict[str, list[NewFile]] = {}
    for job_id, *file in connection.execute(_UNSEALED, (json.dumps(leave),)):
        found.setdefault(job_id, []).append(NewFile(*file))
    return [Unsealed(job_id, tuple(files)) for job_id, files in found.items()]


def put_manifest(writer: Writer, job_id: str, files: list[NewFile], manifest: str) -> None:
    """Writes the manifest of a job's inputs, where the job is still there."""
    row = writer.connection.execute(
        "SELECT spec_generation, spec_hlc, spec_author FROM jobs WHERE id = ? AND live = 1 AND spec_generation IS NOT NULL", (job_id,)
    ).fetchone()
    if row is not None:
        put_input(writer, job_id, Stamp(row[0], 0, 0, row[1], row[2]), files, manifest)
    else:
        writer.connection.execute("DELETE FROM inputs WHERE job_id = ?", (job_id,))


def note_problem(writer: Writer, job_id: str, parameter: str, problem: str) -> None:
    """Keeps what stands in the way of an input, so that `show` can say why the job waits.

    Without a parameter: of a job of another device, of whose inputs this one knows nothing of itself.
    """
    if not parameter:
        query = "INSERT OR REPLACE INTO inputs (job_id, parameter, name, size, problem) VALUES (?, '', '', 0, ?)"
        writer.connection.execute(query, (job_id, problem))
        return
    writer.connection.execute("UPDATE inputs SET problem = ? WHERE job_id = ? AND parameter = ?", (problem, job_id, parameter))


def has_problem(connection: sqlite3.Connection, job_id: str) -> bool:
    """Says whether something stood in the way of a job's inputs at the last try."""
    return connection.execute("SELECT 1 FROM inputs WHERE job_id = ? AND problem IS NOT NULL", (job_id,)).fetchone() is not None


def clear_problem(writer: Writer, job_id: str) -> None:
    """Forgets what stood in the way."""
    writer.connection.execute("DELETE FROM inputs WHERE job_id = ? AND parameter = ''", (job_id,))
    writer.connection.execute("UPDATE inputs SET problem = NULL WHERE job_id = ?", (job_id,))
