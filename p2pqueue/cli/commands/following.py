"""How do people follow a job: how far it is, and how it ends?"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import edge, output, quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_job, find_all
from p2pqueue.cli.opening import node_pid, reading
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.jobs.rows import JobRow


@click.command(
    "watch",
    cls=Command,
    help="Follow jobs until all have ended. Exits as the first that did not succeed: 1 failed, 7 cancelled.",
    examples="""
    p2pqueue watch 0199a1b2-c3d4
    p2pqueue watch --json 0199a1b2-c3d4 0199a1b2-c3d5 | jq .progress
    """,
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_job)
@pass_invocation
def watch_command(invocation: Invocation, jobs: tuple[str, ...]) -> int:
    """Follows jobs."""
    with reading(invocation.home) as connection:
        ids = [row.id for row in find_all(connection, jobs)]
    return code_of_end(show_progress(invocation, ids))


def show_progress(invocation: Invocation, ids: list[str], *, deadline: float | None = None, err: bool = False) -> list[JobRow | None]:
    """Shows how the jobs go on, until all have ended or `deadline`; their last rows. `err`: on stderr, words only."""
    from p2pqueue.cli.pulse import follow

    last: list[JobRow | None] = []
    painter = _Painter(invocation, err)
    for found in follow(invocation.home, ids, deadline=deadline):
        painter.show(last, found)
        last = found
    painter.end()
    return last


def code_of_end(last: list[JobRow | None]) -> int:
    """The exit code for how jobs ended: that of the first that did not succeed."""
    for row in last:
        if row is None:
            return edge.NOT_FOUND
        if not row.ended:
            return edge.NOT_FINISHED
        if row.status != "succeeded":
            return edge.CANCELLED if row.status == "cancelled" else edge.ERROR
    return edge.DONE


class _Painter:
    """Draws progress: bars that move on a terminal, else a line for each change, with `--json` an object for each."""

    def __init__(self, invocation: Invocation, err: bool) -> None:
        self._invocation = invocation
        self._err = err
        stream = sys.stderr if err else sys.stdout
        self._moves = stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb") and (err or not invocation.json)
        self._silent = err and (invocation.quiet or not self._moves)
        self._drawn = 0
        self._lines: dict[str, str] = {}  # what was printed last, by job
        self._problems: dict[str, str | None] = {}  # what was said last to stand in the way, by job

    def show(self, before: list[JobRow | None], found: list[JobRow | None]) -> None:
        """Draws the rows that changed."""
        if self._silent:
            self._say_problems(found)
            return
        whys = self._whys(found)
        if self._moves:
            self._redraw(found, whys)
            return
        for index, row in enumerate(found):
            if row is None or (index < len(before) and before[index] == row):
                continue
            if self._invocation.json:
                self._document(row)
            elif self._lines.get(row.id) != (line := _line(row, whys.get(row.id))):
                self._lines[row.id] = line
                click.echo(line)
        sys.stdout.flush()

    def end(self) -> None:
        """Leaves the last picture standing."""
        if self._err and self._moves and not self._silent:
            self._redraw([], {})

    def _say_problems(self, found: list[JobRow | None]) -> None:
        """Says what stands in the way of a job, once for each reason: who waits without a picture hears of it too."""
        for row in found:
            if row is None or row.status != "queued" or self._problems.get(row.id) == row.problem:
                continue
            self._problems[row.id] = row.problem
            if row.problem:
                self._invocation.say(f"job {row.id[:13]} waits: {plain(row.problem)}")

    def _whys(self, found: list[JobRow | None]) -> dict[str, str]:
        """Why those that wait do so, by job."""
        waiting = [row for row in found if row is not None and row.status in ("queued", "paused", "running")]
        if not waiting or (self._invocation.json and not self._err):
            return {}
        from p2pqueue.cli.job_shape import why_waits

        running = node_pid(self._invocation.home) is not None
        with reading(self._invocation.home) as connection:
            whys = {row.id: why_waits(connection, row, node_running=running) for row in waiting}
        return {job_id: quantities.localised(why) for job_id, why in whys.items() if why}

    def _redraw(self, found: list[JobRow | None], whys: dict[str, str]) -> None:
        width = output.terminal_width() or 80
        back = f"\x1b[{self._drawn}F" if self._drawn else ""
        text = "".join(f"\x1b[2K{output.cut(_line(row, whys.get(row.id)), width - 1)}\n" for row in found if row is not None)
        click.echo(f"{back}\x1b[J{text}", nl=False, err=self._err)
        self._drawn = sum(row is not None for row in found)

    def _document(self, row: JobRow) -> None:
        from p2pqueue.cli.job_shape import lone_document, why_waits

        with reading(self._invocation.home) as connection:
            why = why_waits(connection, row, node_running=node_pid(self._invocation.home) is not None)
            output.document(lone_document(connection, row, why=why))


def _line(row: JobRow, why: str | None) -> str:
    name = plain(row.title or row.task)
    tail = row.error if row.status == "failed" else row.phase if row.status == "running" and row.phase != "Queued" and not why else why
    where = f" on {row.worker_label}" if row.worker_label and row.status == "running" else ""
    return f"{row.id[:13]}  {row.status:<9}  {output.bar(row.progress)}  {name}{plain(where)}  {plain(tail or '')}".rstrip()


def lasting(seconds: float | None) -> float | None:
    """The monotonic deadline of a wait; None for one without end."""
    return None if seconds is None else time.monotonic() + seconds


def end_words(row: JobRow | None) -> str:
    """How a job ended, in words."""
    if row is None:
        return "the job was deleted"
    taken: Any = (row.finished_at - row.created_at) / 1000 if row.finished_at else None
    if row.status == "succeeded":
        return f"succeeded after {quantities.span(taken)}"
    if row.status == "failed":
        return f"failed: {plain(row.error or 'no reason told')}"
    return row.status
