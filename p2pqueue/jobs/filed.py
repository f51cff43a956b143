"""Which files do jobs and people of this device name, and which do people keep?"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

NAMED_BY_JOBS: Final = """
SELECT input_manifest, id, status FROM jobs WHERE input_manifest IS NOT NULL AND live = 1
UNION SELECT inputs.capability, jobs.id, jobs.status
    FROM inputs JOIN jobs ON jobs.id = inputs.job_id WHERE inputs.capability IS NOT NULL AND live = 1
UNION SELECT runs.output_manifest, jobs.id, jobs.status
    FROM runs JOIN jobs ON jobs.id = runs.job_id WHERE runs.output_manifest IS NOT NULL AND live = 1
"""
MOST_NAMED: Final = 100  # jobs that are told of one file
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})


def named_by_jobs(connection: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    """Ids and status of the jobs that name each file, by its manifest."""
    found: dict[str, list[tuple[str, str]]] = {}
    for capability, job_id, status in connection.execute(NAMED_BY_JOBS):
        jobs = found.setdefault(capability, [])
        if len(jobs) < MOST_NAMED:
            jobs.append((job_id, status))
    return found


def shared(connection: sqlite3.Connection) -> dict[str, int]:
    """What was shared without a job, and since when, in milliseconds since 1970."""
    return dict(connection.execute("SELECT capability, since FROM shared").fetchall())


def pinned(connection: sqlite3.Connection) -> dict[str, int]:
    """What is pinned, and since when."""
    try:
        return dict(connection.execute("SELECT capability, since FROM pins").fetchall())
    except sqlite3.OperationalError:  # a home that no program of this version has opened for writing
        return {}


def pin(connection: sqlite3.Connection, capabilities: Collection[str], now: int) -> None:
    """Keeps files on this device until they are unpinned."""
    connection.executemany("INSERT OR IGNORE INTO pins (capability, since) VALUES (?, ?)", ((each, now) for each in capabilities))


def unpin(connection: sqlite3.Connection, capabilities: Collection[str]) -> None:
    """Takes pins back."""
    connection.executemany("DELETE FROM pins WHERE capability = ?", ((each,) for each in capabilities))


def forget(connection: sqlite3.Connection, capability: str) -> None:
    """Forgets that a file was shared or pinned."""
    connection.execute("DELETE FROM shared WHERE capability = ?", (capability,))
    connection.execute("DELETE FROM pins WHERE capability = ?", (capability,))
