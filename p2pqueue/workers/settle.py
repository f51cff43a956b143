"""Which transactions does a worker make?

One transaction ends the attempts that have ended and claims for the slots they freed, so that a busy worker
pays one commit for both. Each function takes the `Writer` of an open transaction, as in `jobs/ledger.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.begun import as_begun
from p2pqueue.jobs.job import Holder, JobState, Refused, Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.replica.merging.first_writes import OWN, Group, Named, make_alike, put_first
from p2pqueue.replica.writer import Put, Writer
from p2pqueue.workers.claimed import CRASHED, ClaimedJob, Ending, How, Taker
from p2pqueue.workers.claiming import begun
from p2pqueue.workers.claiming.scan import NOT_HERE, claim
from p2pqueue.workers.states import states_of

RESULT_ID = JobState._fields.index("result_id")
DURATION = 12  # the place of the duration among the values of a run
RESUMED = "Running"  # the phase of a job that goes on, until its handler says another


def settle(writer: Writer, endings: Sequence[Ending], taker: Taker, slots: int) -> list[ClaimedJob]:
    """Ends these attempts, then claims so many jobs; gives the claimed ones, the most urgent first."""
    if endings:
        _end(writer, endings)
    if not slots:
        return []
    wake_due(writer)
    return claim(writer, taker, slots)


def wake_due(writer: Writer) -> None:
    """Moves the jobs that have come due into the index of what can be claimed now."""
    writer.connection.execute(
        "UPDATE jobs INDEXED BY jobs_later SET ready = 1 WHERE ready = 0 AND status = 'queued' AND live = 1 AND due_at <= ?",
        (writer.now,),
    )


def look_anew(writer: Writer, tasks: Collection[str] | None = None) -> int:
    """Brings back jobs that were set aside, all or those of these tasks; gives how many.

    All at a node's start, as it may do what an earlier one could not; later those that lacked something, as that may
    have been installed.
    """
    query = "UPDATE jobs SET ready = 1 WHERE status = 'queued' AND ready = ?"  # jobs_by_status
    if tasks is None:
        return writer.connection.execute(query, (NOT_HERE,)).rowcount
    query += " AND task IN (SELECT value FROM json_each(?))"
    return writer.connection.execute(query, (NOT_HERE, json.dumps(list(tasks)))).rowcount


def next_due(connection: sqlite3.Connection) -> int | None:
    """When the next job comes due that can't be claimed yet, in milliseconds UTC."""
    (due,) = connection.execute(
        "SELECT min(due_at) FROM jobs INDEXED BY jobs_later WHERE ready = 0 AND status = 'queued' AND live = 1"
    ).fetchone()
    return due  # type: ignore[no-any-return]


def beat(writer: Writer, beats: Sequence[tuple[Holder, str, float, str]]) -> None:
    """Renews the leases of (holder, job, progress, phase)."""
    puts = [
        Put(job_id, "beat", (writer.now, progress, phase, holder.worker_id), generation=holder.generation, claim=holder.claim)
        for holder, job_id, progress, phase in beats
    ]
    writer.put_many("jobs", puts)


def checkpoint(writer: Writer, job: ClaimedJob, state: bytes) -> bool:
    """Keeps a checkpoint of a job that this worker still holds; says whether it does."""
    if begun.write_begun(writer, [begun.begun(job, writer.author)]) and job.progress:
        beat(writer, [(job.holder, job.job_id, job.progress, RESUMED)])
    found = states_of(writer.connection, [job.job_id]).get(job.job_id)
    if found is None or lattice.check_holder(found, job.holder) is not None:
        return False
    writer.put_many("jobs", [_checkpoint(job, state)])
    return True


def _checkpoint(job: ClaimedJob, state: bytes) -> Put:
    return Put(job.job_id, "checkpoint", (state,), generation=job.holder.generation, claim=job.holder.claim)


# -- ending ---------------------------------------------------------------------------------------------------


def _end(writer: Writer, endings: Sequence[Ending]) -> None:
    first: dict[tuple[Any, ...], list[Ending]] = {}
    others: list[Ending] = []
    for ending in endings:
        if ending.unwritten and ending.how == "succeeded":
            job = ending.job
            first.setdefault((job.claimed_at, job.attempt, job.holder, ending.author), []).append(ending)
        else:
            others.append(ending)
    for alike in first.values():
        if not _succeed_first(writer, alike):
            others += alike
    if others:
        _end_each(writer, others)


