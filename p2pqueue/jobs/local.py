"""What does this device remember of its own jobs that never replicates?

Where the originals of inputs lie, which tasks a node here has had, what the running node can do, and how far transfers
are limited.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from p2pqueue.jobs.waiting import Ability

LOCAL_TABLES = (
    # `problem`: what stood in the way of the last try to seal or run it, in words; without a parameter of a job of another device.
    """CREATE TABLE IF NOT EXISTS inputs (
        job_id TEXT NOT NULL, parameter TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL,
        path TEXT, capability TEXT, mtime_ns INTEGER, problem TEXT,
        PRIMARY KEY (job_id, parameter)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS inputs_unsealed ON inputs(job_id) WHERE capability IS NULL",
    # What was shared without a job: kept until it is removed.
    "CREATE TABLE IF NOT EXISTS shared (capability TEXT PRIMARY KEY, since INTEGER NOT NULL) WITHOUT ROWID",
    # What a person keeps on this device, whatever becomes of the jobs that name it.
    "CREATE TABLE IF NOT EXISTS pins (capability TEXT PRIMARY KEY, since INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS tasks (name TEXT PRIMARY KEY, queue TEXT NOT NULL, description TEXT NOT NULL) WITHOUT ROWID",
    # What this device put on an origin, by the file that it belongs to; see `peers/retiring.py`.
    """CREATE TABLE IF NOT EXISTS uploaded (
        origin TEXT NOT NULL, root BLOB NOT NULL, address BLOB NOT NULL, PRIMARY KEY (origin, root, address)) WITHOUT ROWID""",
    # Claims that the rows of their jobs do not tell yet; see `workers/claiming/begun.py`.
    "CREATE TABLE IF NOT EXISTS begun (one INTEGER PRIMARY KEY CHECK (one = 1), claims BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS worker (one INTEGER PRIMARY KEY CHECK (one = 1), ability TEXT NOT NULL)",
    # What was set of the transfers of this home's nodes; see `payload/limiting.py`.
    "CREATE TABLE IF NOT EXISTS limits (one INTEGER PRIMARY KEY CHECK (one = 1), kept TEXT NOT NULL)",
    # What the workers of other devices can do, and which jobs are left to one of them; see `workers/claiming/around.py`.
    "CREATE TABLE IF NOT EXISTS around (one INTEGER PRIMARY KEY CHECK (one = 1), others TEXT NOT NULL, left_to TEXT NOT NULL)",
)


class ProgramsOnPath:
    """The programs that can be started here by their bare names. One that was found once counts as found."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def __contains__(self, name: object) -> bool:
        if name in self._found:
            return True
        import shutil  # which each command that lists jobs would pay for

        if not isinstance(name, str) or shutil.which(name) is None:
            return False
        self._found.add(name)
        return True


def remember_shared(connection: sqlite3.Connection, capability: str, now: int) -> None:
    """Keeps a file that was shared without a job from being swept away."""
    connection.execute("INSERT OR IGNORE INTO shared (capability, since) VALUES (?, ?)", (capability, now))


def keep_limits(connection: sqlite3.Connection, limits: Mapping[str, Any]) -> None:
    """Keeps what was set of the transfers of this home."""
    connection.execute("INSERT OR REPLACE INTO limits (one, kept) VALUES (1, ?)", (json.dumps(limits),))


def kept_limits(connection: sqlite3.Connection) -> dict[str, Any]:
    """What was set of the transfers of this home, which no program of this version need have opened for writing."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'limits'").fetchone() is None:
        return {}
    row = connection.execute("SELECT kept FROM limits").fetchone()
    found: dict[str, Any] = {} if row is None else json.loads(row[0])
    return found


def forget_inputs(connection: sqlite3.Connection) -> None:
    """Forgets the inputs of jobs that are gone."""
    connection.execute("DELETE FROM inputs WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = inputs.job_id AND live = 1)")


