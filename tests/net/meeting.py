"""What do tests over a real network wait for? That devices are linked, that they hold the same, how long something took."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from p2pqueue.home import Home
from p2pqueue.replica.door.doorbell import DoorbellClient
from tests.net.device import Device, until
from tests.net.lan import Lan

MB = 1_000_000


def found(lan: Lan, folder: Path, count: int, **settings: str) -> list[Device]:
    """A space of so many devices, one on each host (`h1`, `h2` …), with no node running yet."""
    devices = [Device(lan.add(f"h{number}"), folder / f"h{number}", **settings) for number in range(1, count + 1)]
    first, *others = devices
    first("init", "--label", "h1", "--space", "net")
    for number, other in enumerate(others, 2):
        first.let_in(other, f"h{number}")
    return devices


def linked(devices: Sequence[Device], *, within: float, path: str | None = None) -> None:
    """Waits until all are linked to all, by a path if one is named."""
    labels = {device.host.name for device in devices}

    def all_linked(device: Device) -> bool:
        return peers(device, path) | {device.host.name} == labels

    for device in devices:
        until(partial(all_linked, device), within=within, what=f"{device.host.name} sees {labels} by {path}")
    for device in devices:
        until(lambda device=device: device.online() == labels, within=within, what=f"{device.host.name} shows {labels}")  # type: ignore[misc]


def equal(devices: Sequence[Device], *, within: float) -> None:
    """Waits until all devices hold the same."""

    def same() -> bool:
        documents = [device("status") for device in devices]
        return len({each["digest"] for each in documents}) == 1 and len({str(each["heads"]) for each in documents}) == 1

    until(same, within=within, what="equal digests and heads")
    until(lambda: len({str(device.jobs()) for device in devices}) == 1, within=5.0, what="equal lists of jobs")


def random_file(path: Path, size: int) -> str:
    """Writes random bytes; gives their SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size, 8 * MB):
            piece = os.urandom(min(8 * MB, size - start))
            file.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def ended(device: Device, job_id: str, *, within: float) -> dict[str, Any]:
    """Waits until a device knows that a job has ended, and gives the job."""

    def look() -> dict[str, Any]:
        job = device.job(job_id)
        return job if job["status"] in ("succeeded", "failed", "cancelled") else {}

    return until(look, within=within, what=f"{job_id} has ended: {device.job(job_id)}")


def networking(device: Device) -> dict[str, Any]:
    """What a node says of its networking, asked over its local socket, fifty times as fast as a command: for times."""
    told: dict[str, Any] = DoorbellClient(Home(device.home).socket_path).request("status")["network"]
    return told


def peers(device: Device, path: str | None = None) -> set[str]:
    """The labels of the devices that its node is linked to, by a path if one is named."""
    return {each["label"] for each in networking(device)["peers"] if path is None or each["path"] == path}


def took(condition: Callable[[], object], *, within: float, what: str) -> float:
    """Waits as `until` does, and gives the seconds that it took."""
    begun = time.monotonic()
    until(condition, within=within, what=what)
    return time.monotonic() - begun
