"""How many register writes of a peer does an empty replica merge in a second, in batches of 1,000?

The writes are those that a queue makes: jobs with a signed `spec`, their `state`, and the row of their run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.claiming import finished
from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.contender import make_home
from p2pqueue.identity import keys
from p2pqueue.jobs.opening import open_replica
from p2pqueue.replica.write import Write

BATCH = 1000  # the knee: larger batches gain nothing


def figures(folder: Path, targets: Mapping[str, Target], *, rounds: int, jobs: int) -> list[Figure]:
    """The row about merging: every round into a new replica of the same space."""
    writes = _made(folder / "source", jobs)
    rates = Sample.of(_merge(folder / f"target-{number}", folder / "source", writes) for number in range(rounds))
    name = "merging, batches of 1,000"
    return [Figure(name, rates.median, "writes/s", targets.get(name, Target()), spread=rates.spread)]


def _made(folder: Path, jobs: int) -> list[Write]:
    home = make_home(folder)
    replica = open_replica(home, keys.load(home))
    try:
        finished(replica, jobs)
        found = replica.live_writes(above={}, limit=10 * jobs)
    finally:
        replica.close()
    return sorted(found, key=lambda write: write.seq)


def _merge(folder: Path, source: Path, writes: list[Write]) -> float:
    """Writes merged per second by a replica of the same owner: it holds the keys that the signatures are checked by."""
    home = make_home(folder)
    replica = open_replica(home, keys.load(home))
    try:
        started = time.perf_counter()
        for start in range(0, len(writes), BATCH):
            replica.merge(writes[start : start + BATCH])
        return len(writes) / (time.perf_counter() - started)
    finally:
        replica.close()
