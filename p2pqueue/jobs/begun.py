"""Which jobs has the worker of this device begun although their rows do not say so yet?

`workers/claiming/begun.py` tells why, and keeps them. What is asked here is what others on this device must heed.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from p2pqueue import wire
from p2pqueue.jobs.job import JobState
from p2pqueue.replica.writer import Writer


class Begun(NamedTuple):
    """A claim that only this device knows of. `claimed_at` is in milliseconds UTC; `author` the one that claimed."""

    job_id: str
    generation: int
    claim: int
    claimed_at: int
    author: bytes


def kept(connection: sqlite3.Connection) -> list[Begun]:
    """The claims that were kept last."""
    return _unpacked(_packed(connection))


def as_begun(state: JobState, claim: tuple[int, int], claimed_at: int, worker: tuple[str, str | None]) -> JobState | None:
    """The state of a job as its row will tell it, where the row still stands as it was when the job was claimed."""
    if state.status != "queued" or (state.generation, state.claim + 1) != claim:
        return None
    return JobState(
        state.generation, "running", state.attempt + 1, state.claim + 1, worker[0], worker[1], claimed_at, None, None, None,
        state.error, state.checkpoint_stamp,
    )  # fmt: skip


def as_it_runs(writer: Writer, job_id: str, state: JobState) -> JobState:
    """The state of a job, with the attempt that this device may have begun at it."""
    packed = _packed(writer.connection) if state.status == "queued" else b""
    for claim in _unpacked(packed) if job_id.encode() in packed else ():
        if claim.job_id == job_id:
            return as_begun(state, claim[1:3], claim.claimed_at, (writer.device_id, writer.label)) or state
    return state


def _packed(connection: sqlite3.Connection) -> bytes:
    row = connection.execute("SELECT claims FROM begun").fetchone()
    return row[0] if row else b""


def _unpacked(packed: bytes) -> list[Begun]:
    return [Begun(*claim) for claim in zip(*wire.unpack(packed), strict=True)] if packed else []
