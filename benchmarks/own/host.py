"""What is a device in the benchmarks of a network? A home, and its node as a real process that is ended by its pid.

On loopback all devices share `lo`; with hosts of a LAN each lives in a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

from benchmarks.peers.contender import ROOT
from p2pqueue.config import Home
from p2pqueue.errors import P2PQueueError
from p2pqueue.replica.door.doorbell import DoorbellClient

T = TypeVar("T")
APP = "benchmarks/own/app.py"
LIMIT = 60.0  # seconds for one step of a device; most take a tenth of one
LOOK_EVERY = 0.01  # seconds between two questions to a node

Prefix = Callable[..., list[str]]  # the command line that runs a command where the device lives


class HostedDevice:
    """One device. `prefix` puts a command into its host; without it everything stays on loopback."""

    def __init__(self, folder: Path, label: str, prefix: Prefix | None = None) -> None:
        self.label = label
        self.home = Home.find(folder / label)
        self.marks = folder / f"{label}.marks"
        self.marks.touch()
        self._log = folder / f"{label}.log"
        self._prefix = prefix
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("P2PQUEUE_")}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # whoever installed it starts it compiled
        self._environment |= {"P2PQUEUE_HOME": str(self.home.path), "PYTHONPATH": str(ROOT), "BENCH_MARKS": str(self.marks)}
        if prefix is None:
            self._environment["P2PQUEUE_INTERFACES"] = "lo"
        self._process: subprocess.Popen[str] | None = None
        self.started_at = self.ready_at = 0.0
        self.ready: dict[str, Any] = {}

    # -- the command line -------------------------------------------------------------------------------------

    def run(self, *words: str) -> Any:
        """Runs a command to its end; gives its document."""
        done = subprocess.run(self._command(*words), capture_output=True, text=True, timeout=LIMIT, env=self._environment, cwd=ROOT)
        if done.returncode:
            raise RuntimeError(f"p2pqueue {' '.join(words)} on {self.label}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def let_in(self, other: HostedDevice) -> None:
        """Invites another device, which joins."""
        words = self._command("invite")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=self._environment, cwd=ROOT) as inviting:
            assert inviting.stdout is not None
            try:
                other.run("join", str(json.loads(inviting.stdout.readline())["code"]), "--label", other.label)
                inviting.wait(LIMIT)
            finally:
                inviting.kill()

    # -- its node ---------------------------------------------------------------------------------------------

    def begin(self, *flags: str) -> None:
        """Starts the node; `wait_until_ready` hears of it."""
        self.started_at = time.monotonic()
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command("run", APP, *flags), stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment, cwd=ROOT
            )

    def wait_until_ready(self) -> None:
        """Reads the ready line."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.ready_at = time.monotonic()
        if not line:
            raise RuntimeError(f"the node of {self.label} did not start: {self._log.read_text()[-2000:]}")
        self.ready = json.loads(line)

    def start(self, *flags: str) -> None:
        """Starts the node and waits until it is ready."""
        self.begin(*flags)
        self.wait_until_ready()

    def stop(self) -> None:
        """Ends the node in an orderly way; by force where that takes long."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def signal(self, number: int) -> None:
        """Sends the node a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def process(self) -> psutil.Process:
        """The node, to be weighed."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    @property
    def listens_at(self) -> str:
        """Where the node listens, for a `--peer` of another."""
        return str(self.ready["addresses"][0])

    # -- what it says of itself -------------------------------------------------------------------------------

    def ask(self, kind: str) -> dict[str, Any]:
        """What the node answers over its local socket; nothing while it can't."""
        try:
            return DoorbellClient(self.home.socket_path).request(kind)
        except P2PQueueError:
            return {}

    def peers(self) -> list[dict[str, Any]]:
        """The linked devices."""
        return list(self.ask("devices").get("peers", {}).values())

    def is_in_sync(self, others: int = 1) -> bool:
        """Says whether so many are linked, and count the same as this one."""
        peers = self.peers()
        return len(peers) == others and all((peer["replication"] or {}).get("in_sync") for peer in peers)

    def is_direct(self, others: int = 1) -> bool:
        """Says whether so many are linked over WebRTC."""
        peers = self.peers()
        return len(peers) == others and all(peer["path"] == "webrtc" for peer in peers)

    def marked(self) -> list[tuple[int, int]]:
        """What handlers marked here: what they were told, and when they started in nanoseconds."""
        return [(int(line.split()[0]), int(line.split()[1])) for line in self.marks.read_bytes().splitlines() if line.count(b" ") == 1]

    def _command(self, *words: str) -> list[str]:
        command = [sys.executable, "-m", "p2pqueue", words[0], "--json", *words[1:]]
        return command if self._prefix is None else self._prefix(*command)


@contextmanager
def space(folder: Path, count: int, prefixes: Sequence[Prefix] | None = None) -> Iterator[list[HostedDevice]]:
    """So many devices of one space, with no node running yet; what runs at the end is ended."""
    folder.mkdir(parents=True, exist_ok=True)
    devices = [HostedDevice(folder, f"d{number}", prefixes[number] if prefixes else None) for number in range(count)]
    devices[0].run("init", "--space", "bench", "--label", "d0")
    for other in devices[1:]:
        devices[0].let_in(other)
    with ExitStack() as stack:
        for device in devices:
            stack.callback(device.stop)
        yield devices


def start_linked(devices: Sequence[HostedDevice], *flags: str, directly: bool = True) -> None:
    """Starts the nodes, each with those before it as its peers, and waits until all are linked, and count the same."""
    for number, device in enumerate(devices):
        known = [word for other in devices[:number] for word in ("--peer", other.listens_at)]
        device.start("--no-discovery", "--listen", "127.0.0.1:0", *known, *flags)
    others = len(devices) - 1
    until(lambda: all(each.is_in_sync(others) and (each.is_direct(others) or not directly) for each in devices), "all are linked")


def until(condition: Callable[[], T], what: str, *, limit: float = LIMIT, every: float = LOOK_EVERY) -> T:
    """Waits until a condition gives something true. Raises `TimeoutError` with what was waited for."""
    end = time.monotonic() + limit
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit:.0f} s: {what}")
        time.sleep(every)
    return found
