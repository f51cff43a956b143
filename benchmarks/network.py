"""How fast do devices find one another, tell one another what is new, and come to hold the same?

    python benchmarks/network.py [--quick] [--json] [--only SECTION]…

All nodes are real processes with homes of their own, on loopback; a dead peer is one whose cable is pulled between
network namespaces, where root may make them, and one that is halted elsewhere. Prints the table of figures with their
targets; exits 1 when one does not hold.
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

from benchmarks import linking, meeting, network_rtc, pushing, syncing
from benchmarks.figure import Figure, Target, as_json, load_targets, table, verdict
from benchmarks.yardstick import judged

SECTIONS = ("linking", "pushing", "meeting", "direct", "losing", "duplicates", "idling")


@dataclass(frozen=True)
class Effort:
    """How much is measured; `quick` takes about a minute in all."""

    quick: bool

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 9

    @property
    def pushes(self) -> int:
        return 40 if self.quick else 500

    @property
    def sizes(self) -> syncing.Sizes:
        return syncing.QUICK if self.quick else syncing.Sizes()

    @property
    def transfers(self) -> dict[str, int]:
        return {"megabytes": 20, "rounds": 1, "connects": 3} if self.quick else {"megabytes": 100, "rounds": 9, "connects": 20}

    @property
    def cuts(self) -> int:
        return 1 if self.quick else 20

    @property
    def short_jobs(self) -> int:
        return 1_000 if self.quick else 10_000

    @property
    def idle_seconds(self) -> float:
        return 6.0 if self.quick else 30.0


def measure(folder: Path, effort: Effort, sections: frozenset[str]) -> Iterator[Figure]:
    """All figures of these sections, one section after the other."""
    targets = load_targets("network")
    for section in SECTIONS:
        if section in sections:
            print(f"measuring {section} …", file=sys.stderr)
            yield from judged(partial(_section, section, folder / section, effort, targets))


def _section(name: str, folder: Path, effort: Effort, targets: Mapping[str, Target]) -> list[Figure]:
    measures: dict[str, Callable[[], list[Figure]]] = {
        "linking": lambda: linking.figures(folder, targets, rounds=effort.rounds),
        "pushing": lambda: pushing.figures(folder, targets, count=effort.pushes),
        "meeting": lambda: meeting.figures(folder, targets, sizes=effort.sizes),
        "direct": lambda: network_rtc.figures(targets, **effort.transfers),
        "losing": lambda: linking.figures_of_losing(folder, targets, rounds=effort.cuts, long_cut=not effort.quick),
        "duplicates": lambda: pushing.figures_of_duplicates(folder, targets, count=effort.short_jobs),
        "idling": lambda: pushing.figures_of_idling(folder, targets, seconds=effort.idle_seconds),
    }
    return measures[name]()


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds, about a minute")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="measure this section only; can be repeated")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="p2pq-") as folder:
        figures = list(measure(Path(folder), Effort(chosen.quick), frozenset(chosen.only or SECTIONS)))
    print(as_json(figures) if chosen.json else table(figures))
    print(verdict(figures), file=sys.stderr)
    return 1 if any(figure.holds is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
