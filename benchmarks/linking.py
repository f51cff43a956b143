"""How soon are two nodes linked and syncing, how soon is a dead one noticed, and how soon is it back?

"Linked and syncing": both count the same as the other. By mDNS it counts from the later ready line, when both have
begun to look; by `--peer` from the ready line of the second, which dials the first.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.host import HostedDevice, space, until
from tests.net.lan import Lan, obstacle

QUIET = 3.0  # seconds of a healthy link between two cuts
FULL_CUT = 600.0  # seconds of the one long cut


def figures(folder: Path, targets: Mapping[str, Target], *, rounds: int) -> list[Figure]:
    """The rows about linking."""
    with space(folder, 2) as (first, second):
        found = [_by_mdns(first, second) for _ in range(rounds)]
        named = [_by_peer(first, second) for _ in range(rounds)]
    rows = {
        "start to linked and syncing, mDNS": Sample.of(found),
        "start to linked and syncing, --peer": Sample.of(seconds for seconds, _ in named),
        "the same from the start of the process": Sample.of(seconds for _, seconds in named),
    }
    return [Figure(name, sample.median, "s", targets.get(name, Target()), spread=sample.spread) for name, sample in rows.items()]


def _by_mdns(first: HostedDevice, second: HostedDevice) -> float:
    for device in (first, second):
        device.begin("--no-work", "--listen", "127.0.0.1:0")
    try:
        for device in (first, second):
            device.wait_until_ready()
        begun = max(first.ready_at, second.ready_at)
        until(lambda: first.is_in_sync() and second.is_in_sync(), "linked and syncing by mDNS")
        return time.monotonic() - begun
    finally:
        second.stop()
        first.stop()


def _by_peer(first: HostedDevice, second: HostedDevice) -> tuple[float, float]:
    quietly = ("--no-work", "--no-discovery", "--listen", "127.0.0.1:0")
    first.start(*quietly)
    try:
        second.start(*quietly, "--peer", first.listens_at)
        until(lambda: first.is_in_sync() and second.is_in_sync(), "linked and syncing by --peer")
        linked = time.monotonic()
        return linked - second.ready_at, linked - second.started_at
    finally:
        second.stop()
        first.stop()


def figures_of_losing(folder: Path, targets: Mapping[str, Target], *, rounds: int, long_cut: bool) -> list[Figure]:
    """The rows about a peer that is gone without a word, and comes back."""
    noticed: list[float] = []
    back: list[float] = []
    with _cutting(folder) as (devices, cut, mend):
        for number in range(rounds + long_cut):
            until(lambda: all(each.is_direct() for each in devices), "linked directly")
            time.sleep(QUIET)
            begun = time.monotonic()
            cut()
            until(lambda: not devices[0].peers(), "the dead peer is noticed")
            noticed.append(time.monotonic() - begun)
            time.sleep(FULL_CUT if number == rounds else number % 3)
            begun = time.monotonic()
            mend()
            until(lambda: devices[0].is_in_sync() and devices[1].is_in_sync(), "linked again")
            back.append(time.monotonic() - begun)
    rows = [
        ("dead peer noticed, p95", Sample.of(noticed), 0.95),
        ("link back after the cable returns, p95", Sample.of(back[:rounds]), 0.95),
    ]
    if long_cut:
        rows.append(("link back after a cut of 10 minutes", Sample.of(back[rounds:]), 1.0))
    return [Figure(name, sample.percentile(share), "s", targets.get(name, Target()), spread=sample.spread) for name, sample, share in rows]


Cutting = tuple[Sequence[HostedDevice], Callable[[], None], Callable[[], None]]


@contextmanager
def _cutting(folder: Path) -> Iterator[Cutting]:
    """Two devices and their cable; where no namespaces can be made, the second is halted instead."""
    if obstacle() is None:
        with Lan() as lan:
            hosts = [lan.add("h1"), lan.add("h2")]
            with space(folder, 2, [host.command for host in hosts]) as devices:
                for device in devices:
                    device.start("--no-work")
                yield devices, lambda: hosts[1].cut(silent=True), hosts[1].mend
        return
    with space(folder, 2) as devices:
        devices[0].start("--no-work", "--listen", "127.0.0.1:0")
        devices[1].start("--no-work", "--listen", "127.0.0.1:0", "--peer", devices[0].listens_at)
        yield devices, lambda: devices[1].signal(signal.SIGSTOP), lambda: devices[1].signal(signal.SIGCONT)