def _succeed_first(writer: Writer, endings: Sequence[Ending]) -> bool:
    """Ends first attempts that were claimed at once, of which their rows tell nothing yet, unless others have written there."""
    first, now, worker = endings[0], writer.now, (writer.device_id, writer.label)
    step = _first_success(first.job, worker, now)
    if step is None:
        return False
    state, run = step.state, Named(first.job.run_id(first.author).removeprefix(first.job.job_id))
    group = Group([ending.job.job_id for ending in endings])
    values = (*state[1:RESULT_ID], run, *state[RESULT_ID + 1 :])
    stamp: dict[str, Any] = {"generation": state.generation, "rank": state.rank, "earliest": True}
    if not put_first(writer, "jobs", "state", group, values, **stamp, before="queued", after=state.status):
        return False
    if len({(ending.result, ending.output_manifest) for ending in endings}) == 1:
        alike, took = _ended_run(first, step, worker, now), [_duration(ending, now) for ending in endings]
        make_alike(writer, "runs", "run", group, took, key=run, values=(Named(), *alike[1:DURATION], OWN, *alike[DURATION + 1 :]))
    else:
        runs = [_ended_run(ending, step, worker, now) for ending in endings]
        writer.make("runs", "run", runs, ids=[name + run.ending for name in group.names])
    return True


def _first_success(job: ClaimedJob, worker: tuple[str, str], now: int) -> Transition | None:
    """The success of a first attempt, for all that were claimed in the same way; its result is named by each."""
    running = as_begun(JobState(job.holder.generation), job.holder.claimed, job.claimed_at, worker)
    step = running and lattice.succeed(running, job.holder, now=now, result_id=None)
    return step if isinstance(step, Transition) else None


def _end_each(writer: Writer, endings: Sequence[Ending]) -> None:
    jobs: list[Put] = []
    runs: list[Put] = []
    checkpoints: list[Put] = []
    undone: list[tuple[str, int, int]] = []
    worker = writer.device_id, writer.label
    states = states_of(writer.connection, [ending.job.job_id for ending in endings])
    for ending in endings:
        state, job = states.get(ending.job.job_id), ending.job
        if state is None:
            decision: Transition | Refused = Refused("was deleted")
        else:
            held = as_begun(state, job.holder.claimed, job.claimed_at, worker)
            if ending.unstarted and held is not None:
                undone.append((job.job_id, job.holder.generation, job.holder.claim))
                continue
            decision = _step(writer, held or state, ending)
        if isinstance(decision, Transition):
            jobs.append(put_state(ending.job.job_id, decision))
            if ending.checkpoint is not None:
                checkpoints.append(_checkpoint(job, ending.checkpoint))
        runs.append(Put(job.run_id(ending.author), "run", _ended_run(ending, decision, worker, writer.now), 0))
    if jobs:
        writer.put_known("jobs", "state", jobs)
    if checkpoints:
        writer.put_many("jobs", checkpoints)
    if runs:
        writer.put_known("runs", "run", runs, new=True)
    if undone:
        begun.drop(writer.connection, undone)


def _step(writer: Writer, state: JobState, ending: Ending) -> Transition | Refused:
    job, holder, now = ending.job, ending.job.holder, writer.now
    if ending.how == "succeeded":
        return lattice.succeed(state, holder, now=now, result_id=job.run_id(ending.author), rival=ending.rival)
    if ending.how == "released":
        return lattice.release(state, holder, reason=ending.error, retry_at=ending.retry_at)
    if ending.how == "lost":
        return lattice.check_holder(state, holder) or Refused("was stopped")
    if ending.how == "cancelled":
        return Refused("was stopped")
    error = ending.error or "failed"
    again = ending.how == "retry" or (ending.how == "crashed" and not _crashed_before(writer.connection, job))
    if again:
        step = lattice.requeue(state, holder, error=error, max_attempts=job.max_attempts, retry_at=ending.retry_at)
        if isinstance(step, Transition):
            return step
    return lattice.fail(state, holder, now=now, error=error, result_id=job.run_id(ending.author))


def _crashed_before(connection: sqlite3.Connection, job: ClaimedJob) -> bool:
    query = (
        "SELECT metadata FROM runs WHERE id > ? AND id < ? AND attempt < ? "
        "ORDER BY CAST(substr(id, ?) AS INTEGER) DESC LIMIT 1"  # by the number of the claim, which begins there
    )
    generation = f"{job.job_id}/{job.holder.generation}"
    row = connection.execute(query, (f"{generation}/", f"{generation}0", job.attempt, len(generation) + 2)).fetchone()
    return row is not None and row[0] == CRASHED


_RUN_STATUS: dict[How, str] = {"retry": "failed", "crashed": "failed"}


def _ended_run(ending: Ending, decision: Transition | Refused, worker: tuple[str, str], now: int) -> tuple[Any, ...]:
    """The values of the row of an attempt that has ended."""
    job, how = ending.job, ending.how
    status, error = _RUN_STATUS.get(how, how), ending.error
    if isinstance(decision, Refused) and status in ("succeeded", "failed", "released", "lost"):
        if "was lost to" in decision.reason:
            status, error = "lost", decision.reason.removeprefix("was ")
        elif status == "released":
            status = "cancelled"
    return (
        job.job_id, job.attempt, *worker, job.claimed_at, now, status, ending.result, ending.output_manifest, error, ending.traceback,
        ending.log_tail, _duration(ending, now), None, CRASHED if how == "crashed" else None,
    )  # fmt: skip


def _duration(ending: Ending, now: int) -> float:
    return ending.duration if ending.duration is not None else (now - ending.job.claimed_at) / 1000
