"""Cancelling, pausing, resuming, retrying and deleting: which jobs are meant, and what became of each?

Jobs are named by their ids, or chosen by `--all` with `--status`, `--task` and `--queue`. Each is acted on in a
savepoint of its own: one that can't be is told, and the others go on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import edge, output
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_job, complete_status, complete_task, find_all, name, status
from p2pqueue.cli.opening import reading, writing
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.jobs.rows import JobRow

BATCH = 200  # jobs acted on in one transaction: others write in between


@dataclass(frozen=True)
class Verb:
    """An action: its name, its past form, and the statuses that `--all` means without `--status`."""

    name: str
    done: str
    meant: tuple[str, ...]
    act: Callable[[Any, str], str | None]  # takes the writer and the id; gives the id of the job that goes on


@dataclass(frozen=True)
class Choice:
    """Which jobs a call is about, and how far it may go without asking."""

    jobs: tuple[str, ...]
    all: bool
    status: str | None
    task: str | None
    queue: str | None
    dry_run: bool
    yes: bool


def _cancel(writer: Any, job_id: str) -> str | None:
    from p2pqueue.jobs import ledger

    ledger.cancel(writer, job_id)
    return job_id


def _pause(writer: Any, job_id: str) -> str | None:
    from p2pqueue.jobs import ledger

    ledger.hold(writer, job_id)
    return job_id


def _resume(writer: Any, job_id: str) -> str | None:
    from p2pqueue.jobs import ledger

    ledger.resume(writer, job_id)
    return job_id


def _delete(writer: Any, job_id: str) -> str | None:
    from p2pqueue.jobs import ledger

    ledger.delete(writer, job_id)
    return None


def _selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        click.option("--yes", "-y", is_flag=True, help="Don't ask."),
        click.option("--dry-run", is_flag=True, help="Only show which jobs are meant."),
        click.option("--queue", type=name, metavar="Q", help="With --all: only jobs of this queue."),
        click.option("--task", type=name, metavar="T", shell_complete=complete_task, help="With --all: only jobs of this task."),
        click.option("--status", type=status, metavar="S", shell_complete=complete_status, help="With --all: only jobs of this status."),
        click.option("--all", is_flag=True, help="All jobs, as far as --status, --task and --queue go."),
        click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=complete_job),
    ):
        command = decorate(command)
    return command


@click.command(
    "cancel",
    cls=Command,
    help="Cancel jobs that have not ended; running handlers are stopped.",
    examples="""
    p2pqueue cancel 0199a1b2-c3d4
    p2pqueue cancel --all --task transcode --status queued --yes
    """,
)
@_selecting
@pass_invocation
def cancel_command(invocation: Invocation, /, **choice: Any) -> int:
    """Cancels jobs."""
    return _run(invocation, Verb("cancel", "cancelled", ("queued", "running", "paused"), _cancel), Choice(**choice))


@click.command(
    "pause",
    cls=Command,
    help="Pause jobs: none is started, and a running handler is stopped; it keeps its checkpoint.",
    examples="""
    p2pqueue pause 0199a1b2-c3d4
    p2pqueue pause --all --queue nightly --dry-run
    """,
)
@_selecting
@pass_invocation
def pause_command(invocation: Invocation, /, **choice: Any) -> int:
    """Pauses jobs."""
    return _run(invocation, Verb("pause", "paused", ("queued", "running"), _pause), Choice(**choice))


@click.command(
    "resume",
    cls=Command,
    help="Resume paused jobs, from their checkpoints.",
    examples="""
    p2pqueue resume 0199a1b2-c3d4
    p2pqueue resume --all --yes
    """,
)
@_selecting
@pass_invocation
def resume_command(invocation: Invocation, /, **choice: Any) -> int:
    """Resumes paused jobs."""
    return _run(invocation, Verb("resume", "resumed", ("paused",), _resume), Choice(**choice))


@click.command(
    "retry",
    cls=Command,
    help="Run jobs again that have ended. With --all and no --status: those that failed or were cancelled.",
    examples="""
    p2pqueue retry 0199a1b2-c3d4
    p2pqueue retry --fresh 0199a1b2-c3d4
    p2pqueue retry --all --status failed --yes
    """,
)
@click.option("--fresh", is_flag=True, help="Forget the checkpoint; begin from the beginning.")
@_selecting
@pass_invocation
def retry_command(invocation: Invocation, /, fresh: bool, **choice: Any) -> int:
    """Runs ended jobs again."""
    from p2pqueue.config import load_settings
    from p2pqueue.jobs import ledger

    retention_ms = int(load_settings(invocation.home).retention * 1000)

    def act(writer: Any, job_id: str) -> str | None:
        return ledger.retry(writer, job_id, fresh=fresh, retention_ms=retention_ms)

    return _run(invocation, Verb("retry", "queued again", ("failed", "cancelled"), act), Choice(**choice))


@click.command(
    "delete",
    cls=Command,
    help="Delete jobs from every device; a running handler is stopped. With --all and no --status: those that have ended.",
    examples="""
    p2pqueue delete 0199a1b2-c3d4
    p2pqueue delete --all --status cancelled --yes
    """,
)
@_selecting
@pass_invocation
def delete_command(invocation: Invocation, /, **choice: Any) -> int:
    """Deletes jobs."""
    return _run(invocation, Verb("delete", "deleted", ("succeeded", "failed", "cancelled"), _delete), Choice(**choice))


def _run(invocation: Invocation, verb: Verb, choice: Choice) -> int:
    _check(choice)
    chosen, code = _chosen(invocation, verb, choice)
    if choice.dry_run:
        return _tell_chosen(invocation, verb, chosen) or code
    if choice.all and not _confirmed(verb, chosen, choice):
        return edge.ERROR
    outcomes = _act(invocation, verb, [row.id for row in chosen])
    return _tell(invocation, verb, outcomes) or code


def _check(choice: Choice) -> None:
    if choice.jobs and choice.all:
        raise click.UsageError("name jobs, or choose them with --all; not both.")
    if not choice.jobs and not choice.all:
        raise click.UsageError("name one or more jobs, or choose them with --all.")
    if choice.jobs and (choice.status or choice.task or choice.queue):
        raise click.UsageError("--status, --task and --queue go with --all.")


def _chosen(invocation: Invocation, verb: Verb, choice: Choice) -> tuple[list[JobRow], int]:
    """The jobs that are meant; and the exit code of those named that are not there."""
    from p2pqueue.errors import MisuseError
    from p2pqueue.jobs.rows import JobFilter, select

    with reading(invocation.home) as connection:
        if choice.all:
            statuses = (choice.status,) if choice.status else verb.meant
            filters = (JobFilter(status=each, task=choice.task, queue=choice.queue, limit=None) for each in statuses)
            return [row for each in filters for row in select(connection, each)], edge.DONE
        if len(choice.jobs) == 1:
            return find_all(connection, choice.jobs), edge.DONE
        found: dict[str, JobRow] = {}
        code = edge.DONE
        for prefix in choice.jobs:
            try:
                found |= {row.id: row for row in find_all(connection, (prefix,))}
            except MisuseError as error:
                edge.tell(error, as_json=invocation.json)
                code = code or edge.code_of(error)
        return list(found.values()), code


def _confirmed(verb: Verb, chosen: list[JobRow], choice: Choice) -> bool:
    if choice.yes or not chosen:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError(f"this would {verb.name} {_count(len(chosen))}; add --yes to do so without being asked.")
    return click.confirm(f"{verb.name.capitalize()} {_count(len(chosen))}?", err=True)


def _act(invocation: Invocation, verb: Verb, ids: list[str]) -> list[tuple[str, str | Exception | None]]:
    """Acts on each job; its id with the id of the job that goes on, or the error."""
    outcomes: list[tuple[str, str | Exception | None]] = []
    if not ids:
        return outcomes
    with writing(invocation.home) as replica:
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            results = replica.write_many([partial(_attempt, verb, each) for each in batch])
            for each, result in zip(batch, results, strict=True):
                if result.error is not None:
                    raise result.error
                outcomes.append((each, result.value))
    return outcomes


def _attempt(verb: Verb, job_id: str, writer: Any) -> str | Exception | None:
    from p2pqueue.errors import MisuseError

    try:
        return verb.act(writer, job_id)
    except MisuseError as error:
        return error  # refused before anything was written


def _tell_chosen(invocation: Invocation, verb: Verb, chosen: list[JobRow]) -> int:
    if invocation.json:
        output.document({"schema": 1, "dry_run": True, "jobs": [{"id": row.id, "status": row.status, "task": row.task} for row in chosen]})
        return edge.DONE
    for row in chosen:
        output.line(f"{row.id}  {row.status}  {plain(row.task)}  {plain(row.title or '')}".rstrip())
    invocation.say(f"would {verb.name} {_count(len(chosen))}")
    return edge.DONE


def _tell(invocation: Invocation, verb: Verb, outcomes: list[tuple[str, str | Exception | None]]) -> int:
    failures = [(job_id, result) for job_id, result in outcomes if isinstance(result, Exception)]
    if invocation.json:
        output.document(_document(invocation, outcomes))
    else:
        for job_id, result in outcomes:
            if not isinstance(result, Exception):
                output.line(f"{result or job_id}")
    for _, error in failures:
        edge.tell(error, as_json=invocation.json)
    done = len(outcomes) - len(failures)
    if done or not failures:
        invocation.say(f"{verb.done}: {_count(done)}")
    return edge.code_of(failures[0][1]) if failures else edge.DONE


def _document(invocation: Invocation, outcomes: list[tuple[str, str | Exception | None]]) -> dict[str, Any]:
    from p2pqueue.cli.job_shape import job_document
    from p2pqueue.jobs import rows

    done = [(job_id, result) for job_id, result in outcomes if not isinstance(result, Exception)]
    with reading(invocation.home) as connection:
        found = {job_id: rows.get(connection, job_id) for _, job_id in done if job_id is not None}
        jobs = [job_document(connection, row) for row in found.values() if row is not None]
    gone = [{"id": job_id, "deleted": True} for job_id, going_on in done if going_on is None]
    errors = [{"id": job_id, "error": str(result)} for job_id, result in outcomes if isinstance(result, Exception)]
    return {"schema": 1, "jobs": jobs + gone, "errors": errors}


def _count(number: int) -> str:
    return f"{number} job{'' if number == 1 else 's'}"
