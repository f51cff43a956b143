"""Which transactions does somebody who asks for jobs make?

Each function takes the `Writer` of an open transaction and plain values, and returns plain values: the same one
runs in a program, on the command line and inside a node. What workers write stands in `workers/settle.py`.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

from p2pqueue import wire
from p2pqueue.errors import NoSuchJob, WrongState
from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.begun import as_it_runs
from p2pqueue.jobs.job import JobState, Refused, Transition
from p2pqueue.replica.stamp import Stamp, generation
from p2pqueue.replica.writer import Put, Writer

DAY_MS = 86_400_000
STATE_COLUMNS = (
    "coalesce(state_generation, spec_generation), coalesce(state_status, 'queued'), coalesce(attempt, 0), coalesce(claim, 0), "
    "worker_id, worker_label, claimed_at, finished_at, retry_at, result_id, error, checkpoint_stamp"
)


@dataclass(frozen=True)
class NewFile:
    """A file or folder as an argument: where its original lies on this device, or the capability of what is shared already."""

    parameter: str
    name: str
    size: int
    path: str | None = None
    capability: str | None = None
    mtime_ns: int | None = None  # of the original when it was enqueued; of a folder the mark of its state

    def __post_init__(self) -> None:
        path: object = self.path  # bytes where it was read from the local table and is no UTF-8
        if isinstance(path, bytes):
            object.__setattr__(self, "path", os.fsdecode(path))

    @property
    def stored_path(self) -> str | bytes | None:
        """The path as the local table keeps it: as text, or as bytes where it is no UTF-8."""
        if self.path is None:
            return None
        raw = os.fsencode(self.path)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw


class NewJob(NamedTuple):
    """A job to enqueue. A None means what the worker's task says; times are milliseconds UTC, durations seconds."""

    task: str
    args: bytes
    queue: str = "default"
    title: str | None = None
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    backoff: str | None = None
    retry_on: str | None = None
    run_at: int | None = None
    needs: str | None = None
    unique_key: str | None = None
    owner: str | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    files: tuple[NewFile, ...] = ()
    manifest: str | None = None  # of the one file, or the bundle of several, once sealed
    space: str = ""


class EnqueuedJob(NamedTuple):
    """What became of an enqueue: the job's id, and whether it was made now (a unique key may have had one)."""

    id: str
    created: bool


_NO_OPTIONS = wire.pack({})


def enqueue(writer: Writer, new: NewJob) -> EnqueuedJob:
    """Writes one job; with a unique key whose job has not ended, gives that job."""
    if new.unique_key is None:
        job_id, life = writer.new_id(), 0
    else:
        job_id = unique_id(new.space, new.task, new.unique_key)
        life, standing = _life_for(writer.connection, job_id)
        if standing is not None:
            _attach_input(writer, job_id, standing, new)
            return EnqueuedJob(job_id, created=False)
    _make(writer, job_id, new, life)
    return EnqueuedJob(job_id, created=True)


def enqueue_many(writer: Writer, jobs: Sequence[NewJob]) -> list[EnqueuedJob]:
    """Writes many jobs in one transaction; the plain ones (no unique key, no file) in one batch."""
    specs: list[tuple[Any, ...]] = []
    tuned: list[tuple[int, NewJob]] = []
    others = False
    for new in jobs:
        if new.unique_key is not None or new.files:
            others = True
            continue
        if new.title or new.priority:
            tuned.append((len(specs), new))
        specs.append(spec_of(new, writer.device_id, writer.now))
    ids = writer.make("jobs", "spec", specs)
    if tuned:
        writer.put_known("jobs", "tune", [Put(ids[place], "tune", (new.title, new.priority), generation=0) for place, new in tuned])
    made = map(EnqueuedJob, ids, repeat(True))
    if not others:
        return list(made)
    return [enqueue(writer, new) if new.unique_key is not None or new.files else next(made) for new in jobs]


def cancel(writer: Writer, job_id: str) -> None:
    """Ends a job that has not ended. Raises `WrongState` with its state otherwise."""
    state, _ = state_of(writer.connection, job_id)
    _take(writer, job_id, lattice.cancel(as_it_runs(writer, job_id, state), now=writer.now))


