"""How does a worker work in a test: one job at a time, when it is told to?

The worker is that of a node. Its loops don't run; what they would call is called here.
"""

from __future__ import annotations

import asyncio
from typing import cast

from p2pqueue.jobs import rows
from p2pqueue.replica.writer import Writer
from p2pqueue.testing.program import Rows
from p2pqueue.workers.claimed import ClaimedJob, Ending
from p2pqueue.workers.claiming import begun
from p2pqueue.workers.run import Run
from p2pqueue.workers.settle import beat, settle
from p2pqueue.workers.turns import Turns
from p2pqueue.workers.worker import Worker


class _Endings:
    """Where the worker leaves how attempts ended, in the place of its turns."""

    stopping = False

    def __init__(self) -> None:
        self.waiting: list[Ending] = []

    def end(self, ending: Ending) -> None:
        self.waiting.append(ending)

    def look(self) -> bool:
        return False  # the next claim sees all that there is

    def take(self) -> list[Ending]:
        taken, self.waiting = self.waiting, []
        return taken


class Hand(Worker):
    """A worker that is moved by hand."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._endings = _Endings()
        self._turns = cast("Turns", self._endings)
        self.on_progress = self._write_progress

    @property
    def rows(self) -> Rows:
        """The replica, as this worker writes there."""
        return cast("Rows", self.store)

    def claim(self) -> Run | None:
        """Ends what has ended, and claims the most urgent job that can run here now; None where there is none."""

        def transaction(writer: Writer) -> tuple[list[ClaimedJob], bytes]:
            claimed = settle(writer, self._endings.take(), self._taker(), self.slots)
            begun.write_begun(writer, [begun.begun(job, writer.author) for job in claimed])
            return claimed, writer.author

        claimed, author = self.rows.put(transaction)
        if not claimed:
            return None
        (job,) = claimed
        run = self.runs[job.job_id] = Run(job, author, started=0.0, progress=job.progress, recorded=True)
        return run

    async def perform(self, run: Run) -> None:
        """Runs a job that was claimed to its end."""
        await self._run(run)

    def heed(self) -> None:
        """Stops what runs where somebody has cancelled, paused or deleted its job."""
        running = list(self.runs)
        if running:
            found = self.rows.replica.read(lambda connection: list(rows.statuses(connection, running)))
            self._heed({row[0]: row for row in found}, running)

    def begin_checkpoint(self, job: ClaimedJob, state: bytes) -> asyncio.Task[None]:
        """Keeps a checkpoint of an inline handler, which waits for it at its end."""
        return asyncio.get_running_loop().create_task(self._try_checkpoint(job, state))

    def _write_progress(self, job_id: str, claim: int, fraction: float, phase: str) -> None:
        holder = self.runs[job_id].job.holder
        self.rows.put(lambda writer: beat(writer, [(holder, job_id, fraction, phase)]))
