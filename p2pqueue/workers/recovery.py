"""What did an earlier node of this device leave behind, and which jobs can nobody run?"""

from __future__ import annotations

import json
from collections.abc import Collection

from p2pqueue.clock import COUNTER_BITS
from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.begun import kept
from p2pqueue.jobs.job import Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.jobs.waiting import EXEC_TASK
from p2pqueue.replica.writer import Put, Writer
from p2pqueue.workers.claimed import DEFAULT_ATTEMPTS
from p2pqueue.workers.claiming.begun import write_begun
from p2pqueue.workers.settle import look_anew
from p2pqueue.workers.states import states_of


def recover(writer: Writer, max_attempts: dict[str, int]) -> list[str]:
    """At a node's start: its own jobs that were running are queued again, or fail without attempts left.

    Their runs end as lost. Gives the ids.
    """
    write_begun(writer, kept(writer.connection))
    look_anew(writer)
    query = (
        "SELECT id, task, coalesce(held, 0), max_attempts FROM jobs "
        "WHERE status IN ('running', 'paused') AND state_status = 'running' AND worker_id = ? AND live = 1"  # jobs_by_status
    )
    rows = writer.connection.execute(query, (writer.device_id,)).fetchall()
    states = states_of(writer.connection, [row[0] for row in rows])
    puts: list[Put] = []
    for job_id, task, held, limit in rows:
        attempts = limit or max_attempts.get(task, DEFAULT_ATTEMPTS)
        step = lattice.recover(states[job_id], writer.device_id, max_attempts=attempts, now=writer.now, held=bool(held))
        if isinstance(step, Transition):
            puts.append(put_state(job_id, step))
    writer.put_many("jobs", puts)
    end_runs(writer, "worker_id = ?", (writer.device_id,), "its node stopped in the middle")  # runs_running
    return [put.key for put in puts]


def fail_unknown(writer: Writer, known: Collection[str], older_than_ms: int) -> int:
    """Fails jobs of tasks that no device knows, queued and due for more than `older_than_ms`; gives how many.

    Known is what this node has, and what an earlier node of this home had.
    """
    query = (
        "SELECT id, task FROM jobs WHERE status = 'queued' AND live = 1 "  # jobs_by_status
        f"AND max(created_at, due_at, coalesce(state_hlc, 0) >> {COUNTER_BITS}) < ? "
        "AND task NOT IN (SELECT value FROM json_each(?)) AND task NOT IN (SELECT name FROM tasks) LIMIT 1000"
    )
    rows = writer.connection.execute(query, (writer.now - older_than_ms, json.dumps([*known, EXEC_TASK]))).fetchall()
    states = states_of(writer.connection, [job_id for job_id, _ in rows])
    puts = []
    for job_id, task in rows:
        step = lattice.give_up(states[job_id], now=writer.now, reason=f"unknown task: no device has {task!r}")
        if isinstance(step, Transition):
            puts.append(put_state(job_id, step))
    writer.put_many("jobs", puts)
    return len(puts)


def end_runs(writer: Writer, condition: str, values: tuple[str, ...], why: str) -> None:
    """Ends runs that nobody goes on with: as cancelled where their job was, else as lost."""
    columns = "id, job_id, attempt, worker_id, worker_label, started_at"
    query = (
        f"SELECT {columns}, (SELECT status FROM jobs WHERE jobs.id = job_id AND live = 1) FROM runs "
        f"WHERE status = 'running' AND {condition}"
    )
    puts = []
    for run_id, job_id, attempt, worker, label, started, job_status in writer.connection.execute(query, values).fetchall():
        status = "cancelled" if job_status in ("cancelled", None) else "lost"
        error = None if status == "cancelled" else f"worker lost: {why}"
        ended = (job_id, attempt, worker, label, started, writer.now, status, None, None, error, None, None, None, None, None)
        puts.append(Put(run_id, "run", ended, generation=0))
    if puts:
        writer.put_many("runs", puts)