def hold(writer: Writer, job_id: str) -> None:
    """Pauses a job: it is not claimed, and a running handler is stopped and its job released."""
    state, _ = state_of(writer.connection, job_id)
    _refuse(job_id, lattice.check_hold(state))
    writer.put("jobs", job_id, "hold", {"held": 1})


def resume(writer: Writer, job_id: str) -> None:
    """Lets a paused job run again."""
    state, held = state_of(writer.connection, job_id)
    _refuse(job_id, lattice.check_resume(state, held=held))
    writer.put("jobs", job_id, "hold", {"held": 0})


def retry(writer: Writer, job_id: str, *, fresh: bool = False, retention_ms: int = 7 * DAY_MS) -> str:
    """Makes a job that has ended run again, from its checkpoint unless `fresh`; gives its id.

    A job that ended more than retention − 1 day ago may be gone elsewhere: it is enqueued anew, under a new id.
    """
    state, _ = state_of(writer.connection, job_id)
    transition = lattice.retry(state, fresh=fresh)
    if isinstance(transition, Transition) and (state.finished_at or writer.now) < writer.now - (retention_ms - DAY_MS):
        return _enqueue_again(writer, job_id)
    _take(writer, job_id, transition)
    return job_id


def delete(writer: Writer, job_id: str) -> None:
    """Deletes a job and forgets its inputs here; a running handler is stopped."""
    state_of(writer.connection, job_id)
    writer.delete("jobs", job_id)
    writer.connection.execute("DELETE FROM inputs WHERE job_id = ?", (job_id,))


def files_of(connection: sqlite3.Connection, job_id: str) -> list[NewFile]:
    """The inputs of a job whose originals, or whose capabilities, this device knows of itself."""
    query = "SELECT parameter, name, size, path, capability, mtime_ns FROM inputs WHERE job_id = ? AND parameter <> ''"
    return [NewFile(*row) for row in connection.execute(query, (job_id,))]


def put_input(writer: Writer, job_id: str, spec: Stamp, files: Sequence[NewFile], manifest: str | None) -> None:
    """Names the input of a job: without a manifest as long as it is not sealed, and keeps where its originals lie."""
    name = files[0].name if len(files) == 1 else f"{len(files)} files"
    _name_input(writer, job_id, spec, manifest, name, sum(each.size for each in files))
    writer.connection.executemany(
        "INSERT OR REPLACE INTO inputs (job_id, parameter, name, size, path, capability, mtime_ns) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(job_id, each.parameter, each.name, each.size, each.stored_path, each.capability, each.mtime_ns) for each in files],
    )


def state_of(connection: sqlite3.Connection, job_id: str) -> tuple[JobState, bool]:
    """The state of a job, and whether it is held. Raises `NoSuchJob`."""
    query = f"SELECT coalesce(held, 0), {STATE_COLUMNS} FROM jobs WHERE id = ? AND live = 1 AND status IS NOT NULL"
    row = connection.execute(query, (job_id,)).fetchone()
    if row is None:
        raise NoSuchJob(f"no job has the id {job_id!r}; `p2pqueue list` shows them")
    return JobState(*row[1:]), bool(row[0])


def put_state(job_id: str, step: Transition) -> Put:
    """The write that takes a step of the lattice."""
    state = step.state
    terminal = state.is_terminal
    return Put(job_id, "state", state[1:], state.generation, state.rank, 0 if terminal else state.claim, terminal)


def unique_id(space: str, task: str, key: str) -> str:
    """The id of the job that a unique key stands for: the same on every device, so that twins are one job (UUIDv8)."""
    digest = hashlib.blake2b(wire.pack([space, task, key]), digest_size=16, person=b"p2pqueue-unique").digest()
    number = int.from_bytes(digest, "big") & ~(0xF << 76) & ~(0x3 << 62) | 0x8 << 76 | 0x2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def spec_of(new: NewJob, device: str, now: int) -> tuple[Any, ...]:
    """The values of a job's `spec`, in their order; enqueued by that device at that time."""
    (
        task, args, queue, _, _, max_attempts, timeout, stall_timeout, backoff, retry_on,
        run_at, needs, unique_key, owner, options, _, _, _,
    ) = new  # fmt: skip
    return (
        queue, task, args, max_attempts, timeout, stall_timeout, backoff, retry_on, run_at, needs, None, unique_key,
        None, None, owner or device, device, now, wire.pack(options) if options else _NO_OPTIONS,
    )  # fmt: skip


