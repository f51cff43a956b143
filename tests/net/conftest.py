"""What every test over a real network stands on: a LAN of its own, and a space of devices on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.net.device import Device
from tests.net.lan import Lan, obstacle
from tests.net.meeting import found

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

    return partial(found, lan, tmp_path)


@pytest.fixture(scope="module")
def shared_space(runtime_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    """As `space`, for all tests of a module together: starting nodes is what costs most."""
    reason = obstacle()
    if reason is not None:
        pytest.skip(reason)
    with Lan() as lan, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime_dir))
        yield partial(found, lan, tmp_path_factory.mktemp("shared"))
