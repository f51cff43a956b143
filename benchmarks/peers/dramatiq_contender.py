"""How is Dramatiq driven?"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contender import Contender, python


class Dramatiq(Contender):
    """Dramatiq with Redis; `concurrency` is "PROCESSES:THREADS"."""

    name = "Dramatiq"

    def __init__(self, folder: Path, *, port: int) -> None:
        super().__init__(folder)
        os.environ["BENCH_REDIS"] = str(port)
        self.port = port
        self.tasks: Any = importlib.import_module("benchmarks.peers.dramatiq_tasks")

    def noop(self) -> None:
        """Enqueues one job that does nothing."""
        self.tasks.noop.send()

    def note(self) -> None:
        """Enqueues one job that tells its moments."""
        self.tasks.note.send(time.monotonic_ns())

    def clear(self) -> None:
        """Forgets all jobs."""
        self.tasks.broker.client.flushdb()

    def consumer(self, concurrency: str) -> tuple[Sequence[str], dict[str, str]]:
        """`dramatiq`, as its documentation starts it."""
        processes, threads = concurrency.split(":")
        command = python("-m", "dramatiq", "benchmarks.peers.dramatiq_tasks", "-p", processes, "-t", threads)
        return command, {"BENCH_REDIS": str(self.port)}
