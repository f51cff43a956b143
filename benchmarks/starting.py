"""How soon after an enqueue does the handler start on an idle node, and how soon is its progress seen elsewhere?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.contender import P2PQueue, latencies_in_one_process
from benchmarks.peers.contender import Contender

CONCURRENCY = {"Huey SQLite": "thread:1", "Huey Redis": "thread:1", "RQ": "Worker", "Dramatiq": "1:8"}  # their defaults


def figures(folder: Path, peers: Mapping[str, Contender], targets: Mapping[str, Target], *, count: int) -> list[Figure]:
    """The rows about starting, ours in four ways; the peers' node is always another process."""
    samples = {
        "inline, same process": latencies_in_one_process(folder / "inline", count, "note"),
        "warm child, same process": latencies_in_one_process(folder / "child", count, "note_child"),
    }
    own = P2PQueue(folder / "other")
    samples["inline, other process"] = own.latencies(count, "2")
    own.note_task = own.app.note_child
    samples["warm child, other process"] = own.latencies(count, "2")
    theirs = {name: Sample.of(peer.latencies(max(20, count // 4), CONCURRENCY[name])) for name, peer in peers.items()}
    rows = []
    for way, values in samples.items():
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            name = f"start {label}, {way}"
            sample = Sample.of(values)
            rows.append(Figure(name, sample.percentile(share), "ms", targets.get(name, Target()), spread=sample.spread))
            if way == "inline, other process":
                value = sample.percentile(share)
                rows += [Figure(name, value, "ms", Target(), peer, other.percentile(share)) for peer, other in theirs.items()]
    return [*rows, progress(own, targets)]


def progress(own: P2PQueue, targets: Mapping[str, Target], *, count: int = 20, seconds: float = 4.0) -> Figure:
    """How long after a handler's step another process sees it."""
    with own.consuming("2") as marks:
        job = own.app.steps.enqueue(count, seconds)
        seen: dict[int, int] = {}
        for event in job.watch():
            seen.setdefault(round(event.fraction * count), time.monotonic_ns())
        made = dict(marks.read())
    delays = Sample.of((seen[step] - made[step]) / 1e6 for step in made if step in seen)
    name = "progress seen by another process, max"
    return Figure(name, max(delays.values), "ms", targets.get(name, Target()), spread=delays.spread)
