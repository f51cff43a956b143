"""What do a worker, a runner and a running handler say to one another?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from p2pqueue.workers.children.protocol import Outcome, Why
    from p2pqueue.workers.claimed import ClaimedJob


class Report(Protocol):
    """What a running handler says; its runner hands it on."""

    @property
    def stopped(self) -> Why | None:
        """Why the run shall stop, if so: asked before the handler is called, as a stop before that reaches nobody."""

    def progress(self, fraction: float, phase: str | None) -> None:
        """The handler's progress, 0 to 1, and what it is at."""

    async def checkpoint(self, state: bytes) -> None:
        """A checkpoint to keep; returns when it is durable."""

    def begin_checkpoint(self, state: bytes) -> asyncio.Task[None]:
        """The same for a handler that can't wait; the task ends when it is durable, or was logged as not to be kept."""

    async def request(self, kind: str, fields: dict[str, Any]) -> Any:
        """Something the handler asks of the node; gives the answer, or raises a `P2PQueueError`."""


def fetching(report: Report, job: ClaimedJob) -> Callable[[str], None]:
    """Tells, as what a job is at before its handler is called, how far the fetching of its input is."""
    return lambda words: report.progress(job.progress, words)


class Runner(Protocol):
    """Runs handlers: in child processes, or in the node's own loop."""

    async def run(self, job: ClaimedJob, report: Report) -> tuple[Outcome, str | None]:
        """Runs the job to its end; gives the outcome and the manifest of its outputs. Raises `Unreachable`."""

    def stop(self, key: str, why: Why) -> None:
        """Stops a run: its outcome will be `Stopped(why)`."""
