"""How does a list of jobs look, in JSON and to people?

Imported by `quick`, and so without click.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from p2pqueue.cli import output, quantities
from p2pqueue.cli.job_shape import SCHEMA, job_document, short_ids, whys_wait
from p2pqueue.cli.output import plain
from p2pqueue.jobs import rows
from p2pqueue.jobs.rows import JobFilter, JobRow

EMPTY = "no jobs here that match; `p2pqueue enqueue TASK` makes one"


class Listing:
    """The jobs that a filter finds, each with why it waits; lives within one read transaction."""

    def __init__(self, connection: sqlite3.Connection, wanted: JobFilter, *, node_running: bool) -> None:
        self._connection = connection
        self.jobs = rows.select(connection, wanted)
        self._whys = whys_wait(connection, self.jobs, node_running=node_running)

    def document(self) -> dict[str, Any]:
        """The list as JSON."""
        found = zip(self.jobs, self._whys, strict=True)
        return {"schema": SCHEMA, "jobs": [job_document(self._connection, row, why=why) for row, why in found]}

    def lines(self, *, painted: bool) -> list[str]:
        """The list as a table; `painted` with the colours that a terminal shows."""
        ids = [row.id for row in self.jobs]
        shown = short_ids(self._connection, ids) if output.on_terminal() else {each: each for each in ids}
        now = time.time()
        lines = [
            (
                shown[row.id],
                row.status,
                plain(row.task),
                f"{row.progress * 100:.0f} %",
                plain(row.worker_label or "–"),
                quantities.span(now - row.created_at / 1000),
                plain(row.title or row.input_name or ""),
                plain(_note(row, why)),
            )
            for row, why in zip(self.jobs, self._whys, strict=True)
        ]
        headers = ("ID", "STATUS", "TASK", "DONE", "DEVICE", "AGE", "TITLE", "NOTE")
        return output.table(headers, lines, colors=[output.STATUS_COLORS.get(row.status) for row in self.jobs], painted=painted)


def _note(row: JobRow, why: str | None) -> str:
    if row.status == "running" and why is None:
        return row.phase if row.phase and row.phase != "Queued" else ""  # until its first beat a job's phase is that
    if row.status == "failed":
        return row.error or ""
    return quantities.localised(why or "")
