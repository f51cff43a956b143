"""How does a job come from the command line?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import edge, output, quantities, values
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_task, name
from p2pqueue.cli.opening import check_initialised, node_pid, reading, words
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access
    from p2pqueue.jobs.ledger import EnqueuedJob, NewJob
    from p2pqueue.jobs.options import EnqueueOptions
    from p2pqueue.jobs.rows import JobRow

_LONGEST_RESULT = 200  # characters of a result that `--wait` tells
_NO_FILES = frozenset({"str", "int", "float", "bool"})  # annotations of parameters that a file can't be


@dataclass(frozen=True)
class Waiting:
    """Whether the call waits for the job's end, and how many seconds at most."""

    wanted: bool
    timeout: float | None


@click.command(
    "enqueue",
    cls=Command,
    help="""Enqueue one job and print its id.

    Values are read by the task's annotations where this device knows the task, else as JSON, else as text. A bare
    `-` reads a JSON object of arguments from stdin.
    """,
    examples="""
    p2pqueue enqueue transcode -f video=clip.mp4 height=240
    p2pqueue enqueue report day=2026-11-29 'to=["a@example.org"]' --delay 1h
    p2pqueue enqueue index --unique-key nightly --at 03:00
    echo '{"text": "hello"}' | p2pqueue enqueue echo - --wait
    """,
)
@click.argument("task", type=name, shell_complete=complete_task)
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-f", "--file", "files", multiple=True, metavar="NAME=PATH", help="A file or folder (or p2pq1-… manifest) for a parameter.")
@click.option("--copy", is_flag=True, help="Keep a copy of the files, however large, so that they may go away.")
@click.option("--queue", type=name, metavar="Q", help="The queue.  [default: the task's where it is known, else `default`]")
@click.option("--title", metavar="T", help="What people see.")
@click.option("--priority", type=quantities.priority, metavar="N", help="Higher runs first.  [default: 0]")
@click.option("--delay", type=quantities.duration, metavar="D", help="Not before so long from now: 90, 10m, 1h30m.")
@click.option("--at", "run_at", type=quantities.moment, metavar="T", help="Not before this time: 2026-12-24T18:30, or 18:30.")
@click.option("--unique-key", metavar="K", help="While a job of this task and key has not ended, make no second one.")
@click.option("--max-attempts", type=click.IntRange(1, (1 << 31) - 1), metavar="N", help="Attempts in all.  [default: the task's]")
@click.option("--timeout", type=quantities.duration, metavar="D", help="How long one attempt may take.  [default: the task's]")
@click.option("--wait", is_flag=True, help="Wait until the job has ended, and exit as it did: 0, 1 failed, 7 cancelled.")
@click.option("--wait-timeout", type=quantities.duration, metavar="D", help="With --wait: at most so long; exits 6 then.")
@pass_invocation
def enqueue_command(
    invocation: Invocation, /, task: str, arguments: tuple[str, ...], files: tuple[str, ...], copy: bool, queue: str | None, wait: bool,
    wait_timeout: float | None, **options: Any,
) -> int:  # fmt: skip
    """Enqueues one job."""
    waiting = check_waiting(wait, wait_timeout)
    if options["delay"] is not None and options["run_at"] is not None:
        raise click.UsageError("--delay and --at exclude one another.")
    check_initialised(invocation.home)
    known = _description(invocation, task)
    parameters = known["parameters"] if known else ()
    args = values.arguments(arguments, parameters, _stdin)
    args |= _files(files, args, parameters, copy=copy)
    if known is not None:
        values.check_names(plain(task), args, parameters)
    access = open_access(invocation)
    try:
        with words():
            new = _prepare(access, task, args, known, queue, _options(options))
            enqueued = write(access, new)
        warn_of_workers(invocation, task)
    finally:
        access.close()  # last of all: whoever only reads can't take SQLite's log away, and would leave it behind
    return tell(invocation, enqueued, waiting)


def open_access(invocation: Invocation) -> Access:
    """The way of this call to the replica and the shelf; the caller closes it."""
    from p2pqueue.jobs.access import Access

    return Access(invocation.home)


def check_waiting(wait: bool, timeout: float | None) -> Waiting:
    """What `--wait` and `--wait-timeout` mean together."""
    if timeout is not None and not wait:
        raise click.UsageError("--wait-timeout goes with --wait.")
    return Waiting(wait, timeout)


def write(access: Access, new: NewJob) -> EnqueuedJob:
    """Writes the job; durable on return."""
    from p2pqueue.jobs import ledger

    return access.write(lambda writer: ledger.enqueue(writer, new))


def tell(invocation: Invocation, enqueued: EnqueuedJob, waiting: Waiting) -> int:
    """Prints the id of the job, or the job as it ended; waits where that is wanted. Gives the exit code."""
    if not enqueued.created:
        invocation.say("a job of this key has not ended yet; no second one was made")
    if not waiting.wanted:
        _print_job(invocation, enqueued.id, whole=invocation.json)
        return edge.DONE
    try:
        if not invocation.json:
            _print_job(invocation, enqueued.id, whole=False)
            sys.stdout.flush()
        if node_pid(invocation.home) is None:
            invocation.warn("no node runs here; the job waits until one does: `p2pqueue run APP`")
        return _wait(invocation, enqueued.id, waiting)
    except KeyboardInterrupt:
        beside = "\n" if sys.stderr.isatty() else ""  # the terminal shows ^C
        invocation.say(f"{beside}the job goes on: `p2pqueue watch {enqueued.id}` follows it, `p2pqueue cancel` ends it")
        raise


