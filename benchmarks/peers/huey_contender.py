"""How is Huey driven, with SQLite (FULL) and with Redis?"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contender import Contender, python


class Huey(Contender):
    """Huey on one store; `concurrency` is "thread:N" or "process:N"."""

    def __init__(self, folder: Path, *, name: str, store: str) -> None:
        super().__init__(folder)
        self.name = name
        self.store = store
        os.environ["BENCH_HUEY"] = store
        sys.modules.pop("benchmarks.peers.huey_tasks", None)  # each store gets tasks of its own
        self.tasks: Any = importlib.import_module("benchmarks.peers.huey_tasks")

    def noop(self) -> None:
        """Enqueues one job that does nothing."""
        self.tasks.noop()

    def note(self) -> None:
        """Enqueues one job that tells its moments."""
        self.tasks.note(time.monotonic_ns())

    def clear(self) -> None:
        """Forgets all jobs."""
        self.tasks.huey.flush()

    def consumer(self, concurrency: str) -> tuple[Sequence[str], dict[str, str]]:
        """`huey_consumer`, as its documentation starts it."""
        kind, workers = concurrency.split(":")
        command = python("-m", "huey.bin.huey_consumer", "benchmarks.peers.huey_tasks.huey", "-q", "-k", kind, "-w", workers)
        return command, {"BENCH_HUEY": self.store}
