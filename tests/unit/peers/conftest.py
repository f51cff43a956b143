"""A shelf for those who serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.home import Home
from p2pqueue.payload.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """An empty shelf in a fresh home."""
    made = Shelf(Home(tmp_path / "sharing"), bytes(32), quota=500 * 1024**2, reserve=0)
    yield made
    made.close()
