"""A worker by hand: claims and ends jobs in the transactions that a node's worker uses, when a test says so."""

from __future__ import annotations

from typing import Any

from p2pqueue import Queue
from p2pqueue.jobs.arguments import encode_result
from p2pqueue.jobs.waiting import Ability
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.claimed import ClaimedJob, Ending, Taker
from p2pqueue.workers.claiming.begun import begun, write_begun
from p2pqueue.workers.settle import beat, checkpoint, settle


class Hand:
    """Works on the jobs of a queue's home, as the device itself would."""

    def __init__(self, queue: Queue, *tasks: str) -> None:
        self._replica = queue.access.replica
        identity = queue.access.identity
        self._taker = Taker(identity.device_id, identity.label, Ability(identity.label, tasks=frozenset(tasks)))

    def take(self, slots: int = 1) -> list[ClaimedJob]:
        """Claims the most urgent jobs, and writes at once that they run."""

        def claim(writer: Writer) -> list[ClaimedJob]:
            claimed = settle(writer, [], self._taker, slots)
            write_begun(writer, [begun(job, writer.author) for job in claimed])
            return claimed

        return self._replica.write(claim)

    def take_one(self) -> ClaimedJob:
        """Claims the one job that can be claimed."""
        (job,) = self.take()
        return job

    def succeed(self, job: ClaimedJob, value: Any = None, *, manifest: str | None = None) -> None:
        """Ends a job with a result."""
        self._end(job, how="succeeded", result=encode_result(value).data, output_manifest=manifest)

    def fail(self, job: ClaimedJob, error: str = "boom", *, traceback: str = "Traceback …") -> None:
        """Ends a job with an error that isn't tried again."""
        self._end(job, how="failed", error=error, traceback=traceback)

    def retry(self, job: ClaimedJob, error: str = "again", *, retry_at: int | None = None) -> None:
        """Ends an attempt that is tried again."""
        self._end(job, how="retry", error=error, retry_at=retry_at)

    def release(self, job: ClaimedJob) -> None:
        """Gives a job back."""
        self._end(job, how="released")

    def progress(self, job: ClaimedJob, fraction: float, phase: str = "half") -> None:
        """Writes the progress of a job."""
        self._replica.write(lambda writer: beat(writer, [(job.holder, job.job_id, fraction, phase)]))

    def checkpoint(self, job: ClaimedJob, state: bytes) -> None:
        """Writes a checkpoint of a job."""
        self._replica.write(lambda writer: checkpoint(writer, job, state))

    def _end(self, job: ClaimedJob, **how: Any) -> None:
        author = self._replica.author
        self._replica.write(lambda writer: settle(writer, [Ending(job, author=author, duration=0.5, **how)], self._taker, 0))
