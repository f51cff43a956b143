"""How fast, and in how little memory, is a large file shared and read on one device?

    python benchmarks/payload.py [--quick] [--json]

Prints the table of figures with their targets; exits 1 when one does not hold. The yardstick in the same run is one
bare BLAKE3 pass over the same file: sharing needs three such passes and one of encryption, reading needs one. What one
core does is counted in its CPU time, so that other work on the machine doesn't show.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, Sample, Target, as_json, load_targets, table, verdict

GIB = 1024**3
MIB = 1024**2
RANDOM_PART = 256 * MIB  # the rest of the large file is a hole: it costs no disk, and hashing doesn't mind
SPACE_KEY = bytes(range(32))
YARDSTICK = "BLAKE3 alone"

Measured = dict[str, float]


def figures(folder: Path, targets: Mapping[str, Target], *, quick: bool) -> Iterator[Figure]:
    """All rows, each measured in a process of its own."""
    size, rounds = (GIB if quick else 8 * GIB), (2 if quick else 3)
    large = folder / "large.bin"
    _make_large(large, size)
    hashed = [_run("hash", folder, large) for _ in range(rounds)]
    shared = {threads: [_run("share", folder, large, threads) for _ in range(rounds)] for threads in ("one", "all")}
    read = [_run("read", folder, large) for _ in range(rounds)]
    peers = {key: Sample.of(each[key] for each in hashed).median for key in ("rate", "core")}

    def row(name: str, runs: list[Measured], key: str, unit: str, *, judged: bool = False) -> Figure:
        sample, peer = Sample.of(each[key] for each in runs), peers[key] if judged else None
        return Figure(name, sample.median, unit, targets.get(name, Target()), YARDSTICK if peer else None, peer, sample.spread)

    yield row("share by reference, one core", shared["one"], "core", "GB/CPU s", judged=True)
    yield row("share by reference, all cores", shared["all"], "rate", "GB/s", judged=True)
    yield row("share by reference, memory above idle", shared["one"] + shared["all"], "memory", "MB")
    yield row("share by reference, written", shared["one"] + shared["all"], "written", "MB")
    yield row("read by a handler, one core", read, "core", "GB/CPU s", judged=True)
    yield row("read by a handler", read, "rate", "GB/s", judged=True)
    yield row("read by a handler, memory above idle", read, "memory", "MB")
    large.unlink()
    copied = [_run("copy", folder, folder / "copied.bin") for _ in range(rounds)]
    yield row("share 60 MiB by copy, durable", copied, "rate", "GB/s")
    small = [_run("small", folder, folder / "small.bin", "200" if quick else "1000") for _ in range(rounds)]
    yield row("share files of 4 KiB, durable", small, "rate", "files/s")


def _make_large(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        for _ in range(min(size, RANDOM_PART) // MIB):
            file.write(os.urandom(MIB))
        file.truncate(size)
    with open(path, "rb") as file:  # into the cache, so that the first to read doesn't pay for all
        while file.read(8 * MIB):
            pass


def _run(*arguments: object) -> Measured:
    command = [sys.executable, "-m", "benchmarks.payload", "--one", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    measured: Measured = json.loads(done.stdout)
    return measured


def _measure(what: str, folder: Path, path: Path, detail: str = "") -> Measured:
    """One measurement, in this process."""
    from p2pqueue.home import Home
    from p2pqueue.payload.shelf import Shelf

    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        home = Home(folder / "home" if what in ("share", "read") else Path(fresh))
        if what == "share":
            (home.shelf_file).unlink(missing_ok=True)  # what was shared before would be known
        shelf = Shelf(home, SPACE_KEY, quota=10 * GIB, reserve=0)
        before_files, idle = shelf.usage().stored, _memory("VmRSS")
        work, amount = _work(what, shelf, path, detail)
        start, spent = time.perf_counter(), time.process_time()
        work()
        seconds, spent = time.perf_counter() - start, time.process_time() - spent
        written = shelf.usage().stored - before_files
        measured = {"rate": amount / seconds, "core": amount / spent, "memory": _memory("VmHWM") - idle, "written": written / 1e6}
        shelf.close()
    return measured


def _work(what: str, shelf: object, path: Path, detail: str) -> tuple[Callable[[], object], float]:
    """What is timed, and how much it does: gigabytes, or files."""
    from p2pqueue.payload.file import File
    from p2pqueue.payload.shelf import Shelf

    assert isinstance(shelf, Shelf)
    size = path.stat().st_size / 1e9 if path.exists() else 0.0
    if what == "hash":
        return lambda: _hash(path), size
    if what == "share":
        return lambda: shelf.ingest(path, copy=False, threads=0 if detail == "one" else None), size
    if what == "read":
        stored = shelf.ingest(path, copy=False)
        file = File.granted(path, stored.capability, name=stored.name, size=stored.size, shelf=shelf)
        return lambda: sum(len(piece) for piece in file.chunks()), size
    if what == "copy":
        path.write_bytes(os.urandom(60 * MIB))
        return lambda: shelf.ingest(path), 60 * MIB / 1e9
    contents = [os.urandom(4096) for _ in range(int(detail))]

    def share_all() -> None:
        for content in contents:
            path.write_bytes(content)
            shelf.ingest(path)

    return share_all, len(contents)


def _hash(path: Path) -> bytes:
    from blake3 import blake3

    whole, buffer = blake3(), memoryview(bytearray(8 * MIB))
    with open(path, "rb", buffering=0) as file:
        while read := file.readinto(buffer):
            whole.update(buffer[:read])
    return whole.digest()


def _memory(field: str) -> float:
    """This process's memory in megabytes: VmRSS now, or VmHWM at its most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"the system doesn't tell {field}")


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 GiB instead of 8, under a minute")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        what, folder, path, *detail = chosen.one
        print(json.dumps(_measure(what, Path(folder), Path(path), *detail)))
        return 0
    with tempfile.TemporaryDirectory(prefix="p2pqueue-bench-") as folder:
        rows = list(figures(Path(folder), load_targets("payload"), quick=chosen.quick))
    print(as_json(rows) if chosen.json else table(rows))
    print(verdict(rows), file=sys.stderr)
    return 1 if any(row.holds is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
