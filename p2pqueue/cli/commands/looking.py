"""What is there: which jobs, which tasks?"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_status, complete_task, name, status
from p2pqueue.cli.opening import node_pid, open_reader, reading, words
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.jobs.rows import JobFilter

LOOK_AGAIN = 0.2  # seconds between two looks at whether the database changed
REDRAW = 1.0  # seconds after which times and reasons are drawn anew on a terminal


@click.command(
    "list",
    cls=Command,
    help="List jobs: live ones first, then the newest.",
    examples="""
    p2pqueue list
    p2pqueue list --status failed --since 2d
    p2pqueue list --task transcode --watch
    p2pqueue list --json | jq -r '.jobs[].id'
    """,
)
@click.option("--status", type=status, metavar="STATUS", shell_complete=complete_status, help="Only jobs of this status.")
@click.option("--queue", type=name, metavar="Q", help="Only jobs of this queue.")
@click.option("--task", type=name, metavar="T", shell_complete=complete_task, help="Only jobs of this task.")
@click.option("--device", type=name, metavar="D", help="Only jobs that this device, by label or the beginning of its id, runs or ran.")
@click.option("--since", type=quantities.since, metavar="WHEN", help="Only jobs enqueued since: 2h, 3d (before now), or a time.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), metavar="N", default=50, show_default=True, help="At most so many.")
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@pass_invocation
def list_command(invocation: Invocation, /, watch: bool, **wanted: Any) -> None:
    """Lists jobs."""
    from p2pqueue.jobs.rows import JobFilter

    with reading(invocation.home) as connection:
        chosen = JobFilter(**wanted | {"device": _device(connection, wanted["device"])})
        if not watch:
            _show_list(invocation, connection, chosen)
            return
    connection = open_reader(invocation.home)
    try:
        for _ in _changes(connection, redraw=output.on_terminal() and not invocation.json):
            with words():
                connection.execute("BEGIN")
                try:
                    _show_list(invocation, connection, chosen, again=True)
                finally:
                    connection.execute("ROLLBACK")
    finally:
        connection.close()


def _device(connection: sqlite3.Connection, typed: str | None) -> str | None:
    """The id of the device that is meant; a label that several have stands for them all. Raises `NoSuchDevice`."""
    if typed is None:
        return None
    from p2pqueue.errors import AmbiguousId
    from p2pqueue.identity import members

    known = members.read(connection)
    try:
        return members.find(known, typed).device_id
    except AmbiguousId:
        if all(each.label != typed for each in known):
            raise
        return typed


def _changes(connection: sqlite3.Connection, *, redraw: bool) -> Iterator[None]:
    """Yields at once, and then whenever another process committed; with `redraw` every second as well."""
    seen, drawn = None, 0.0
    while True:
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != seen or (redraw and time.monotonic() - drawn > REDRAW):
            seen, drawn = version, time.monotonic()
            yield
        time.sleep(LOOK_AGAIN)


def _show_list(invocation: Invocation, connection: sqlite3.Connection, wanted: JobFilter, *, again: bool = False) -> None:
    from p2pqueue.cli.listing import EMPTY, Listing

    listing = Listing(connection, wanted, node_running=node_pid(invocation.home) is not None)
    if invocation.json:
        output.document(listing.document())
        return
    if again and output.on_terminal():
        click.echo("\x1b[H\x1b[2J", nl=False)
    if not listing.jobs:
        invocation.say(EMPTY)
        return
    for text in listing.lines(painted=True):
        output.line(text)
    if again:
        output.line()


@click.command(
    "tasks",
    cls=Command,
    help="List the tasks that a node here has had, and those of linked devices, with the devices that have them now.",
    examples="""
    p2pqueue tasks
    p2pqueue tasks --json
    """,
)
@pass_invocation
def tasks_command(invocation: Invocation) -> None:
    """Lists the tasks that this device knows."""
    from p2pqueue.jobs.local import ability, known_tasks, others, this_device
    from p2pqueue.jobs.waiting import EXEC_TASK

    with reading(invocation.home) as connection:
        tasks = known_tasks(connection)
        here = this_device(connection)
        known = ability(connection) if node_pid(invocation.home) is not None else None
        around = others(connection)[0] if known is not None else {}
    running = known.tasks if known is not None else frozenset()
    able = {**({here: known} if known is not None and here is not None else {}), **around}
    names = set().union(*(each.tasks for each in around.values())) - tasks.keys() - {EXEC_TASK}
    tasks |= {name: {"name": name} for name in sorted(names)}
    offered = {name: [(device, each.label) for device, each in able.items() if name in each.tasks] for name in tasks}
    if invocation.json:
        listed = [
            {**task, "running": name in running, "devices": [{"id": device, "label": label} for device, label in offered[name]]}
            for name, task in tasks.items()
        ]
        output.document({"schema": 1, "tasks": listed})
        return
    if not tasks:
        invocation.say("no node here has had a task yet; start one with `p2pqueue run APP`")
        return
    lines = [
        (name, ", ".join(label for _, label in offered[name]) or "–", task.get("queue", ""), _signature(task), _first_line(task.get("doc")))
        for name, task in tasks.items()
    ]
    for text in output.table(("TASK", "NOW ON", "QUEUE", "PARAMETERS", "DOES"), [[plain(cell) for cell in line] for line in lines]):
        output.line(text)


def _signature(task: dict[str, Any]) -> str:
    return " ".join(_parameter(each) for each in task.get("parameters", ()))


def _parameter(each: dict[str, Any]) -> str:
    kind = each.get("annotation") or ""
    default = f"={each['default']}" if each.get("default") is not None else ""
    return f"{each['name']}{':' + kind if kind else ''}{default}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n", 1)[0]
