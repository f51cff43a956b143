"""How is any queue driven, ours or a peer's, so that all are measured by the same yardstick?"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.marks import Marks

ROOT = Path(__file__).resolve().parents[2]
STOP_LIMIT = 5.0  # seconds a consumer gets to end by itself
EDGE = 64  # marked jobs at each end of a drain: as many as may run at once


class Contender:
    """A queue under measurement. Producing methods return the seconds that `count` jobs took."""

    name = "queue"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._marks = 0

    def noop(self) -> None:
        """Enqueues one job that does nothing, and returns when the queue has taken it."""
        raise NotImplementedError

    def note(self) -> None:
        """Enqueues one job that tells when it was sent (now) and when it started."""
        raise NotImplementedError

    def consumer(self, concurrency: str) -> tuple[Sequence[str], dict[str, str]]:
        """The command line of a consumer and what its environment needs besides."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forgets all jobs."""

    def bulk(self, count: int) -> float:
        """Enqueues `count` jobs by the queue's fastest way; one by one where it has no other."""
        return self.one_by_one(count)

    def one_by_one(self, count: int) -> float:
        """Enqueues `count` jobs, each after the one before was taken."""
        return timed(lambda: repeat(self.noop, count))

    def from_many(self, count: int, producers: int) -> float:
        """Enqueues `count` jobs from so many threads of this process."""
        share = count // producers
        threads = [threading.Thread(target=repeat, args=(self.noop, share)) for _ in range(producers)]

        def run() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return timed(run)

    @contextmanager
    def consuming(self, concurrency: str) -> Iterator[Marks]:
        """Runs a consumer while the block runs; gives the marks of its handlers."""
        self._marks += 1
        marks = Marks(self.folder / f"marks-{self._marks}")
        command, environment = self.consumer(concurrency)
        with running(command, environment | marks.environment()):
            yield marks

    def latencies(self, count: int, concurrency: str) -> list[float]:
        """Milliseconds from the call to the handler's start, for jobs that come one at a time to an idle consumer."""
        self.clear()
        with self.consuming(concurrency) as marks:
            self.note()
            marks.wait(1)
            for sent in range(count):
                time.sleep(random.uniform(0.03, 0.08))
                self.note()
                marks.wait(sent + 2)
            return [(started - sent) / 1e6 for sent, started in marks.read()[1:]]

    def drain(self, count: int, concurrency: str) -> float:
        """Jobs per second from a full queue: first handler's start to the last one's."""
        self.clear()
        repeat(self.note, EDGE)
        self.bulk(count - 2 * EDGE)
        repeat(self.note, EDGE)
        with self.consuming(concurrency) as marks:
            started = [moment for _, moment in marks.wait(2 * EDGE, limit=180.0)]
        return count / ((max(started) - min(started)) / 1e9)


def repeat(action: Callable[[], object], count: int) -> None:
    """Calls `action` so many times."""
    for _ in range(count):
        action()


def timed(action: Callable[[], object]) -> float:
    """Seconds that the action took."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@contextmanager
def running(command: Sequence[str], environment: dict[str, str], *, log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program while the block runs, and ends it and it alone afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    with open(log or os.devnull, "ab") as sink:
        process = subprocess.Popen(command, env=environment, stdout=sink, stderr=sink, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def python(*arguments: str) -> list[str]:
    """A command line for this very interpreter."""
    return [sys.executable, *arguments]
