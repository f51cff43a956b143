"""How is RQ driven?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from redis import Redis
from rq import Queue

from benchmarks.peers import rq_tasks
from benchmarks.peers.contender import Contender, python, timed


class RQ(Contender):
    """RQ; `concurrency` is the worker class: "Worker" (its default, a fork for each job) or "SimpleWorker" (none)."""

    name = "RQ"

    def __init__(self, folder: Path, *, port: int) -> None:
        super().__init__(folder)
        self.port = port
        self.queue = Queue(connection=Redis(host="127.0.0.1", port=port))

    def noop(self) -> None:
        """Enqueues one job that does nothing."""
        self.queue.enqueue(rq_tasks.noop)

    def note(self) -> None:
        """Enqueues one job that tells its moments."""
        self.queue.enqueue(rq_tasks.note, time.monotonic_ns())

    def bulk(self, count: int) -> float:
        """`enqueue_many`, 1,000 at a time."""

        def run() -> None:
            for start in range(0, count, 1000):
                self.queue.enqueue_many([Queue.prepare_data(rq_tasks.noop) for _ in range(min(1000, count - start))])

        return timed(run)

    def clear(self) -> None:
        """Forgets all jobs."""
        self.queue.connection.flushdb()

    def consumer(self, concurrency: str) -> tuple[Sequence[str], dict[str, str]]:
        """`rq worker`."""
        url = f"redis://127.0.0.1:{self.port}"
        return python("-m", "rq.cli", "worker", "-q", "-u", url, "-w", f"rq.worker.{concurrency}"), {}
