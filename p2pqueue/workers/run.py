"""What does a worker know of a job that runs here now, and who takes what its handler says?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.errors import MisuseError
from p2pqueue.jobs.begun import Begun
from p2pqueue.workers.children.protocol import Why
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.claiming.begun import begun
from p2pqueue.workers.settle import RESUMED

if TYPE_CHECKING:
    from p2pqueue.jobs.rows import JobRow
    from p2pqueue.workers.worker import Worker

PROGRESS_EVERY: Final = 2.0  # seconds between two beats of a job whose progress moves; watchers see every step at once
PROGRESS_STEP: Final = 0.01  # of the whole: smaller steps wait for the next ordinary beat


@dataclass(slots=True)
class Run:
    """A job that runs here now."""

    job: ClaimedJob
    author: bytes
    started: float  # monotonic
    progress: float = 0.0
    phase: str = RESUMED
    beaten: float = 0.0  # monotonic time of the last beat; the claim itself counts as the first
    beaten_progress: float = 0.0
    stop_why: Why | None = None
    recorded: bool = False  # its row tells that it runs
    outranked: bool = False  # another worker holds its job, or nobody does any more: its success still counts

    @property
    def begun(self) -> Begun:
        """Its claim, as it is kept until its row tells."""
        return begun(self.job, self.author)

    def is_due(self, now: float, beat_every: float) -> bool:
        """Says whether its lease is to be renewed, or its progress to be written."""
        if not self.recorded or self.outranked:
            return False
        since = now - self.beaten
        moved = abs(self.progress - self.beaten_progress) >= PROGRESS_STEP
        return since >= beat_every or (moved and since >= min(PROGRESS_EVERY, beat_every))


def event_of(row: JobRow, run: Run | None, label: str, why: str | None) -> dict[str, Any]:
    """The event that tells how a job stands, from memory where it runs here on the device of this label."""
    here = run is not None and row.status in ("queued", "running")  # its claim may not be in its row yet
    return {
        "id": row.id,
        "status": "running" if here else row.status,
        "progress": run.progress if run and here else row.progress,
        "phase": run.phase if run and here else row.phase,
        "worker_label": label if here else row.worker_label,
        "why": None if here else why,
    }


class Reporter:
    """Takes what one handler says to its worker."""

    __slots__ = ("_run", "_worker")

    def __init__(self, worker: Worker, run: Run) -> None:
        self._worker = worker
        self._run = run

    @property
    def stopped(self) -> Why | None:
        """Why the run shall stop, if so."""
        return self._run.stop_why

    def progress(self, fraction: float, phase: str | None) -> None:
        """Keeps the progress, and tells watchers."""
        run = self._run
        run.progress = min(1.0, max(0.0, fraction))
        run.phase = run.phase if phase is None else phase
        if run.outranked:
            return
        self._worker.on_progress(run.job.job_id, run.job.holder.claim, run.progress, run.phase)
        self._worker.live.tell(
            {"id": run.job.job_id, "status": "running", "progress": run.progress, "phase": run.phase, "worker_label": self._worker.label}
        )

    async def checkpoint(self, state: bytes) -> None:
        """Keeps a checkpoint; returns when it is durable."""
        await self._worker.keep_checkpoint(self._run.job, state)

    def begin_checkpoint(self, state: bytes) -> asyncio.Task[None]:
        """The same for a handler that can't wait."""
        return self._worker.begin_checkpoint(self._run.job, state)

    async def request(self, kind: str, fields: dict[str, Any]) -> Any:
        """Asks the node. Raises `MisuseError` where it does not know the request."""
        if self._worker.on_request is None:
            raise MisuseError(f"this node does not know the request {kind!r}")
        return await self._worker.on_request(self._run.job, kind, fields)
