"""What goes when jobs have gone: their logs, their files, and what was remembered of their inputs."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from p2pqueue.home import Home
from p2pqueue.jobs.local import live_capabilities

if TYPE_CHECKING:
    from p2pqueue.payload.shelf import Shelf


@dataclass(frozen=True)
class Needed:
    """What jobs still need: the manifests of files, and the folders of logs."""

    capabilities: frozenset[str]
    logs: frozenset[str]


def needed(connection: sqlite3.Connection, log_folders: list[str]) -> Needed:
    """What the rows of this replica still name."""
    query = "SELECT id FROM jobs WHERE live = 1 AND id IN (SELECT value FROM json_each(?))"
    logs = frozenset(job_id for (job_id,) in connection.execute(query, (json.dumps(log_folders),)))
    return Needed(frozenset(live_capabilities(connection)), logs)


def log_folders(home: Home) -> list[str]:
    """The jobs that have a folder of logs here."""
    try:
        return os.listdir(home.logs_dir)
    except FileNotFoundError:
        return []


def tidy(home: Home, shelf: Shelf, folders: list[str], still: Needed) -> int:
    """Removes what nothing needs any more; gives the bytes of files that were freed."""
    for name in folders:
        if name not in still.logs:
            shutil.rmtree(home.logs_dir / name, ignore_errors=True)
    return shelf.sweep(still.capabilities)
