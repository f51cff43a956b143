"""How did a job end, and what does that mean for whoever waits for its result?"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import JobCancelled, JobFailed, NoSuchJob
from p2pqueue.jobs import rows
from p2pqueue.jobs.arguments import decode_result, is_marker

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access
    from p2pqueue.payload.file import File
    from p2pqueue.payload.shelf import Shelf


@dataclass(frozen=True)
class Outcome:
    """The end of a job: its row, and the run that decided it."""

    row: rows.JobRow
    run: rows.RunRow | None

    def value(self, access: Access) -> Any:
        """What the handler returned. Raises `JobFailed` and `JobCancelled` where there is nothing to return."""
        row, run = self.row, self.run
        if row.status == "cancelled":
            raise JobCancelled(f"job {row.id} ({row.task}) was cancelled", job_id=row.id)
        if row.status == "failed":
            error = row.error or "unknown error"
            traceback = (run.traceback if run else None) or ""
            raise JobFailed(f"job {row.id} ({row.task}) failed: {error}", job_id=row.id, error=error, traceback=traceback)
        if run is None:
            return None
        result = decode_result(run.result)
        if run.output_manifest is None:
            return result
        return decode_result(run.result, _Outputs(access.shelf, run.output_manifest, result).open)


def read_outcome(connection: sqlite3.Connection, job_id: str) -> Outcome | None:
    """How the job ended; None while it hasn't, or while the run that holds its result is still to come."""
    row = rows.get(connection, job_id)
    if row is None:
        raise NoSuchJob(f"job {job_id} was deleted, or dropped after its time")
    if not row.ended:
        return None
    if row.status == "succeeded":
        run = rows.run(connection, row.result_id) if row.result_id else None
        return None if run is None or run.ended_at is None else Outcome(row, run)
    if row.status == "failed":
        failed = [run for run in rows.runs_of(connection, job_id) if run.error is not None]
        return Outcome(row, failed[-1] if failed else None)
    return Outcome(row, None)


class _Outputs:
    """The files of a result, by the names in it."""

    def __init__(self, shelf: Shelf, manifest: str, result: Any) -> None:
        self._shelf = shelf
        self._manifest = manifest
        self._single = _count_files(result) == 1
        self._capabilities: dict[str, str] | None = None

    def open(self, name: str) -> File:
        """The file of that name."""
        if self._single:  # the manifest is the file's own, not one of several
            return open_file(self._shelf, self._manifest)
        if self._capabilities is None:
            self._capabilities = {entry: stored.capability for entry, stored in self._shelf.unbundle(self._manifest).items()}
        return open_file(self._shelf, self._capabilities[name])


def open_file(shelf: Shelf, capability: str) -> File:
    """The file, or the folder, of a manifest that this device holds."""
    from p2pqueue.payload.file import File

    stored = shelf.identify(capability)
    return File.granted(None, capability, name=stored.name, size=stored.size, shelf=shelf)


def _count_files(value: Any) -> int:
    if is_marker(value):
        return 1
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return sum(map(_count_files, inner))
