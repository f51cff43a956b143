"""How fast do two devices come to hold the same, beside PouchDB's replication in the same run?

    python benchmarks/syncing.py [--quick] [--json]

Each device is a process with a home of its own; between them is a plain TCP connection on loopback, without the
sealing of the real link. Every commit is durable, every signature is checked before a job counts. PouchDB (LevelDB,
both databases in one process, no signatures) is installed by npm for the run; where that can't be had it is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, Sample, Target, as_json, load_targets, table, verdict
from benchmarks.yardstick import judged
from p2pqueue.home import Home
from p2pqueue.identity import keys

ROOT = Path(__file__).resolve().parents[1]
POUCHDB = "pouchdb@9"
INSTALL_LIMIT = 180.0  # seconds
WAIT_LIMIT = 600.0  # seconds for one step
PAUSE = 0.02  # seconds between two timed writes


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    jobs: int = 100_000
    edited: int = 10_000
    writes: int = 300
    documents: int = 20_000  # of PouchDB: its rate hardly depends on how many


QUICK = Sizes(jobs=5_000, edited=1_000, writes=50, documents=2_000)


class Device:
    """A device in a process of its own."""

    def __init__(self, home: Home) -> None:
        command = [sys.executable, "-m", "benchmarks.own.device", str(home.path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def tell(self, *command: object) -> None:
        """Gives a command, whose answer is heard later."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """The next answer. Raises `RuntimeError` where the device has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a device of the benchmark ended with exit code {self._process.wait()}")
        return json.loads(line)

    def ask(self, *command: object) -> Any:
        """Gives a command, and its answer."""
        self.tell(*command)
        return self.hear()

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self._process.communicate()


@contextmanager
def pair(folder: Path) -> Iterator[tuple[Device, Device]]:
    """Two devices of one space."""
    here, there = Home(folder / "here"), Home(folder / "there")
    identity = keys.create(here, space_name="bench", label="here")
    keys.restore(there, keys.export_space(identity), "there")
    devices = Device(here), Device(there)
    try:
        yield devices
    finally:
        for device in devices:
            device.stop()


def figures(folder: Path, targets: Mapping[str, Target], *, sizes: Sizes) -> list[Figure]:
    """The rows about replication."""
    pouchdb = measure_pouchdb(folder, sizes)
    cold = f"cold sync, {sizes.jobs:,} jobs of three registers"
    meeting = f"the same {sizes.edited:,} jobs changed apart, until equal"
    with pair(folder) as (here, there):
        here.ask("make", sizes.jobs)
        idle = there.ask("usage")["rss"]
        begun = there.ask("join", here.ask("port"))
        rate = sizes.jobs / (there.ask("equal", WAIT_LIMIT) - begun)
        grown = there.ask("usage")["rss"] - idle
        delays = Sample.of(_live(here, there, sizes.writes))
        seconds = _apart(here, there, sizes.edited)
    rows = [
        (cold, rate, "jobs/s", pouchdb.get("cold"), None),
        ("cold sync, memory of the receiver above idle", grown, "MB", None, None),
        ("durable write here, committed there, p50", delays.percentile(0.5), "ms", None, delays.spread),
        ("durable write here, committed there, p99", delays.percentile(0.99), "ms", None, delays.spread),
        (meeting, seconds, "s", pouchdb.get("meeting"), None),
    ]
    return [
        Figure(name, value, unit, targets.get(name, Target()), "PouchDB" if theirs else None, theirs, spread)
        for name, value, unit, theirs, spread in rows
    ]


def _live(here: Device, there: Device, count: int) -> list[float]:
    """Milliseconds from a durable write on one device to the commit on the other."""
    there.tell("seen", count, WAIT_LIMIT)
    there.hear()  # it looks
    written: dict[str, float] = here.ask("write", count, PAUSE)
    seen: dict[str, float] = there.hear()
    return [max(0.0, seen[job] - moment) * 1000 for job, moment in written.items() if job in seen]


def _apart(here: Device, there: Device, count: int) -> float:
    """Seconds from the link until both count the same, after both changed the same jobs."""
    here.ask("cut")
    there.ask("cut")
    here.ask("edit", "here", count)
    there.ask("edit", "there", count)
    begun: float = there.ask("join", here.ask("port"))
    for device in (here, there):
        device.tell("equal", WAIT_LIMIT)
    return max(float(device.hear()) for device in (here, there)) - begun


def measure_pouchdb(folder: Path, sizes: Sizes) -> dict[str, float]:
    """The same by PouchDB; empty, and told on stderr why, where it can't be had."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        print("PouchDB is left out: there is no npm", file=sys.stderr)
        return {}
    place = folder / "pouchdb"
    place.mkdir(parents=True)
    install = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(place), POUCHDB]
    script = [node, str(ROOT / "benchmarks" / "peers" / "pouchdb.mjs"), str(place), str(sizes.documents), str(sizes.edited)]
    try:
        subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_LIMIT, cwd=place)
        done = subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True, timeout=WAIT_LIMIT, cwd=place)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"PouchDB is left out: {error}", file=sys.stderr)
        return {}
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def main(arguments: list[str]) -> int:
    """Measures, prints, and says by its exit status whether every target holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="p2pq-") as folder:
        sizes = QUICK if options.quick else Sizes()
        found = list(judged(lambda: figures(Path(folder), load_targets("network"), sizes=sizes)))
    print(as_json(found) if options.json else table(found))
    print(verdict(found), file=sys.stderr)
    return 1 if any(figure.holds is False for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
