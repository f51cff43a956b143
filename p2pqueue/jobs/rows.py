"""What does this replica know of its jobs? Reading only, on any SQLite connection to it.

Every command that lists jobs imports this. Its values are named tuples, since a dataclass takes longer to define than a
list to print, and their annotations are no texts (as `from __future__ import annotations` makes them): typing compiles
each of those.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from p2pqueue.errors import AmbiguousId, NoSuchJob
from p2pqueue.jobs.local import ability, others, task_names, this_device
from p2pqueue.jobs.waiting import Demand, Situation, needs_in, reason

STATUSES = ("queued", "running", "paused", "succeeded", "failed", "cancelled")
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


class JobRow(NamedTuple):
    """One job as its row shows it. Times are milliseconds UTC, durations seconds."""

    id: str
    queue: str
    task: str
    title: str | None
    priority: int
    status: str
    progress: float
    phase: str | None
    attempt: int
    max_attempts: int | None
    claim: int
    worker_id: str | None
    worker_label: str | None
    created_at: int
    run_at: int | None
    claimed_at: int | None
    heartbeat_at: int | None
    finished_at: int | None
    retry_at: int | None
    updated_at: int
    result_id: str | None
    error: str | None
    timeout: float | None
    stall_timeout: float | None
    backoff: str | None
    retry_on: str | None
    needs: str | None
    unique_key: str | None
    on_device: str | None
    group_id: str | None
    owner: str | None
    enqueued_by: str | None
    input_name: str | None
    input_size: int | None
    input_manifest: str | None
    held: int
    state_status: str | None
    generation: int
    problem: str | None
    input_here: int

    @property
    def ended(self) -> bool:
        """Says whether the job has succeeded, failed or been cancelled."""
        return self.status in TERMINAL

    @property
    def demand(self) -> Demand:
        """What this job asks of a worker."""
        ready = self.input_size is None or self.input_manifest is not None or bool(self.input_here)
        return Demand(self.task, needs_in(self.needs), self.input_size, ready)


class RunRow(NamedTuple):
    """One attempt of a job. Times are milliseconds UTC, `duration` seconds."""

    id: str
    job_id: str
    attempt: int
    worker_id: str | None
    worker_label: str | None
    started_at: int
    ended_at: int | None
    status: str
    result: bytes | None
    output_manifest: str | None
    error: str | None
    traceback: str | None
    log_tail: str | None
    duration: float | None
    trigger: str | None
    metadata: bytes | None

    @property
    def log_key(self) -> tuple[str, int, int]:
        """The (job, generation, claim) under which the attempt's log file lies."""
        job_id, generation, claim, _ = self.id.rsplit("/", 3)
        return job_id, int(generation), int(claim)

    @property
    def generation(self) -> int | None:
        """The life of the job and how often it had been retried when this attempt began; None where a device wrote an odd id."""
        try:
            return self.log_key[1]
        except ValueError:
            return None


class JobFilter(NamedTuple):
    """Which jobs are asked for; None leaves a column open. `since` is milliseconds UTC."""

    status: str | None = None
    queue: str | None = None
    task: str | None = None
    device: str | None = None
    since: int | None = None
    limit: int | None = 50


_EVERY = JobFilter()
_STORED = {
    "queue": "coalesce(queue, '')",  # any device may have written a row, with nothing in these
    "task": "coalesce(task, '')",
    "created_at": "coalesce(created_at, 0)",
    "priority": "coalesce(priority, 0)",
    "attempt": "coalesce(attempt, 0)",
    "claim": "coalesce(claim, 0)",
    "held": "coalesce(held, 0)",
    "phase": "phase",
    "input_manifest": "CASE WHEN input_counts THEN input_manifest END",
    "input_name": "CASE WHEN input_counts THEN input_name END",
    "input_size": "CASE WHEN input_counts THEN input_size END",
    "generation": "coalesce(state_generation, spec_generation)",
    "problem": "(SELECT max(problem) FROM inputs WHERE inputs.job_id = jobs.id)",
    "input_here": "EXISTS (SELECT 1 FROM inputs WHERE inputs.job_id = jobs.id AND parameter <> '')",
}
_JOB_COLUMNS = ", ".join(_STORED.get(name, name) for name in JobRow._fields)
_STORED_OF_RUN = {"attempt": "coalesce(attempt, 0)", "started_at": "coalesce(started_at, 0)", "status": "coalesce(status, '')"}
_RUN_COLUMNS = ", ".join(_STORED_OF_RUN.get(name, name) for name in RunRow._fields)
_LIVE_FIRST = "CASE WHEN status IN ('succeeded', 'failed', 'cancelled') THEN 1 ELSE 0 END, created_at DESC, id DESC"


