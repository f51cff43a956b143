"""How does a job look in JSON and to people?

JSON carries the column names of the jobs table, times in RFC 3339, and `result`, of the run that `result_id` names.
"""

from __future__ import annotations

import json
import sqlite3
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any

from p2pqueue.cli import quantities
from p2pqueue.jobs import local, rows
from p2pqueue.jobs.rows import JobRow, RunRow

SCHEMA = 1  # of every object that a command prints; a change that breaks readers raises it
_TIMES = frozenset(
    {"created_at", "run_at", "claimed_at", "heartbeat_at", "finished_at", "retry_at", "updated_at", "started_at", "ended_at"}
)
_JSON_TEXT = frozenset({"backoff", "retry_on", "needs"})
_INTERNAL = frozenset({"state_status", "generation", "problem", "input_here", "metadata"})
_JOB_FIELDS = tuple(name for name in JobRow._fields if name not in _INTERNAL)
_RUN_FIELDS = tuple(name for name in RunRow._fields if name not in _INTERNAL)


def job_document(connection: sqlite3.Connection, row: JobRow, *, why: str | None = None) -> dict[str, Any]:
    """A job as JSON."""
    document = {name: _value(name, getattr(row, name)) for name in _JOB_FIELDS}
    document["result"] = result_of(connection, row)
    document["why"] = why
    return document


def lone_document(connection: sqlite3.Connection, row: JobRow, *, why: str | None) -> dict[str, Any]:
    """A job as JSON, where it is all that is printed."""
    return {"schema": SCHEMA, **job_document(connection, row, why=why)}


def why_waits(connection: sqlite3.Connection, row: JobRow, *, node_running: bool) -> str | None:
    """Why the job does not go on now, in one sentence; None where it runs or has ended."""
    return whys_wait(connection, [row], node_running=node_running)[0]


def whys_wait(connection: sqlite3.Connection, found: Sequence[JobRow], *, node_running: bool) -> list[str | None]:
    """For each of these jobs what `why_waits` says."""
    whys = rows.whys(connection, found, node_running=node_running)
    if not node_running and any(row.status == "running" for row in found):
        here = local.this_device(connection)
        for index, row in enumerate(found):
            if row.status == "running" and row.worker_id == here:
                whys[index] = "the node that ran it is gone: it goes on when one starts here, with `p2pqueue run`"
    return whys


def run_document(run: RunRow) -> dict[str, Any]:
    """An attempt as JSON."""
    document = {name: _value(name, getattr(run, name)) for name in _RUN_FIELDS}
    document["result"] = unpacked(run.result)
    return document


def result_of(connection: sqlite3.Connection, row: JobRow) -> Any:
    """The result of a job, as JSON can carry it; None where there is none yet."""
    run = rows.run(connection, row.result_id) if row.result_id else None
    return unpacked(run.result) if run is not None else None


def unpacked(data: bytes | None) -> Any:
    """Packed data as JSON can carry it: times as RFC 3339, bytes as base64."""
    if data is None:
        return None
    import msgpack

    try:
        return jsonable(msgpack.unpackb(data, raw=False, strict_map_key=False, timestamp=3))
    except ValueError:
        return None


def jsonable(value: Any) -> Any:
    """A value that JSON can carry, in the place of one that MessagePack carried."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(jsonable(key)): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [jsonable(inner) for inner in value]
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode()
    if isinstance(value, float) and not -1.8e308 < value < 1.8e308:
        return None  # JSON has neither NaN nor infinities
    if hasattr(value, "isoformat"):
        return quantities.rfc3339(round(value.timestamp() * 1000))
    return value


def short_ids(connection: sqlite3.Connection, ids: list[str]) -> dict[str, str]:
    """For each id the shortest beginning that names one job and is likely to do so in future: at least its time."""
    return {job_id: job_id[: max(_TIME_LENGTH, _telling(connection, job_id))] for job_id in ids}


_TIME_LENGTH = 13  # characters of an id that carry its milliseconds: xxxxxxxx-xxxx


def _telling(connection: sqlite3.Connection, job_id: str) -> int:
    before = connection.execute("SELECT max(id) FROM jobs WHERE id < ?", (job_id,)).fetchone()[0]
    after = connection.execute("SELECT min(id) FROM jobs WHERE id > ?", (job_id,)).fetchone()[0]
    return 1 + max(_common(job_id, before or ""), _common(job_id, after or ""))


def _common(one: str, other: str) -> int:
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _value(name: str, value: Any) -> Any:
    if name in _TIMES:
        return quantities.rfc3339(value)
    if name in _JSON_TEXT and value is not None:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return jsonable(value)
