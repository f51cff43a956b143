"""How fast does a large file come from another device, beside what people use for that?

    python -m benchmarks.transfers [--quick] [--json] [--only SECTION]…

Two or three real nodes on loopback, and in the same run rsync's daemon, nginx with curl, Syncthing and magic-wormhole,
as far as they are installed. Files lie in memory where there is enough of it, so that the disk doesn't decide; every
contender's time ends when its file is synced. Prints the table of figures with their targets; exits 1 when one does
not hold.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import psutil

from benchmarks.carriers.installed import carrier, names
from benchmarks.figure import Figure, Target, as_json, load_targets, table, verdict
from benchmarks.own.host import HostedDevice, space, start_linked, until
from p2pqueue.errors import P2PQueueError
from p2pqueue.jobs.bringing import bring

MIB = 1024**2
SECTIONS = ("large", "sources", "resuming", "lanes")
FREE_TIMES = 8  # so many times the size of a file must be free in memory for the files to lie there
LOOK_EVERY = 0.05  # seconds between two looks at the memory of the nodes
CUT_AT = 0.6  # of the file, when the node that fetches is killed

_numbers = count()


def make_file(folder: Path, size: int) -> Path:
    """A file of that many random bytes, another one each time."""
    path = folder / f"large-{next(_numbers)}.bin"
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
    return path


def fetch(device: HostedDevice, capability: str, size: int) -> tuple[float, list[tuple[str, str, int]]]:
    """Has a device fetch a file; gives the seconds, and from whom how many bytes came by which lane."""
    begun = time.monotonic()
    received = bring(device.home, capability)
    took = time.monotonic() - begun
    if sum(each[2] for each in received) < size:
        raise RuntimeError("it was here already")
    return took, received


def figures_of_large(folder: Path, targets: Mapping[str, Target], *, size: int, rounds: int) -> Iterator[Figure]:
    """One large file: ours in MB/s beside each peer, and what the nodes grow by meanwhile."""
    root = folder / "files"
    root.mkdir()
    theirs: dict[str, list[float]] = {}
    ours, growth = [], []
    with space(folder / "space", 2) as devices:
        start_linked(devices, "--no-work")
        for number in range(rounds):  # by turns, so that what the machine does meanwhile meets all alike
            source = make_file(root, size)
            with watched(devices) as grown:
                capability = str(devices[0].run("share", str(source))["manifest"])
                ours.append(size / fetch(devices[1], capability, size)[0] / 1e6)
            growth.append(max(grown.values()))
            for name in names():
                with carrier(name, folder / f"peers-{number}", root) as peer:
                    if peer is not None:
                        target = folder / f"got-{next(_numbers)}"
                        theirs.setdefault(name, []).append(size / peer.carry(source, target) / 1e6)
                        remove(target)
            source.unlink()
    value, spread = statistics.median(ours), (min(ours), max(ours))
    what = "a large file from another device"
    for name in names():
        row = f"{what}, beside {name}"
        peer_value = statistics.median(theirs[name]) if name in theirs else None
        yield Figure(row, value, "MB/s", targets.get(row, Target()), name if peer_value else None, peer_value, spread)
    row = f"{what}, memory above idle"
    yield Figure(row, max(growth) / 1e6, "MB", targets.get(row, Target()))


def figures_of_sources(folder: Path, targets: Mapping[str, Target], *, size: int) -> Iterator[Figure]:
    """Two devices, of which each is limited, beside one alone."""
    folder.mkdir(exist_ok=True)
    with space(folder / "space", 3) as devices:
        start_linked(devices, "--no-work")
        first, second = make_file(folder, size), make_file(folder, size)
        alone, shared = (str(devices[0].run("share", str(path))["manifest"]) for path in (first, second))
        fetch(devices[1], shared, size)
        for device in devices:
            device.stop()
        rate = f"{size // 8 // MIB}MiB"  # a second: eight seconds for one
        known: list[str] = []
        for device in devices[:2]:
            device.start("--no-discovery", "--listen", "127.0.0.1:0", "--no-work", "--rate", rate, *known)
            known += ["--peer", device.listens_at]
        devices[2].start("--no-discovery", "--listen", "127.0.0.1:0", "--no-work", *known)
        until(lambda: all(each.is_direct(2) and each.is_in_sync(2) for each in devices), "all are linked")
        one = size / fetch(devices[2], alone, size)[0] / 1e6
        two = size / fetch(devices[2], shared, size)[0] / 1e6
    row = "two sources that are limited, beside one"
    yield Figure(row, two, "MB/s", targets.get(row, Target()), "one of them", one)


def figures_of_resuming(folder: Path, targets: Mapping[str, Target], *, size: int) -> Iterator[Figure]:
    """What is fetched again after a kill in the middle."""
    folder.mkdir(exist_ok=True)
    with space(folder / "space", 2) as devices:
        start_linked(devices, "--no-work")
        source = make_file(folder, size)
        capability = str(devices[0].run("share", str(source))["manifest"])
        for who, row in ((1, "fetched again after the receiver is killed"), (0, "fetched again after the sender is killed")):
            victim, receiver = devices[who], devices[1]
            came = [0]

            def stop_there(done: int, whole: int, came: list[int] = came, victim: HostedDevice = victim) -> None:
                if done >= CUT_AT * whole and not came[0]:
                    came[0] = done
                    victim.signal(signal.SIGKILL)

            try:
                bring(receiver.home, capability, on_progress=stop_there)
            except P2PQueueError:
                pass
            if not came[0]:
                raise RuntimeError("it was whole before it could be cut")
            victim.stop()
            for device in devices:
                device.stop()
            start_linked(devices, "--no-work")
            _, received = fetch(receiver, capability, 0)
            again = max(0.0, sum(each[2] for each in received) - (size - came[0])) / size
            yield Figure(row, 100 * again, "%", targets.get(row, Target()))
            if who:
                source = make_file(folder, size)
                capability = str(devices[0].run("share", str(source))["manifest"])


def figures_of_lanes(folder: Path, targets: Mapping[str, Target], *, size: int) -> Iterator[Figure]:
    """Each lane alone."""
    folder.mkdir(exist_ok=True)
    for lane in ("http", "webrtc"):
        with space(folder / lane, 2) as devices:
            start_linked(devices, "--no-work", "--lanes", lane, directly=lane == "webrtc")
            part = size if lane == "http" else size // 4
            source = make_file(folder, part)
            capability = str(devices[0].run("share", str(source))["manifest"])
            took, received = fetch(devices[1], capability, part)
            if {each[1] for each in received} != {lane}:
                raise RuntimeError(f"other lanes than {lane} were used: {received}")
            row = f"a large file, {lane} alone"
            yield Figure(row, part / took / 1e6, "MB/s", targets.get(row, Target()))
            source.unlink()


@contextmanager
def watched(devices: Sequence[HostedDevice]) -> Iterator[dict[str, int]]:
    """By how many bytes each node grows at most, by label, once the block has ended."""
    before = {device.label: device.process.memory_info().rss for device in devices}
    most = dict(before)
    grown: dict[str, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY):
            for device in devices:
                most[device.label] = max(most[device.label], device.process.memory_info().rss)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield grown
    finally:
        over.set()
        thread.join()
        grown.update({label: most[label] - before[label] for label in before})


def remove(path: Path) -> None:
    """Removes a file, or a folder with all in it."""
    if path.is_dir():
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def roomy(size: int) -> str | None:
    """Where files lie in memory, if there is room for files of that size; else None, for the usual place."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and psutil.disk_usage(str(memory)).free > FREE_TIMES * size else None


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="measure this section only; can be repeated")
    chosen = parser.parse_args()
    size, rounds = (256 * MIB, 1) if chosen.quick else (1024 * MIB, 3)
    targets = load_targets("transfers")
    measures: dict[str, Callable[[Path], Iterator[Figure]]] = {
        "large": partial(figures_of_large, targets=targets, size=size, rounds=rounds),
        "sources": partial(figures_of_sources, targets=targets, size=size // 2),
        "resuming": partial(figures_of_resuming, targets=targets, size=size),
        "lanes": partial(figures_of_lanes, targets=targets, size=size),
    }
    figures: list[Figure] = []
    for section in chosen.only or SECTIONS:
        with tempfile.TemporaryDirectory(prefix="p2pq-", dir=roomy(size)) as folder:
            print(f"measuring {section} …", file=sys.stderr)
            figures += measures[section](Path(folder) / section if section != "large" else Path(folder))
    print(as_json(figures) if chosen.json else table(figures))
    print(verdict(figures), file=sys.stderr)
    return 1 if any(figure.holds is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
