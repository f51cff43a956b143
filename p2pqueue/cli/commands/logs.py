"""What did a job's handler write?

For people it is printed as it was written; with `--json` as one object, or, where it is followed, one for each piece.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import edge, output, quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_job
from p2pqueue.cli.opening import reading
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.home import Home
    from p2pqueue.jobs.rows import JobRow, RunRow

LOOK_AGAIN = 0.1  # seconds between two looks at a log that grows
BLOCK = 1 << 16  # bytes of a log read at a time


@click.command(
    "logs",
    cls=Command,
    help="""Print what a job's handler wrote: its log, stdout and stderr, of the last attempt unless said.

    With --json it is the `log` of one object; with -f as well, each object has what came since the one before, in whole lines.
    """,
    examples="""
    p2pqueue logs 0199a1b2-c3d4
    p2pqueue logs -f 0199a1b2-c3d4
    p2pqueue logs --attempt 1 0199a1b2-c3d4
    p2pqueue logs --json 0199a1b2-c3d4 | jq -r .log
    """,
)
@click.argument("job", shell_complete=complete_job)
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job has ended, over all attempts.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="The log of this attempt, by its # in `show`.")
@pass_invocation
def logs_command(invocation: Invocation, job: str, follow: bool, attempt: int | None) -> None:
    """Prints a job's log."""
    row, runs = _runs(invocation, job)
    if attempt is not None and attempt > len(runs):
        had = quantities.counted(len(runs), "attempt")
        raise edge.Refusal(f"job {row.id} has had {had}, and no attempt #{attempt}", edge.NOT_FOUND)
    if follow:
        _follow_log(invocation, row.id)
    elif runs:
        number = attempt or len(runs)
        _print_log(invocation, row.id, number, runs[number - 1])
    else:
        if invocation.json:
            _document(row.id)
        invocation.say(f"job {row.id} is {row.status} and has not run yet")


def _runs(invocation: Invocation, job: str) -> tuple[JobRow, list[RunRow]]:
    from p2pqueue.jobs import rows

    with reading(invocation.home) as connection:
        row = rows.find(connection, job)
        return row, rows.runs_of(connection, row.id)


def _print_log(invocation: Invocation, job_id: str, number: int, run: RunRow) -> None:
    from p2pqueue.identity.keys import load

    path = _log_path(invocation.home, run)
    here = path.exists()
    if invocation.json:
        _document(job_id, number, run, _text(path.read_bytes()) if here else run.log_tail, whole=here)
    elif here:
        _copy(path, 0)
    if here:
        return
    where = plain(run.worker_label or "another device")
    if run.log_tail:
        invocation.say(f"the whole log is on {where}; this is its end")
        if not invocation.json:
            _write(run.log_tail.encode())
    elif run.worker_id != load(invocation.home).device_id:
        invocation.say(f"the log of this attempt is on {where}, which ran it: `p2pqueue logs` there shows it")
    else:
        invocation.say("this attempt wrote nothing that is kept here")


def _follow_log(invocation: Invocation, job_id: str) -> None:
    from p2pqueue.identity.keys import load

    own = load(invocation.home).device_id
    positions: dict[str, int] = {}
    elsewhere: set[str] = set()
    while True:
        row, runs = _runs(invocation, job_id)
        numbered = list(enumerate(runs, 1))
        for number, run in numbered[-1:] if not positions else numbered:
            path = _log_path(invocation.home, run)
            if path.exists() and invocation.json:
                over = row.ended or number < len(runs)
                positions[run.id] = _add_document(job_id, number, run, path, positions.get(run.id, 0), over=over)
            elif path.exists():
                positions[run.id] = _copy(path, positions.get(run.id, 0))
            elif run.worker_id != own and run.id not in elsewhere:
                elsewhere.add(run.id)
                where = plain(run.worker_label or "another device")
                invocation.say(f"the log of attempt {run.attempt} is on {where}, which makes it: `p2pqueue logs -f` there shows it")
        if row.ended:
            _print_tails(invocation, job_id, [(number, run) for number, run in numbered if run.id in elsewhere])
            return
        time.sleep(LOOK_AGAIN)


def _print_tails(invocation: Invocation, job_id: str, runs: list[tuple[int, RunRow]]) -> None:
    """Prints what came here of logs that are on other devices."""
    for number, run in runs:
        if invocation.json:
            _document(job_id, number, run, run.log_tail)
        elif run.log_tail:
            _write(run.log_tail.encode())


def _log_path(home: Home, run: RunRow) -> Path:
    return home.log_file(*run.log_key)


def _copy(path: Path, position: int) -> int:
    """Prints a file from a position on; the position reached."""
    with open(path, "rb") as file:
        file.seek(position)
        while block := file.read(BLOCK):
            _write(block)
            position += len(block)
    sys.stdout.flush()
    return position


def _write(block: bytes) -> None:
    if sys.stdout.isatty():
        # On a terminal a log may not move the cursor or rename the window; a pipe gets the bytes as they are.
        text = block.decode(errors="backslashreplace").replace("\r\n", "\n").replace("\r", "\n")
        sys.stdout.write(plain(text, lines=True))
    else:
        sys.stdout.buffer.write(block)


def _add_document(job_id: str, number: int, run: RunRow, path: Path, position: int, *, over: bool) -> int:
    """Prints what a log has had since a position as JSON, in whole lines while more may come; the position reached."""
    with open(path, "rb") as file:
        file.seek(position)
        data = file.read()
    if not over:
        data = data[: data.rfind(b"\n") + 1]
    if data:
        _document(job_id, number, run, _text(data), whole=True)
        sys.stdout.flush()
    return position + len(data)


def _document(job_id: str, number: int | None = None, run: RunRow | None = None, log: str | None = None, *, whole: bool = False) -> None:
    """Prints what was written in an attempt as JSON; `whole` where nothing of it is missing here."""
    found: dict[str, Any] = {"schema": 1, "id": job_id, "run": number, "attempt": None, "worker_label": None, "log": log, "whole": whole}
    if run is not None:
        found |= {"attempt": run.attempt, "worker_label": run.worker_label}
    output.document(found)


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
