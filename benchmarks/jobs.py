"""How fast and how light is the queue on one device, beside Huey, RQ and Dramatiq in the same run?

    python benchmarks/jobs.py [--quick] [--json] [--only SECTION]…

Prints the table of figures with their targets; exits 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import claiming, draining, enqueueing, footprint, large, replication, starting
from benchmarks.figure import Figure, Sample, Target, as_json, load_targets, table, verdict
from benchmarks.own.contender import P2PQueue
from benchmarks.peers.contender import Contender
from benchmarks.peers.installed import installed_peers
from benchmarks.yardstick import judged

SECTIONS = ("enqueueing", "starting", "draining", "claiming", "merging", "footprint", "large")
QUICK_PEERS = frozenset({"Huey SQLite", "Huey Redis"})  # those that a target names


@dataclass(frozen=True)
class Effort:
    """How much is measured; `quick` takes a minute or two in all."""

    quick: bool

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 5

    @property
    def jobs(self) -> int:
        return 2_048 if self.quick else 3_200

    @property
    def starts(self) -> int:
        return 25 if self.quick else 300

    @property
    def sizes(self) -> claiming.Sizes:
        return claiming.Sizes(20_000, 5_000, 5_000, 8_000) if self.quick else claiming.Sizes()


def measure(folder: Path, effort: Effort, sections: frozenset[str]) -> Iterator[Figure]:
    """All figures of these sections, one section after the other."""
    targets = load_targets("jobs")
    with installed_peers(folder, names=QUICK_PEERS if effort.quick else None) as peers:
        for section in SECTIONS:
            if section in sections:
                print(f"measuring {section} …", file=sys.stderr)
                yield from judged(partial(_section, section, _made(folder / section), effort, peers, targets))


def _section(name: str, folder: Path, effort: Effort, peers: Mapping[str, Contender], targets: Mapping[str, Target]) -> list[Figure]:
    measures: dict[str, Callable[[], list[Figure]]] = {
        "enqueueing": lambda: enqueueing.figures(P2PQueue(folder), peers, targets, rounds=effort.rounds, count=effort.jobs),
        "starting": lambda: starting.figures(folder, peers, targets, count=effort.starts),
        "draining": lambda: draining.figures(folder, peers, targets, rounds=1 if effort.quick else 3, count=effort.jobs),
        "claiming": lambda: claiming.figures(folder, targets, sizes=effort.sizes),
        "merging": lambda: [_merging(folder, targets, effort)],
        "footprint": lambda: footprint.figures(folder, targets, starts=5 if effort.quick else 21),
        "large": lambda: large.figures(folder, targets, size=(1 if effort.quick else 8) << 30),
    }
    return measures[name]()


def _merging(folder: Path, targets: Mapping[str, Target], effort: Effort) -> Figure:
    rates, _, _ = replication.merging(replication.Scene(folder), effort.rounds, 4_000 if effort.quick else 20_000)
    name, sample = "merging, batches of 1,000", Sample.of(rates)
    return Figure(name, sample.median, "writes/s", targets.get(name, Target()), spread=sample.spread)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer peers, a minute or two")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="measure this section only; can be repeated")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="p2pqueue-bench-") as folder:
        figures = list(measure(Path(folder), Effort(chosen.quick), frozenset(chosen.only or SECTIONS)))
    print(as_json(figures) if chosen.json else table(figures))
    print(verdict(figures), file=sys.stderr)
    return 1 if any(figure.holds is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
