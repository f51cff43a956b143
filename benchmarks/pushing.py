"""How soon does what one device writes reach another, does every job run once, and what does an idle node take?

The program that enqueues is a process of its own on the first device's home, whose node takes no jobs; the handlers
run inline in the node of another device. All are linked over WebRTC.
"""

from __future__ import annotations

import importlib
import os
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.host import HostedDevice, space, start_linked, until
from p2pqueue import Queue

LOOK_EVERY = 0.0001  # seconds between two looks at the other database
PAUSE = (0.03, 0.08)  # seconds between two jobs
PART = 100  # jobs that are enqueued at once where jobs are counted
SETTLING = 5.0  # seconds that an idle node gets before it is weighed
JOB_LIMIT = 300.0  # seconds


def figures(folder: Path, targets: Mapping[str, Target], *, count: int) -> list[Figure]:
    """The rows about latency."""
    with space(folder / "starting", 2) as (here, there):
        start_linked([there])
        here.start("--no-discovery", "--no-work", "--listen", "127.0.0.1:0", "--peer", there.listens_at)
        until(lambda: here.is_direct() and there.is_direct(), "linked directly")
        with _tasks(here) as (note, _):
            starts = Sample.of(_starts(note, there, count))
    with space(folder / "committing", 2) as devices:
        start_linked(devices, "--no-work")
        with _tasks(devices[0]) as (note, _):
            commits = Sample.of(_commits(note, devices[1], count))
    rows = [
        ("enqueue to handler start on another device, p50", starts, 0.5),
        ("enqueue to handler start on another device, p99", starts, 0.99),
        ("durable write to commit on another device, p50", commits, 0.5),
        ("durable write to commit on another device, p99", commits, 0.99),
    ]
    return [Figure(name, sample.percentile(share), "ms", targets.get(name, Target()), spread=sample.spread) for name, sample, share in rows]


def _starts(note: Any, there: HostedDevice, count: int) -> list[float]:
    """Milliseconds from the call that enqueues to the handler's start on the other device."""
    for sent in range(count + 1):
        time.sleep(random.uniform(*PAUSE))
        note.enqueue(time.monotonic_ns())
        until(lambda sent=sent: len(there.marked()) > sent, "the handler starts", every=0.002)  # type: ignore[misc]
    return [(started - sent) / 1e6 for sent, started in there.marked()[1:]]


def _commits(note: Any, there: HostedDevice, count: int) -> list[float]:
    """Milliseconds from when a job is durable here to when another process sees it in the other device's database."""
    found = []
    with sqlite3.connect(f"file:{there.home.replica_file}?mode=ro", uri=True, isolation_level=None) as database:
        for number in range(count + 1):
            time.sleep(random.uniform(*PAUSE))
            job = note.enqueue(0)
            durable = time.monotonic()
            version = -1
            while True:
                (seen,) = database.execute("PRAGMA data_version").fetchone()
                if seen != version and database.execute("SELECT 1 FROM jobs WHERE id = ?", (job.id,)).fetchone():
                    break
                version = seen
                time.sleep(LOOK_EVERY)
            if number:
                found.append((time.monotonic() - durable) * 1000)
    database.close()
    return found


def figures_of_duplicates(folder: Path, targets: Mapping[str, Target], *, count: int) -> list[Figure]:
    """The rows about jobs that run more than once although all is well."""
    with space(folder, 3) as devices:
        start_linked(devices)
        with _tasks(devices[0]) as (note, queue):
            begun = time.monotonic()
            for start in range(1, count + 1, PART):
                note.enqueue_many([(number,) for number in range(start, min(start + PART, count + 1))])
            until(
                lambda: not any(queue.counts().get(status) for status in ("queued", "running")), "all jobs end", limit=JOB_LIMIT, every=0.2
            )
            took = time.monotonic() - begun
        until(lambda: all(each.is_in_sync(2) for each in devices), "all count the same")
        runs = Counter(number for device in devices for number, _ in device.marked())
        shares = [len(device.marked()) / runs.total() for device in devices]
    if len(runs) != count:
        raise RuntimeError(f"{len(runs)} of {count} jobs ran")
    name, rate = "duplicates among short jobs on 3 devices", "short jobs on 3 devices"
    return [
        Figure(name, 100 * (runs.total() - count) / count, "%", targets.get(name, Target())),
        Figure(rate, count / took, "jobs/s", targets.get(rate, Target())),
        Figure("the largest part that one of them ran", 100 * max(shares), "%"),
    ]


def _are_over(queue: Queue) -> bool:
    counts = queue.counts()
    return not any(counts.get(status) for status in ("queued", "running"))


def figures_of_idling(folder: Path, targets: Mapping[str, Target], *, seconds: float) -> list[Figure]:
    """The rows about a node with two peers that has nothing to do."""
    with space(folder, 3) as devices:
        start_linked(devices)
        time.sleep(SETTLING)
        before = [_busy(device) for device in devices]
        begun = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - begun
        shares = Sample.of(100 * (_busy(device) - was) / passed for device, was in zip(devices, before, strict=True))
        memory = Sample.of(device.process.memory_info().rss / 1e6 for device in devices)
    rows = [("idle node with two peers", memory, "MB"), ("idle node with two peers, processor", shares, "% of a core")]
    return [Figure(name, sample.median, unit, targets.get(name, Target()), spread=sample.spread) for name, sample, unit in rows]


def _busy(device: HostedDevice) -> float:
    times = device.process.cpu_times()
    return times.user + times.system


@contextmanager
def _tasks(device: HostedDevice) -> Iterator[tuple[Any, Queue]]:
    """The benchmark's tasks, to be enqueued on a device's home by this process."""
    before = os.environ.get("P2PQUEUE_HOME")
    os.environ["P2PQUEUE_HOME"] = str(device.home.path)
    sys.modules.pop("benchmarks.own.app", None)  # a queue stays with the home of its first use
    app: Any = importlib.import_module("benchmarks.own.app")
    try:
        app.queue.counts()
        yield app.note, app.queue
    finally:
        app.queue.close()
        if before is None:
            del os.environ["P2PQUEUE_HOME"]
        else:
            os.environ["P2PQUEUE_HOME"] = before
