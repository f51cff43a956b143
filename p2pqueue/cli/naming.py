"""How do people name jobs, statuses and tasks, and how does their shell complete those names?

Completion never fails and never speaks: a home that can't be read has nothing to offer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli.invocation import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from p2pqueue.jobs.rows import JobRow

STATUSES = ("queued", "running", "paused", "succeeded", "failed", "cancelled")
_LONGEST_NAME = 255  # characters
_OFFERED = 50  # names that completion offers at most


def status(text: str) -> str:
    """A status as it was typed; `canceled` is accepted."""
    folded = text.strip().lower()
    folded = "cancelled" if folded == "canceled" else folded
    if folded not in STATUSES:
        raise click.BadParameter(f"{text!r} is no status; there are {', '.join(STATUSES)}.")
    return folded


def name(text: str) -> str:
    """The name of a task, a queue or a device: one line of text that can be shown."""
    if not text or len(text) > _LONGEST_NAME or not text.isprintable():  # a lone surrogate isn't printable either
        raise click.BadParameter(f"{text[:80]!r} is no name; a name is 1 to {_LONGEST_NAME} characters that can be shown.")
    return text


def find_all(connection: sqlite3.Connection, prefixes: tuple[str, ...]) -> list[JobRow]:
    """The jobs that these ids or prefixes name, each once, in the order typed."""
    from p2pqueue.jobs import rows

    found = {row.id: row for row in (rows.find(connection, prefix) for prefix in prefixes)}
    return list(found.values())


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids that begin so, the newest first, with what they are."""

    def query(connection: sqlite3.Connection) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from p2pqueue.cli.output import plain

        found = connection.execute(
            "SELECT id, status, task, coalesce(title, '') FROM jobs WHERE id >= ? AND id < ? AND live = 1 AND status IS NOT NULL "
            "ORDER BY id DESC LIMIT ?",
            (incomplete.lower(), incomplete.lower() + "\U0010ffff", _OFFERED),
        )
        return [CompletionItem(each[0], help=plain(" ".join(each[1:]).strip())) for each in found]

    return complete_from_rows(context, query)


def complete_task(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tasks that begin so."""

    def query(connection: sqlite3.Connection) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = connection.execute("SELECT name FROM tasks ORDER BY name").fetchall()
        return [CompletionItem(name) for (name,) in found if name.startswith(incomplete)]

    return complete_from_rows(context, query)


def complete_status(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Statuses that begin so."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in STATUSES if name.startswith(incomplete.lower())]


def complete_from_rows(context: click.Context, query: Callable[[sqlite3.Connection], list[CompletionItem]]) -> list[CompletionItem]:
    """What a query on this home's rows offers; nothing where they can't be read."""
    from p2pqueue.cli.opening import reading
    from p2pqueue.errors import P2PQueueError

    invocation = context.find_object(Invocation) or Invocation()
    root: Any = context.find_root().params
    try:
        with reading(Invocation(home_path=invocation.home_path or root.get("home")).home) as connection:
            return query(connection)
    except (P2PQueueError, sqlite3.Error, OSError):
        return []
