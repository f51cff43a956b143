"""How much memory and disk does a file of 8 GiB take that is enqueued by reference and read by a handler?"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.figure import Figure, Target
from benchmarks.own.contender import P2PQueue
from benchmarks.peers.contender import running
from p2pqueue import File

MIB = 1024 * 1024
RANDOM_PART = 64 * MIB  # at each end; the middle is a hole, which reads like any other part and takes no disk
LOOK_EVERY = 0.01  # seconds between two looks at the memory of a process
JOB_LIMIT = 300.0  # seconds


def figures(folder: Path, targets: Mapping[str, Target], *, size: int) -> list[Figure]:
    """The rows about one large file: the process that grew most, and what the home grew by."""
    large = folder / "large.bin"
    _make(large, size)
    own = P2PQueue(folder / "queue")
    command, environment = own.consumer("1")
    with running(command, environment | {"BENCH_MARKS": str(folder / "marks")}, log=folder / "log") as node:
        own.app.note_child.enqueue(0).result(timeout=30)  # the node is up, and its child has worked
        before = _disk(own.home.path)
        with _watched(node.pid) as growth:
            job = own.app.read_all.enqueue(File(large))
            if job.result(timeout=JOB_LIMIT) != size:
                raise RuntimeError("the handler read another size than was enqueued")
            while job.row.input_manifest is None:  # sealing goes on in the node until the manifest is written
                time.sleep(0.1)
        copied = _disk(own.home.path) - before
    large.unlink()
    above, on_enqueue = "8 GiB by reference, above idle", "8 GiB by reference, copied on enqueue"
    return [
        Figure(above, max(growth.values()) / 1e6, "MB", targets.get(above, Target())),
        Figure(on_enqueue, max(0, copied) / 1e6, "MB", targets.get(on_enqueue, Target())),
    ]


def _make(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for start in (0, size - RANDOM_PART):
            file.seek(start)
            for _ in range(RANDOM_PART // MIB):
                file.write(os.urandom(MIB))


def _disk(folder: Path) -> int:
    return sum(entry.stat().st_blocks * 512 for entry in folder.rglob("*") if entry.is_file())


@contextmanager
def _watched(node: int) -> Iterator[dict[int, int]]:
    """By how many bytes this process, the node and each of its children grow at most while the block runs."""
    idle = {process.pid: process.memory_info().rss for process in _processes(node)}
    growth = dict.fromkeys(idle, 0)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(LOOK_EVERY):
            for process in _processes(node):
                try:
                    grown = process.memory_info().rss - idle.setdefault(process.pid, process.memory_info().rss)
                except psutil.Error:
                    continue
                growth[process.pid] = max(growth.get(process.pid, 0), grown)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield growth
    finally:
        stop.set()
        looking.join()


def _processes(node: int) -> list[psutil.Process]:
    parent = psutil.Process(node)
    return [psutil.Process(), parent, *parent.children(recursive=True)]
