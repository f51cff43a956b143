"""How much slower are thousands of small files than one file of their size?

    python benchmarks/small_files.py [--quick] [--json]

Prints the table of figures with their targets; exits 1 when one does not hold. The peer of each row is one file of the
same size in the same run; the files have the sizes of a collection of drawings: 173 MB in 7,458, most of them below
20 KB. They lie in memory where there is room: ext4 takes seconds to make thousands of files where as many were deleted
just before. On one device the processor's time is counted as well, so that other work on the machine doesn't show. What the
disk makes of so many files is shown by `cp -r` beside it.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, Sample, Target, as_json, load_targets, table, verdict
from benchmarks.transfers import roomy

COUNT = 7_458
SIZE = 173_000_000  # bytes in all
FOLDERS = 280
SPACE_KEY = bytes(range(32))
ROOM = 8 * 1024**3  # bytes that the shelf may take
ONE = "one file"


def figures(folder: Path, targets: Mapping[str, Target], *, rounds: int, share: float) -> Iterator[Figure]:
    """All rows; `share` is which part of the files is taken."""
    many, one = folder / "many", folder / "one.bin"
    size = make_many(many, int(COUNT * share), int(SIZE * share))
    one.write_bytes(os.urandom(size))
    measured: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, taken in _alone(folder, many, one).items():
            measured.setdefault(name, []).append(taken)
    yield from _rows(measured, targets, size)
    yield from _between_nodes(folder, many, one, targets, size, rounds)


def make_many(base: Path, count: int, size: int) -> int:
    """Makes the small files, the same at every run; gives the bytes of all."""
    chance = random.Random(1)
    wanted = [chance.lognormvariate(9.1, 1.25) + 50 for _ in range(count)]
    factor = size / sum(wanted)
    total = 0
    for number, each in enumerate(wanted):
        path = base / f"group {number % 40:02}" / f"set {number % 7}" / f"drawing {number:05}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(max(20, int(each * factor))))
        total += path.stat().st_size
    return total


def _alone(folder: Path, many: Path, one: Path) -> dict[str, tuple[float, float]]:
    """Seconds, and seconds of the processor, of each thing that is done on one device."""
    from p2pqueue.home import Home
    from p2pqueue.payload.shelf import Shelf

    taken: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        place = Path(fresh)
        shelf = Shelf(Home(place / "home"), SPACE_KEY, quota=ROOM, reserve=0)
        shelf.ingest_bytes(b"opened", "opened")
        for what, source in (("one", one), ("many", many)):
            share, target = functools.partial(shelf.ingest, source, copy=False), place / what
            taken[f"share {what}"] = _timed(share)
            taken[f"again {what}"] = _timed(share)
            taken[f"get {what}"] = _timed(functools.partial(shelf.fetch_to, share().capability, target))
        taken["cp many"] = _timed(lambda: subprocess.run(["cp", "-r", str(many), str(place / "cp")], check=True))
        shelf.close()
    return taken


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def _rows(measured: Mapping[str, list[tuple[float, float]]], targets: Mapping[str, Target], size: int) -> Iterator[Figure]:
    def speeds(name: str, which: int) -> Sample:
        return Sample.of(size / each[which] / 1e6 for each in measured[name])

    for words, key in (("share", "share"), ("get on the same device", "get")):
        for unit, which in (("MB/s", 0), ("MB/CPU s", 1)):
            name = f"{words} many small files" + (", one core" if which else "")
            sample, peer = speeds(f"{key} many", which), speeds(f"{key} one", which)
            yield Figure(name, sample.median, unit, targets.get(name, Target()), ONE, peer.median, sample.spread)
    copied = speeds("cp many", 0)
    yield Figure("cp -r of the same", copied.median, "MB/s", spread=copied.spread)
    again = Sample.of(each[0] * 1000 for each in measured["again many"])
    first = Sample.of(each[0] * 1000 for each in measured["share many"])
    name = "share them again, unchanged"
    yield Figure(name, again.median, "ms", targets.get(name, Target()), "the first time", first.median, again.spread)


def _between_nodes(folder: Path, many: Path, one: Path, targets: Mapping[str, Target], size: int, rounds: int) -> Iterator[Figure]:
    from benchmarks.own.host import space, until

    quietly = ("--no-work", "--no-discovery", "--listen", "127.0.0.1:0")
    speeds: dict[str, list[float]] = {"one": [], "many": []}
    with space(folder, 2) as (first, second):
        first.start(*quietly)
        try:
            second.start(*quietly, "--peer", first.listens_at)
            until(lambda: first.is_in_sync() and second.is_in_sync(), "linked and syncing")
            for number in range(rounds):
                for what, source in (("one", one), ("many", many)):
                    manifest = first.run("share", str(source))["manifest"]
                    target = folder / f"{what}-{number}"
                    begun = time.monotonic()
                    second.run("get", manifest, "-o", str(target))
                    speeds[what].append(size / (time.monotonic() - begun) / 1e6)
                    second.run("files", "evict", manifest, "--force")
                    shutil.rmtree(target) if target.is_dir() else target.unlink()
        finally:
            second.stop()
            first.stop()
    name = "get many small files from another node"
    found, peer = Sample.of(speeds["many"]), Sample.of(speeds["one"])
    yield Figure(name, found.median, "MB/s", targets.get(name, Target()), ONE, peer.median, found.spread)


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, a fifth of the files")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    parser.add_argument("--folder", type=Path, help="where the files are made and written; by default in memory, where there is room")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="p2pqueue-bench-", dir=chosen.folder or roomy(SIZE)) as folder:
        rounds, share = (1, 0.2) if chosen.quick else (3, 1.0)
        rows = list(figures(Path(folder), load_targets("small_files"), rounds=rounds, share=share))
    print(as_json(rows) if chosen.json else table(rows))
    print(verdict(rows), file=sys.stderr)
    return 1 if any(row.holds is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
