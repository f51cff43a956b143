"""How many jobs that do nothing does a full queue work off in a second, beside the peers?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.contender import P2PQueue
from benchmarks.peers.contender import Contender

OWN_SLOTS = "64"
YARDSTICK = "Huey Redis"
WAYS = {  # what each peer offers for many jobs on two cores; the best of them counts
    "Huey SQLite": ("thread:1", "process:2"),
    "Huey Redis": ("thread:1", "process:2", "process:4"),
    "RQ": ("SimpleWorker",),
    "Dramatiq": ("2:8", "2:32"),
}
SLOW = {"RQ": 10}  # this peer gets so much fewer jobs


def figures(folder: Path, peers: Mapping[str, Contender], targets: Mapping[str, Target], *, rounds: int, count: int) -> list[Figure]:
    """The rows about no-op jobs: ours inline with 64 slots, each peer at its best."""
    own = P2PQueue(folder)
    ways = {name: WAYS[name] for name in peers}
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        rates.setdefault((own.name, OWN_SLOTS), []).append(own.drain(count * 4, OWN_SLOTS))
        for name, peer in peers.items():
            for way in ways[name]:
                rates.setdefault((name, way), []).append(peer.drain(max(500, count // SLOW.get(name, 1)), way))
    ours = Sample.of(rates[own.name, OWN_SLOTS])
    best = {name: max(Sample.of(rates[name, way]).median for way in ways[name]) for name in peers}
    name = "no-op jobs, 64 inline"
    rows = []
    for rival in sorted(best, key=lambda each: each != YARDSTICK):
        target = targets.get(name, Target()) if rival == YARDSTICK else Target()
        rows.append(Figure(name, ours.median, "jobs/s", target, rival, best[rival], ours.spread))
    return rows or [Figure(name, ours.median, "jobs/s", targets.get(name, Target()), spread=ours.spread)]
