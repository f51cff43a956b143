"""Which inputs of this device's jobs are not sealed yet, and who seals them?

A large input is named in its job's row at once and sealed afterwards, by the node, without holding anything up.
Until then only this device can run the job, from its own copy.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from dataclasses import dataclass, replace

from p2pqueue.errors import P2PQueueError
from p2pqueue.jobs.ledger import NewFile, put_input
from p2pqueue.payload.shelf import Shelf
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer

FIRST_WAIT = 1.0  # seconds after a first failure; doubles
LONGEST_WAIT = 60.0  # seconds

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unsealed:
    """A job that has inputs without a manifest."""

    job_id: str
    files: tuple[NewFile, ...]


class Sealer:
    """Seals what has no manifest yet, one job after the other, and writes the manifest when it holds."""

    def __init__(self, store: Store, shelf: Shelf) -> None:
        self._store = store
        self._shelf = shelf
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Tells that a job was enqueued; one without an input costs a look."""
        self._wake.set()

    async def run(self) -> None:
        """Seals for ever; a file that can't be sealed is told in words and tried again with growing waits."""
        wait = FIRST_WAIT
        while True:
            self._wake.clear()
            failed = False
            for unsealed in await self._store.read(find_unsealed):
                failed |= not await self._seal(unsealed)
            wait = min(LONGEST_WAIT, wait * 2) if failed else FIRST_WAIT
            try:
                async with asyncio.timeout(wait if failed else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _seal(self, unsealed: Unsealed) -> bool:
        sealed: list[NewFile] = []
        for file in unsealed.files:
            try:
                sealed.append(await self._seal_file(file))
            except P2PQueueError as error:
                await self._note(unsealed.job_id, file.parameter, str(error))
                return False
        manifest = await asyncio.to_thread(bundle, self._shelf, sealed)
        await self._store.write(lambda writer: put_manifest(writer, unsealed.job_id, sealed, manifest))
        return True

    async def _note(self, job_id: str, parameter: str, problem: str) -> None:
        _log.warning("input %r of job %s: %s", parameter, job_id, problem)
        await self._store.write(lambda writer: note_problem(writer, job_id, parameter, problem))

    async def _seal_file(self, file: NewFile) -> NewFile:
        if file.capability is not None or file.path is None:
            return file
        stored = await asyncio.to_thread(self._shelf.ingest, file.path, copy=False, name=file.name)
        return replace(file, size=stored.size, capability=stored.capability)


def bundle(shelf: Shelf, files: list[NewFile]) -> str:
    """The manifest that a job names: that of its one file, or one that lists several by their parameters."""
    if len(files) == 1:
        return files[0].capability or ""
    return shelf.bundle({file.parameter: file.capability or "" for file in files})


def find_unsealed(connection: sqlite3.Connection) -> list[Unsealed]:
    """The jobs of this device whose inputs have no manifest yet."""
    rows = connection.execute(
        "SELECT job_id, parameter, name, size, path, capability, mtime_ns FROM inputs "
        "WHERE job_id IN (SELECT job_id FROM inputs WHERE capability IS NULL) ORDER BY job_id LIMIT 1000"  # inputs_unsealed
    ).fetchall()
    found: dict[str, list[NewFile]] = {}
    for job_id, *file in rows:
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
    """Keeps what stands in the way of an input, so that `show` can say why the job waits."""
    writer.connection.execute("UPDATE inputs SET problem = ? WHERE job_id = ? AND parameter = ?", (problem, job_id, parameter))
