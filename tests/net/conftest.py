"""What every test over a real network stands on: a LAN of its own, and a space of devices on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.net.device import Device
from tests.net.lan import Lan, obstacle

Space = Callable[..., list[Device]]


@pytest.fixture
def lan() -> Iterator[Lan]:
    """An empty LAN; the test is skipped, with the reason, where none can be made."""
    reason = obstacle()
    if reason is not None:
        pytest.skip(reason)
    with Lan() as made:
        yield made


@pytest.fixture
def space(lan: Lan, tmp_path: Path) -> Space:
    """Makes a space of so many devices, one on each host (`h1`, `h2` …), with no node running yet."""

    def make(count: int, **settings: str) -> list[Device]:
        devices = [Device(lan.add(f"h{number}"), tmp_path / f"h{number}", **settings) for number in range(1, count + 1)]
        first, *others = devices
        first("init", "--label", "h1", "--space", "net")
        for number, other in enumerate(others, 2):
            first.let_in(other, f"h{number}")
        return devices

    return make
