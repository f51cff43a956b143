"""What is known of one job?"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_job
from p2pqueue.cli.opening import node_pid, reading
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.jobs.rows import JobRow, RunRow

_LONGEST_VALUE = 400  # characters of an argument or a result that `show` prints for people


@click.command(
    "show",
    cls=Command,
    help="Show one job: what was asked, its attempts, its timeline, and why it waits.",
    examples="""
    p2pqueue show 0199a1b2-c3d4
    p2pqueue show 0199a1b2-c3d4 --json | jq .attempts
    """,
)
@click.argument("job", shell_complete=complete_job)
@pass_invocation
def show_command(invocation: Invocation, job: str) -> None:
    """Shows one job."""
    from p2pqueue.cli.job_shape import jsonable, lone_document, run_document, unpacked, why_waits
    from p2pqueue.jobs import rows

    with reading(invocation.home) as connection:
        row = rows.find(connection, job)
        runs = rows.runs_of(connection, row.id)
        why = why_waits(connection, row, node_running=node_pid(invocation.home) is not None)
        args, options = (unpacked(packed) for packed in rows.spec_of(connection, row.id))
        limit = _limit(connection, row)
        document = lone_document(connection, row, why=why)
    document |= {
        "args": args,
        "options": options,
        "attempts": [{"run": number, **run_document(run)} for number, run in enumerate(runs, 1)],
        "timeline": [{"at": quantities.rfc3339(at), "what": what} for at, what in timeline(row, runs)],
    }
    invocation.result(jsonable(document), lambda: _job_lines(row, runs, document, limit))


def _limit(connection: sqlite3.Connection, row: JobRow) -> int:
    """How many attempts a job has in all: its own word, else that of its task."""
    from p2pqueue.jobs.local import known_tasks
    from p2pqueue.workers.claimed import DEFAULT_ATTEMPTS

    return row.max_attempts or known_tasks(connection).get(row.task, {}).get("max_attempts") or DEFAULT_ATTEMPTS


def timeline(row: JobRow, runs: list[RunRow]) -> list[tuple[int, str]]:
    """What happened to a job, and when (milliseconds UTC), the oldest first."""
    from p2pqueue.jobs.job import MAX_RETRIES

    events = [(row.created_at, "enqueued")]
    if row.run_at:
        events.append((row.run_at, "due"))
    generation = ((runs[0].generation or 0) if runs else row.generation) & ~MAX_RETRIES
    for number, run in enumerate(runs, 1):
        if (run.generation or 0) != generation:
            generation = run.generation or 0
            events.append((run.started_at, "retried"))
        where = f" on {run.worker_label}" if run.worker_label else ""
        events.append((run.started_at, f"attempt #{number} started{where}"))
        if run.ended_at is not None:
            events.append((run.ended_at, f"attempt #{number} {run.status}{f': {run.error}' if run.error else ''}"))
    if row.generation > generation and not row.ended:
        events.append((row.updated_at, "retried"))
    if row.status == "queued" and row.retry_at:
        events.append((row.retry_at, "runs again"))
    told = any(run.status == row.status and run.ended_at == row.finished_at for run in runs)
    if row.finished_at is not None and row.ended and not told:
        events.append((row.finished_at, row.status))
    return sorted(events, key=lambda event: event[0])


def _job_lines(row: JobRow, runs: list[RunRow], document: dict[str, Any], limit: int) -> list[str]:
    lines = output.pairs(_facts(row, document, limit))
    if document["args"]:
        lines += ["", output.colored("Arguments", None, bold=True)]
        args = document["args"] if isinstance(document["args"], dict) else {"?": document["args"]}
        lines += [f"  {plain(name)} = {_value(value)}" for name, value in args.items()]
    if runs:
        lines += ["", output.colored("Attempts", None, bold=True), *_attempts(runs)]
    lines += ["", output.colored("Timeline", None, bold=True)]
    lines += [f"  {quantities.local_time(at)}  {plain(what)}" for at, what in timeline(row, runs)]
    if document["result"] is not None:
        lines += ["", output.colored("Result", None, bold=True), f"  {_value(document['result'])}", *_advice(row, document)]
    trace = next((run.traceback for run in reversed(runs) if run.traceback), None)
    if row.status == "failed" and trace:
        lines += ["", output.colored("Traceback", None, bold=True), plain(trace, lines=True).rstrip()]
    return lines


def _advice(row: JobRow, document: dict[str, Any]) -> list[str]:
    has_file = any(run["output_manifest"] for run in document["attempts"])
    return [f"  p2pqueue result {row.id} -o PATH saves what it made"] if has_file else []


def _phase(row: JobRow) -> str:
    return "" if row.phase in (None, "Queued") else row.phase  # until its first beat a job's phase is that


def _facts(row: JobRow, document: dict[str, Any], limit: int) -> list[tuple[str, str]]:
    status = output.colored(row.status, output.STATUS_COLORS.get(row.status))
    size, needs = quantities.bytes_text(row.input_size), document["needs"] or []
    facts = [
        ("Job", row.id),
        ("Title", plain(row.title or "")),
        ("Task", f"{plain(row.task)} (queue {plain(row.queue)})"),
        ("Status", status),
        ("Waits", plain(quantities.localised(document["why"] or ""))),
        ("Done", f"{output.bar(row.progress)}  {plain(_phase(row))}" if row.status == "running" else ""),
        ("Error" if row.ended else "Last error", plain(row.error or "")),
        ("Device", plain(row.worker_label or "")),
        ("Attempt", f"{row.attempt} of {limit}"),
        ("Priority", str(row.priority) if row.priority else ""),
        ("Input", f"{plain(row.input_name)} ({size})" if row.input_name else ""),
        ("Needs", plain(", ".join(map(str, needs if isinstance(needs, list) else [needs])))),
        ("Unique key", plain(row.unique_key or "")),
    ]
    return [(name, value) for name, value in facts if value]


def _attempts(runs: list[RunRow]) -> list[str]:
    lines = []
    for number, run in enumerate(runs, 1):
        taken = run.duration
        if taken is None and run.ended_at is not None:
            taken = (run.ended_at - run.started_at) / 1000
        lines.append(
            (
                str(number),
                run.status,
                str(run.attempt),
                plain(run.worker_label or "–"),
                quantities.local_time(run.started_at),
                quantities.span(taken),
                plain(run.error or ""),
            )
        )
    colors = [output.STATUS_COLORS.get(run.status) for run in runs]
    return [f"  {text}" for text in output.table(("#", "STATUS", "ATTEMPT", "DEVICE", "STARTED", "TOOK", "ERROR"), lines, colors=colors)]


def _value(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["__file__"]:
        return "a file"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return plain(text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…")