def _make(writer: Writer, job_id: str, new: NewJob, life: int = 0) -> Stamp:
    stamp = writer.put("jobs", job_id, "spec", spec_of(new, writer.device_id, writer.now), generation=generation(life))
    if new.title or new.priority:
        writer.put("jobs", job_id, "tune", {"title": new.title, "priority": new.priority}, generation=generation(life))
    if life:  # what an earlier life read must not reach this one
        writer.connection.execute("DELETE FROM inputs WHERE job_id = ?", (job_id,))
    if new.files:
        put_input(writer, job_id, stamp, new.files, new.manifest)
    return stamp


def _name_input(writer: Writer, job_id: str, spec: Stamp, manifest: str | None, name: str | None, size: int) -> None:
    values = {"input_manifest": manifest, "input_name": name, "input_size": size, "for_spec": f"{spec.hlc}:{spec.author.hex()}"}
    writer.put("jobs", job_id, "input", values)


def _life_for(connection: sqlite3.Connection, job_id: str) -> tuple[int, Stamp | None]:
    """The life that a new job of this id would open; and the stamp of the spec where one stands that has not ended."""
    row = connection.execute(
        "SELECT live, status, spec_generation, spec_hlc, spec_author FROM jobs WHERE id = ? AND spec_generation IS NOT NULL", (job_id,)
    ).fetchone()
    if row is not None and row[0] and row[1] in ("queued", "running", "paused"):
        return 0, Stamp(row[2], 0, 0, row[3], row[4])
    (known,) = connection.execute("SELECT max(generation) >> 16 FROM changes WHERE tbl = 'jobs' AND key = ?", (job_id,)).fetchone()
    dropped = connection.execute("SELECT life FROM tombstones WHERE tbl = 'jobs' AND key = ?", (job_id,)).fetchone()
    return max(-1 if known is None else known, dropped[0] if dropped else -1) + 1, None


def _attach_input(writer: Writer, job_id: str, spec: Stamp, new: NewJob) -> None:
    (has_input,) = writer.connection.execute("SELECT coalesce(input_counts, 0) FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if new.files and not has_input:
        put_input(writer, job_id, spec, new.files, new.manifest)


def _take(writer: Writer, job_id: str, decision: Transition | Refused) -> None:
    if isinstance(decision, Refused):
        raise WrongState(decision.about(job_id))
    puts = [put_state(job_id, decision)]
    if decision.clears_checkpoint:
        puts.append(Put(job_id, "checkpoint", (None,), generation=decision.generation))
    writer.put_many("jobs", puts)
    if decision.clears_hold:
        writer.put("jobs", job_id, "hold", {"held": 0})


def _refuse(job_id: str, refused: Refused | None) -> None:
    if refused is not None:
        raise WrongState(refused.about(job_id))


_COPIED = (
    "queue, task, args, max_attempts, timeout, stall_timeout, backoff, retry_on, needs, owner, options, title, coalesce(priority, 0), "
    "unique_key, CASE WHEN input_counts THEN input_manifest END, CASE WHEN input_counts THEN input_name END, "
    "CASE WHEN input_counts THEN input_size END"
)


def _enqueue_again(writer: Writer, job_id: str) -> str:
    """Makes a job anew that ended long ago: under a new id, or as the next life of its unique key."""
    row = writer.connection.execute(f"SELECT {_COPIED} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    manifest, name, size = row[14:]
    new = NewJob(
        queue=row[0], task=row[1], args=row[2], max_attempts=row[3], timeout=row[4], stall_timeout=row[5], backoff=row[6],
        retry_on=row[7], needs=row[8], owner=row[9], options=wire.unpack(row[10]), title=row[11], priority=row[12],
        unique_key=row[13], files=tuple(files_of(writer.connection, job_id)), manifest=manifest,
    )  # fmt: skip
    new_id, life = (writer.new_id(), 0) if new.unique_key is None else (job_id, _life_for(writer.connection, job_id)[0])
    stamp = _make(writer, new_id, new, life)
    if size is not None and not new.files:  # its originals are on another device
        _name_input(writer, new_id, stamp, manifest, name, size)
    return new_id
