"""How much does p2pqueue weigh: a command's start, an idle node, an idle child?"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.contender import P2PQueue
from benchmarks.peers.contender import ROOT, python, repeat, running, timed

SETTLING = 3.0  # seconds that an idle node gets before it is weighed


def figures(folder: Path, targets: Mapping[str, Target], *, starts: int) -> list[Figure]:
    """The rows about start and memory; MB are 10^6 bytes."""
    own = P2PQueue(folder)
    repeat(own.noop, 200)
    _list(own)  # compiles what the installation would have compiled
    cold, bare = [], []
    for _ in range(starts):  # in turns, so that a busy machine is busy for both
        cold.append(1000 * timed(lambda: _list(own)))
        bare.append(1000 * timed(lambda: _run(python("-c", "pass"))))
    node, children = _weigh(own)
    name, sample = "p2pqueue list, cold", Sample.of(cold)
    rows = [Figure(name, sample.median, "ms", targets.get(name, Target()), "bare python", Sample.of(bare).median, sample.spread)]
    rows.append(Figure("idle node", node, "MB", targets.get("idle node", Target())))
    if children:
        rows.append(Figure("idle child", max(children), "MB", targets.get("idle child", Target()), spread=(min(children), max(children))))
    return rows


def _list(own: P2PQueue) -> None:
    _run(python("-m", "p2pqueue", "--home", str(own.home.path), "list"))


def _run(command: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # whoever installed it starts it compiled
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)


def _weigh(own: P2PQueue) -> tuple[float, list[float]]:
    command, environment = own.consumer("2")
    with running(command, environment | {"BENCH_MARKS": str(own.folder / "weighing")}) as node:
        own.app.note_child.enqueue(0).result(timeout=30)  # a child has worked, and the jobs before it are done
        time.sleep(SETTLING)
        process = psutil.Process(node.pid)
        return process.memory_info().rss / 1e6, [child.memory_info().rss / 1e6 for child in process.children()]
