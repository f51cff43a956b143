"""Which jobs does a program ask for?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import ArgumentError
from p2pqueue.jobs import rows
from p2pqueue.jobs.backoff import seconds
from p2pqueue.jobs.handle import Job

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access


def find(access: Access, prefix: str) -> Job[Any]:
    """The job whose id begins so. Raises `NoSuchJob` and `AmbiguousId`."""
    return Job(access, access.read(_finding(prefix)))


async def afind(access: Access, prefix: str) -> Job[Any]:
    """As `find`, without blocking the loop."""
    return Job(access, await access.aread(_finding(prefix)))


def select(access: Access, wanted: rows.JobFilter) -> list[Job[Any]]:
    """The jobs that match, live ones first, then the newest."""
    return [Job(access, row.id) for row in access.read(lambda connection: rows.select(connection, wanted))]


async def aselect(access: Access, wanted: rows.JobFilter) -> list[Job[Any]]:
    """As `select`, without blocking the loop."""
    return [Job(access, row.id) for row in await access.aread(lambda connection: rows.select(connection, wanted))]


def counts(access: Access) -> dict[str, int]:
    """How many jobs of the space have each status."""
    return access.read(rows.counts)


def asked(
    queue: str, *, status: str | None, task: str | None, device: str | None, since: datetime | float | timedelta | None, limit: int | None
) -> rows.JobFilter:
    """The filter that was asked for. Raises `ArgumentError` for a question that can't be answered."""
    status = "cancelled" if status == "canceled" else status
    if status is not None and status not in rows.STATUSES:
        raise ArgumentError(f"there is no status {status!r}; there are {', '.join(rows.STATUSES)}")
    if limit is not None and limit < 0:
        raise ArgumentError(f"a limit is 0 or more, not {limit}; None gives all")
    after = None if since is None else int(_moment(since).timestamp() * 1000)
    return rows.JobFilter(status=status, queue=queue, task=task, device=device, since=after, limit=limit)


def _moment(since: datetime | float | timedelta) -> datetime:
    if not isinstance(since, datetime):
        return datetime.now(UTC) - timedelta(seconds=seconds(since))
    if since.utcoffset() is None:
        raise ArgumentError("since needs a time zone, as in datetime.now(timezone.utc) - timedelta(hours=1)")
    return since


def _finding(prefix: str) -> Callable[[sqlite3.Connection], str]:
    return lambda connection: rows.find(connection, prefix).id