def get(connection: sqlite3.Connection, job_id: str) -> JobRow | None:
    """The job of that id, or None."""
    row = connection.execute(f"SELECT {_JOB_COLUMNS} FROM jobs WHERE id = ? AND live = 1 AND status IS NOT NULL", (job_id,)).fetchone()
    return JobRow(*row) if row else None


def find(connection: sqlite3.Connection, prefix: str) -> JobRow:
    """The one job whose id begins with `prefix`.

    Raises `NoSuchJob` and `AmbiguousId`.
    """
    query = f"SELECT {_JOB_COLUMNS} FROM jobs WHERE id >= ? AND id < ? AND live = 1 AND status IS NOT NULL LIMIT 3"
    folded = prefix.strip().lower()
    found = connection.execute(query, (folded, folded + "\U0010ffff")).fetchall() if folded else []
    exact = [row for row in found if row[0] == folded]
    if len(exact or found) == 1:
        return JobRow(*(exact or found)[0])
    if not found:
        raise NoSuchJob(f"no job has the id {prefix!r}; `p2pqueue list` shows them")
    raise AmbiguousId(f"several jobs begin with {prefix!r} ({', '.join(row[0] for row in found)} …); type more of the id")


def select(connection: sqlite3.Connection, wanted: JobFilter = _EVERY) -> list[JobRow]:
    """The jobs that match, live ones first, then the newest."""
    clauses, values = _conditions(wanted)
    limit = "" if wanted.limit is None else f" LIMIT {int(wanted.limit)}"
    if wanted.status is not None or wanted.limit is None:
        query = f"SELECT {_JOB_COLUMNS} FROM jobs WHERE {clauses} ORDER BY {_LIVE_FIRST}{limit}"
        return [JobRow(*row) for row in connection.execute(query, values)]
    return _live_then_ended(connection, clauses, values, wanted.limit)


def _live_then_ended(connection: sqlite3.Connection, clauses: str, values: list[Any], limit: int) -> list[JobRow]:
    # A query for each status, along jobs_by_status: one sort over a million ended jobs takes seconds.
    found: list[JobRow] = []
    for statuses in (("queued", "running", "paused"), ("succeeded", "failed", "cancelled")):
        merged: list[JobRow] = []
        for status in statuses:
            query = f"SELECT {_JOB_COLUMNS} FROM jobs WHERE status = ? AND {clauses} ORDER BY created_at DESC, id DESC LIMIT ?"
            merged += (JobRow(*row) for row in connection.execute(query, [status, *values, limit - len(found)]))
        found += sorted(merged, key=lambda row: (row.created_at, row.id), reverse=True)[: limit - len(found)]
    return found


def _conditions(wanted: JobFilter) -> tuple[str, list[Any]]:
    clauses = ["live = 1", "status IS NOT NULL"]
    values: list[Any] = []
    for column, value in (("status", wanted.status), ("queue", wanted.queue), ("task", wanted.task)):
        if value is not None:
            clauses.append(f"{column} = ?")
            values.append(value)
    if wanted.device is not None:
        clauses.append("(worker_id = ? OR worker_label = ?)")
        values += [wanted.device, wanted.device]
    if wanted.since is not None:
        clauses.append("created_at >= ?")
        values.append(wanted.since)
    return " AND ".join(clauses), values


