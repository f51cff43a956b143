"""How is p2pqueue driven by the yardstick of its peers?"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contender import EDGE, Contender, python, repeat, running, timed
from p2pqueue.config import Home
from p2pqueue.identity import keys

READY_LIMIT = 20.0  # seconds until a node is ready; it takes well under one


def make_home(folder: Path) -> Home:
    """A fresh home with a space; this process and its children use it from now on."""
    os.environ["P2PQUEUE_HOME"] = str(folder)
    home = Home.find(folder)
    home.ensure()
    keys.create(home, space_name="bench", label="bench")
    return home


class P2PQueue(Contender):
    """Ours; `concurrency` is the number of slots. Jobs go through the sync path of a program unless said."""

    name = "p2pqueue"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home = make_home(folder / "home")
        sys.modules.pop("benchmarks.own.app", None)  # a queue stays with the home of its first use: each home gets one of its own
        self.app: Any = importlib.import_module("benchmarks.own.app")
        self.note_task: Any = self.app.note

    def noop(self) -> None:
        """Enqueues one job that does nothing."""
        self.app.noop.enqueue()

    def note(self) -> None:
        """Enqueues one job that tells its moments."""
        self.note_task.enqueue(time.monotonic_ns())

    def one_by_one(self, count: int) -> float:
        """Enqueues `count` jobs one after the other; each is durable before the next, and the rows of all are made in the end."""

        def run() -> None:
            repeat(self.noop, count)
            self._make_rows()

        return timed(run)

    def _make_rows(self) -> None:
        """Makes the rows of jobs that are durable but still deferred: nothing is left to be done later."""
        self.app.queue.access.replica.carry_out()

    def bulk(self, count: int) -> float:
        """`enqueue_many`, 1,000 at a time."""

        def run() -> None:
            for start in range(0, count, 1000):
                self.app.noop.enqueue_many([()] * min(1000, count - start))

        return timed(run)

    def one_by_one_in_asyncio(self, count: int) -> float:
        """Enqueues `count` jobs from one coroutine that awaits each."""
        return self.from_coroutines(count, 1)

    def from_many(self, count: int, producers: int) -> float:
        """Enqueues `count` jobs from so many coroutines of this process."""
        return self.from_coroutines(count, producers)

    def from_coroutines(self, count: int, producers: int) -> float:
        """The same for any number of coroutines."""

        async def produce() -> None:
            for _ in range(count // producers):
                await self.app.noop.aenqueue()

        async def run() -> float:
            await self.app.noop.aenqueue()  # opens what is opened once
            start = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(producers):
                    group.create_task(produce())
            self._make_rows()
            took = time.perf_counter() - start
            await self.app.queue.aclose()
            return took

        return asyncio.run(run())

    def consumer(self, concurrency: str) -> tuple[Sequence[str], dict[str, str]]:
        """`p2pqueue run`."""
        return python("-m", "p2pqueue", "run", "benchmarks/own/app.py", "--slots", concurrency), {"P2PQUEUE_HOME": str(self.home.path)}

    def drain(self, count: int, concurrency: str) -> float:
        """Jobs per second from a full queue; ours count only once the last end is durable."""
        repeat(self.note, EDGE)
        self.bulk(count - EDGE)
        with self.consuming(concurrency) as marks:
            first = min(started for _, started in marks.wait(EDGE))
            while any(self.app.queue.counts().get(status) for status in ("queued", "running")):
                time.sleep(0.02)
            return count / ((time.monotonic_ns() - first) / 1e9)


def latencies_in_one_process(folder: Path, count: int, task: str) -> list[float]:
    """Milliseconds from enqueueing to the handler's start, all in one program that has its node inside."""
    home = make_home(folder)
    output = folder / "latencies.json"
    command = python("-m", "benchmarks.own.program", task, str(count), str(output))
    with running(command, {"P2PQUEUE_HOME": str(home.path), "BENCH_MARKS": str(folder / "marks")}, log=folder / "log") as program:
        if program.wait(timeout=60.0 + count) != 0:
            raise RuntimeError((folder / "log").read_text()[-2000:])
    values: list[float] = json.loads(output.read_text())
    return values
