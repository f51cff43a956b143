"""What do devices write in the simulator? Jobs as page and lattice want them, by puts of registers.

Each function takes a writer and a number from 0 to 1 to choose by, and gives the writes that it acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from p2pqueue.replica.replica import Writer
from p2pqueue.replica.stamp import RETRY_BITS, Stamp

Wrote = list[tuple[str, str, str, Stamp]]
_STATE = (
    "SELECT jobs.id, jobs.status, coalesce(state_generation, spec_generation), coalesce(changes.rank, 0), coalesce(jobs.claim, 0) "
    "FROM jobs LEFT JOIN changes ON tbl = 'jobs' AND key = jobs.id AND register = 'state' WHERE live = 1"
)
UNIQUE_KEYS = 4  # so few that devices meet over them


class Work:
    """A transaction of the workload."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.wrote: Wrote = []

    def put(self, table: str, key: str, register: str, values: dict[str, Any], **how: Any) -> Stamp:
        stamp = self.writer.put(table, key, register, values, **how)
        query = "SELECT generation, rank, claim, hlc, author FROM changes WHERE tbl = ? AND key = ? AND register = ?"
        if self.writer.connection.execute(query, (table, key, register)).fetchone() == tuple(stamp):
            self.wrote.append((table, key, register, stamp))
        return stamp

    def job(self, pick: float, condition: str) -> tuple[str, str, int, int, int] | None:
        """Some live job: id, status, generation, rank, claim."""
        rows = self.writer.connection.execute(f"{_STATE} AND {condition} ORDER BY jobs.id").fetchall()
        return rows[int(pick * len(rows))] if rows else None

    def state(self, job: str, status: str, generation: int, rank: int, claim: int, **values: Any) -> None:
        terminal = rank > 0
        self.put(
            "jobs", job, "state",
            {"status": status, "claim": claim, "worker_id": self.writer.device_id, "attempt": claim, **values},
            generation=generation, rank=rank, claim=0 if terminal else claim, earliest=terminal,
        )  # fmt: skip


def enqueue(work: Work, pick: float, job: str | None = None, generation: int | None = None) -> None:
    writer = work.writer
    job = job or writer.new_id()
    spec = {"queue": "q", "task": "t", "args": b"\x80", "created_at": writer.now, "enqueued_by": writer.device_id}
    stamp = work.put("jobs", job, "spec", spec, generation=generation)
    if pick < 0.6:
        work.put("jobs", job, "tune", {"title": f"{pick:.4f}", "priority": int(pick * 10)}, generation=stamp.generation)
    if pick < 0.3:
        work.put(
            "jobs",
            job,
            "input",
            {"input_manifest": "p2pq1-x", "for_spec": f"{stamp.hlc}:{stamp.author.hex()}"},
            generation=stamp.generation,
        )


def unique(work: Work, pick: float) -> None:
    """Enqueues a job under a key that others use as well; one that has ended begins a new life."""
    job = f"unique-{int(pick * UNIQUE_KEYS)}"
    row = work.writer.connection.execute("SELECT status, live, spec_generation FROM jobs WHERE id = ?", (job,)).fetchone()
    if row is None or row[2] is None:
        enqueue(work, pick, job)
    elif not row[1] or row[0] in ("succeeded", "failed", "cancelled"):
        enqueue(work, pick, job, ((row[2] >> RETRY_BITS) + 1) << RETRY_BITS)


def burst(work: Work, pick: float) -> None:
    for index in range(12):
        enqueue(work, (pick + index / 12) % 1)


def tune(work: Work, pick: float) -> None:
    if row := work.job(pick, "1"):
        work.put("jobs", row[0], "tune", {"title": f"{pick:.6f}", "priority": int(pick * 10)})


def attach(work: Work, pick: float) -> None:
    if row := work.job(pick, "status = 'queued'"):
        work.put("jobs", row[0], "input", {"input_manifest": f"p2pq1-{pick:.5f}", "for_spec": None})


def claim(work: Work, pick: float) -> None:
    if row := work.job(pick, "status IN ('queued', 'running')"):
        job, _, generation, _, claims = row
        work.state(job, "running", generation, 0, claims + 1)
        run = f"{job}/{generation}/{claims + 1}/{work.writer.author.hex()}"
        work.put("runs", run, "run", {"job_id": job, "attempt": claims + 1, "started_at": work.writer.now, "status": "running"})


def beat(work: Work, pick: float) -> None:
    if row := work.job(pick, "status = 'running'"):
        job, _, generation, _, claims = row
        values = {"heartbeat_at": work.writer.now, "progress": pick, "worker_id": work.writer.device_id}
        work.put("jobs", job, "beat", values, generation=generation, claim=claims)


def checkpoint(work: Work, pick: float) -> None:
    if row := work.job(pick, "status = 'running'"):
        work.put("jobs", row[0], "checkpoint", {"checkpoint": b"x" * int(pick * 2000)}, generation=row[2], claim=row[4])


def _end(work: Work, pick: float, status: str, rank: int, condition: str) -> None:
    if row := work.job(pick, condition):
        job, _, generation, _, claims = row
        run = f"{job}/{generation}/{claims}/{work.writer.author.hex()}"
        if status != "cancelled":
            work.put("runs", run, "run", {"job_id": job, "status": status, "ended_at": work.writer.now, "result": b"\x01"})
        work.state(job, status, generation, rank, claims, finished_at=work.writer.now, result_id=run)


def succeed(work: Work, pick: float) -> None:
    _end(work, pick, "succeeded", 2, "status = 'running'")


def fail(work: Work, pick: float) -> None:
    _end(work, pick, "failed", 1, "status = 'running'")


def cancel(work: Work, pick: float) -> None:
    _end(work, pick, "cancelled", 3, "status IN ('queued', 'running', 'paused')")


def requeue(work: Work, pick: float) -> None:
    if row := work.job(pick, "status = 'running'"):
        work.state(row[0], "queued", row[2], 0, row[4])


def retry(work: Work, pick: float) -> None:
    if row := work.job(pick, "status IN ('succeeded', 'failed', 'cancelled')"):
        work.state(row[0], "queued", row[2] + 1, 0, 0)
        work.put("jobs", row[0], "hold", {"held": 0})


def hold(work: Work, pick: float) -> None:
    if row := work.job(pick, "status IN ('queued', 'running')"):
        work.put("jobs", row[0], "hold", {"held": 1})


def resume(work: Work, pick: float) -> None:
    if row := work.job(pick, "status = 'paused'"):
        work.put("jobs", row[0], "hold", {"held": 0})


def delete(work: Work, pick: float) -> None:
    if row := work.job(pick, "1"):
        work.put("jobs", row[0], "life", {"deleted": 1})


OPERATIONS: dict[str, Callable[[Work, float], None]] = {
    "enqueue": enqueue, "unique": unique, "burst": burst, "tune": tune, "input": attach, "claim": claim, "beat": beat,
    "checkpoint": checkpoint, "succeed": succeed, "fail": fail, "cancel": cancel, "requeue": requeue, "retry": retry,
    "hold": hold, "resume": resume, "delete": delete,
}  # fmt: skip
