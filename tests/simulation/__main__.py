"""Runs seeds: `python -m tests.simulation SEED` one, with its trace if it fails; `--seeds N --start K` many."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.plan import plan
from tests.simulation.runner import run_plan, run_seed, shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="run this seed alone, and shrink it if it fails")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first")
    parser.add_argument("--stop-after", type=int, default=10, help="failures")
    parser.add_argument("--no-shrink", action="store_true")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(arguments.seed, shrinks=not arguments.no_shrink)
    return _many(range(arguments.start, arguments.start + arguments.seeds), arguments.stop_after)


def _one(seed: int, *, shrinks: bool) -> int:
    outcome = run_seed(seed)
    if outcome.problem is None:
        print(f"seed {seed} holds; settled {outcome.settled_after:.0f} s after the storm")
        return 0
    print(f"seed {seed} fails {outcome.problem}")
    if shrinks:
        short = shrink(plan(seed), lambda line: print(line, file=sys.stderr))
        print(short)
        print(run_plan(short).problem)
    return 1


def _many(seeds: range, stop_after: int) -> int:
    met: Counter[str] = Counter()
    failed = []
    began = time.monotonic()
    longest = 0.0
    for seed in seeds:
        outcome = run_seed(seed)
        met.update(dict.fromkeys(outcome.met, 1))
        longest = max(longest, outcome.settled_after)
        if outcome.problem is not None:
            failed.append(seed)
            print(f"seed {seed} fails {outcome.problem}", flush=True)
            if len(failed) == stop_after:
                break
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.1f} s; longest settling {longest:.0f} s; failed: {failed}")
    for marker, count in sorted(met.items()):
        print(f"{count:6} seeds met: {marker}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