def runs_of(connection: sqlite3.Connection, job_id: str) -> list[RunRow]:
    """The attempts of a job, the first first; not those of earlier jobs of the same unique key."""
    from p2pqueue.replica.stamp import RETRY_BITS  # lists need none of it

    query = f"SELECT {_RUN_COLUMNS} FROM runs WHERE id > ? AND id < ?"  # the ids begin with the job's
    found = [RunRow(*row) for row in connection.execute(query, (f"{job_id}/", f"{job_id}0"))]
    job = connection.execute("SELECT spec_generation FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if job is not None and job[0] is not None:
        found = [run for run in found if run.generation is None or run.generation >> RETRY_BITS == job[0] >> RETRY_BITS]
    return sorted(found, key=_claimed_in_order)


def _claimed_in_order(run: RunRow) -> tuple[int, int, int]:
    if run.generation is None:
        return 0, 0, run.started_at
    return run.generation, run.log_key[2], run.started_at  # not by the clock alone: it can be set back


def run(connection: sqlite3.Connection, run_id: str) -> RunRow | None:
    """One attempt by its id (`result_id` of a job that succeeded)."""
    row = connection.execute(f"SELECT {_RUN_COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()
    return RunRow(*row) if row else None


def spec_of(connection: sqlite3.Connection, job_id: str) -> tuple[bytes, bytes]:
    """The arguments and the options of a job, as packed."""
    row = connection.execute("SELECT args, options FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        raise NoSuchJob(f"no job has the id {job_id!r}")
    return row[0], row[1]


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """How many jobs have each status, from the counters."""
    found = dict.fromkeys(STATUSES, 0)
    found.update(connection.execute("SELECT status, n FROM counts WHERE tbl = 'jobs' AND n > 0 AND status IS NOT NULL"))
    return found


def why(connection: sqlite3.Connection, row: JobRow, *, node_running: bool, now: int | None = None) -> str | None:
    """Why the job does not run now, or is not seen to, in one sentence; None where it runs or has ended."""
    return whys(connection, [row], node_running=node_running, now=now)[0]


def whys(connection: sqlite3.Connection, found: Iterable[JobRow], *, node_running: bool, now: int | None = None) -> list[str | None]:
    """For each of these jobs what `why` says."""
    at = int(time.time() * 1000) if now is None else now
    found = list(found)
    told = _waiting(connection, found, node_running=node_running, at=at)
    if node_running and any(row.status == "running" for row in found):
        here, known = this_device(connection), others(connection)[0]
        for index, row in enumerate(found):
            if row.status == "running" and row.worker_id != here and row.worker_id not in known:
                told[index] = f"{row.worker_label or 'its worker'} is out of reach: it goes on there, or elsewhere if it stays silent"
    return told


def _waiting(connection: sqlite3.Connection, found: list[JobRow], *, node_running: bool, at: int) -> list[str | None]:
    situations = [_situation(row) for row in found]
    if not any(situation.status == "queued" for situation in situations):
        return [reason(situation, None, at) for situation in situations]
    names = task_names(connection)
    if not node_running:
        return [reason(situation, None, at, known_tasks=names) for situation in situations]
    known, (around, left) = ability(connection), others(connection)
    return [
        reason(situation, known, at, known_tasks=names, others=around, left=left.get(row.id) or left.get(""))  # "": all jobs
        for row, situation in zip(found, situations, strict=True)
    ]


def _situation(row: JobRow) -> Situation:
    shared = row.input_size is None or row.input_manifest is not None
    return Situation(row.status, row.demand, row.run_at, row.retry_at, row.error, row.problem, shared, row.enqueued_by)


def with_why(connection: sqlite3.Connection, ids: Iterable[str], *, node_running: bool) -> list[tuple[JobRow | None, str | None]]:
    """The jobs of these ids, None for one that is not there, each with why it waits if it does."""
    found = [get(connection, job_id) for job_id in ids]
    waits = ("queued", "paused")
    return [(row, why(connection, row, node_running=node_running) if row and row.status in waits else None) for row in found]


def statuses(connection: sqlite3.Connection, ids: Iterable[str]) -> Iterator[tuple[str, str | None, int, int, str | None, float]]:
    """(id, status or None where deleted, generation, claim, worker, progress) of those jobs that have a row."""
    yield from connection.execute(
        "SELECT id, CASE WHEN live = 1 THEN status END, coalesce(state_generation, spec_generation), coalesce(claim, 0), worker_id, "
        "progress FROM jobs WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