def live_capabilities(connection: sqlite3.Connection) -> set[str]:
    """The manifests of all files that a job, a run or a person still names."""
    query = """
        SELECT input_manifest FROM jobs WHERE input_manifest IS NOT NULL AND live = 1
        UNION SELECT output_manifest FROM runs WHERE output_manifest IS NOT NULL
        UNION SELECT capability FROM inputs WHERE capability IS NOT NULL
        UNION SELECT capability FROM shared
        UNION SELECT capability FROM pins"""
    return {capability for (capability,) in connection.execute(query)}


def remember_tasks(connection: sqlite3.Connection, descriptions: list[dict[str, Any]]) -> None:
    """Keeps what a node's tasks look like, so that `enqueue` and `tasks` know them without a node."""
    connection.executemany(
        "INSERT OR REPLACE INTO tasks (name, queue, description) VALUES (?, ?, ?)",
        [(each["name"], each["queue"], json.dumps(each)) for each in descriptions],
    )


def known_tasks(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """The descriptions of all tasks that a node here has had, by name."""
    return {name: json.loads(text) for name, text in connection.execute("SELECT name, description FROM tasks ORDER BY name")}


def task_names(connection: sqlite3.Connection) -> set[str]:
    """The names of all tasks that a node here has had."""
    return {name for (name,) in connection.execute("SELECT name FROM tasks")}


def remember_ability(connection: sqlite3.Connection, known: Ability) -> None:
    """Keeps what the running node can do."""
    connection.execute("INSERT OR REPLACE INTO worker (one, ability) VALUES (1, ?)", (json.dumps(_as_map(known)),))


def ability(connection: sqlite3.Connection) -> Ability | None:
    """What the node that runs, or ran last, on this home can do."""
    row = connection.execute("SELECT ability FROM worker").fetchone()
    return None if row is None else _from_map(json.loads(row[0]))._replace(programs=ProgramsOnPath())


def this_device(connection: sqlite3.Connection) -> str | None:
    """The id of the device whose database this is."""
    found = connection.execute("SELECT device FROM authors WHERE author = (SELECT lower(hex(author)) FROM incarnation)").fetchone()
    return found[0] if found else None


def remember_others(connection: sqlite3.Connection, others: Mapping[str, Ability], left: Mapping[str, str]) -> None:
    """Keeps what the workers of other devices can do, by their ids, and why jobs wait that are left to one of them."""
    told = json.dumps({device: _as_map(each) for device, each in others.items()}), json.dumps(dict(left))
    connection.execute("INSERT OR REPLACE INTO around (one, others, left_to) VALUES (1, ?, ?)", told)


def others(connection: sqlite3.Connection) -> tuple[dict[str, Ability], dict[str, str]]:
    """What the running node knows of other workers, as `remember_others` takes it."""
    row = connection.execute("SELECT others, left_to FROM around").fetchone()
    if row is None:
        return {}, {}
    return {device: _from_map(each) for device, each in json.loads(row[0]).items()}, json.loads(row[1])


def _as_map(known: Ability) -> dict[str, Any]:
    return {
        "label": known.label,
        "tasks": sorted(known.tasks),
        "tags": sorted(known.tags),
        "max_input": known.max_input,
        "max_input_by_task": dict(known.max_input_by_task),
        "needs_by_task": {task: sorted(needs) for task, needs in known.needs_by_task.items()},
        "allow_exec": known.allow_exec,
        "exec_tasks": sorted(known.exec_tasks),
        "takes": known.takes,
        "trouble": known.trouble,
    }


def _from_map(known: dict[str, Any]) -> Ability:
    return Ability(
        label=known["label"],
        tasks=frozenset(known["tasks"]),
        tags=frozenset(known["tags"]),
        max_input=known["max_input"],
        max_input_by_task=known["max_input_by_task"],
        needs_by_task={task: frozenset(needs) for task, needs in known["needs_by_task"].items()},
        allow_exec=known["allow_exec"],
        exec_tasks=frozenset(known["exec_tasks"]),
        takes=known.get("takes", True),
        trouble=known.get("trouble"),
    )