def _wait(invocation: Invocation, job_id: str, waiting: Waiting) -> int:
    from p2pqueue.cli.commands.following import code_of_end, end_words, lasting, show_progress

    last = show_progress(invocation, [job_id], deadline=lasting(waiting.timeout), err=True)
    if invocation.json:
        _print_job(invocation, job_id, whole=True)
    row = last[0] if last else None
    if row is not None and not row.ended:
        invocation.say(f"not finished after {quantities.span(waiting.timeout)}; it goes on")
        return edge.NOT_FINISHED
    invocation.say(end_words(row))
    if row is not None and row.status == "succeeded" and not invocation.json:
        _tell_result(invocation, row)
    return code_of_end(last)


def _tell_result(invocation: Invocation, row: JobRow) -> None:
    """Tells a small result, as one line; stdout has the id alone."""
    from p2pqueue.cli.job_shape import result_of

    with reading(invocation.home) as connection:
        value = result_of(connection, row)
    if isinstance(value, (str, int, float)):
        text = plain(value if isinstance(value, str) else json.dumps(value))
        invocation.say(f"result: {text if len(text) <= _LONGEST_RESULT else text[:_LONGEST_RESULT] + '…'}")


def warn_of_workers(invocation: Invocation, task: str, *, needs: frozenset[str] = frozenset()) -> None:
    """Warns of a task that nobody is known to have, and where no running node could do the job."""
    from p2pqueue.jobs import local
    from p2pqueue.jobs.waiting import EXEC_TASK, Demand, lacking, nobody, refusal

    running = node_pid(invocation.home) is not None
    with reading(invocation.home) as connection:
        names = local.task_names(connection)
        here = local.ability(connection) if running else None
        around = list(local.others(connection)[0].values()) if running else []
    demand = Demand(task, needs, None, True)
    if any(each.takes and lacking(demand, each) is None for each in around):
        return
    known = names.union(*(each.tasks for each in around))
    if task != EXEC_TASK and task not in known:
        invocation.warn(f"{_unheard_of(task, known)}; the job waits for one that has it, and fails after a day")
        return
    why = refusal(demand, here) if here is not None else None
    if here is not None and why is not None:
        invocation.warn(f"the job waits: {plain(nobody(why, demand, here, around))}")


def _unheard_of(task: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(task, known, n=1)
    return f"no node here has had the task {plain(task)!r}" + (f" (did you mean {plain(near[0])!r}?)" if near else "")


def _print_job(invocation: Invocation, job_id: str, *, whole: bool) -> None:
    if not whole:
        output.line(job_id)
        return
    from p2pqueue.cli.job_shape import lone_document, why_waits
    from p2pqueue.jobs import rows

    with reading(invocation.home) as connection:
        row = rows.get(connection, job_id)
        if row is None:
            output.document({"schema": 1, "id": job_id, "deleted": True})
            return
        why = why_waits(connection, row, node_running=node_pid(invocation.home) is not None)
        output.document(lone_document(connection, row, why=why))


def _description(invocation: Invocation, task: str) -> dict[str, Any] | None:
    from p2pqueue.jobs.local import known_tasks

    with reading(invocation.home) as connection:
        return known_tasks(connection).get(task)


def _stdin(limit: int) -> str:
    data = sys.stdin.buffer.read(limit)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"stdin is no UTF-8 text: {error}.") from None


def _files(given: tuple[str, ...], args: dict[str, Any], parameters: Iterable[Mapping[str, Any]], *, copy: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plain = {each["name"]: each["annotation"] for each in parameters if each.get("annotation") in _NO_FILES}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            takes = [each["name"] for each in parameters if each.get("is_file")]
            hint = f"; write -f {takes[0]}={text}" if len(takes) == 1 and not equals else ""
            raise click.UsageError(f"-f takes NAME=PATH, and {text!r} is none{hint}.")
        if name in found or name in args:
            raise click.UsageError(f"{name} is given twice.")
        if name in plain:
            raise click.UsageError(f"{name} is of the type {plain[name]}, and takes no file; write {name}=VALUE.")
        from p2pqueue.payload.file import File

        found[name] = File(path, copy=copy)
    return found


def _options(given: dict[str, Any]) -> EnqueueOptions:
    from datetime import UTC, datetime

    from p2pqueue.jobs.options import EnqueueOptions

    run_at = given.pop("run_at")
    if run_at is not None:
        given["run_at"] = datetime.fromtimestamp(run_at / 1000, UTC)
    return EnqueueOptions().changed({name: value for name, value in given.items() if value is not None})


def _prepare(
    access: Access, task: str, args: dict[str, Any], known: dict[str, Any] | None, queue: str | None, options: EnqueueOptions
) -> NewJob:
    from p2pqueue.jobs.enqueueing import prepare
    from p2pqueue.jobs.options import TaskOptions

    said = known or {}
    declared = TaskOptions(queue=queue or said.get("queue") or "default", title=said.get("title"), priority=said.get("priority") or 0)
    return prepare(access, task, args, options=options, declared=declared)
