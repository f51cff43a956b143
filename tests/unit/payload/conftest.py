"""A shelf with room, and files of any size to put on it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p2pqueue.home import Home
from p2pqueue.payload.shelf import Shelf

SPACE_KEY = bytes(range(32))
MIB = 1024**2

MakeFile = Callable[..., Path]


def content(size: int, seed: int = 0) -> bytes:
    """Bytes that don't repeat, the same at every run."""
    return hashlib.shake_128(f"{seed}".encode()).digest(size)


@pytest.fixture
def shelf(home: Home) -> Iterator[Shelf]:
    """An empty shelf in a fresh home."""
    made = Shelf(home, SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    """Makes a file of a size."""

    def make(size: int, name: str = "input.bin", seed: int = 0) -> Path:
        path = tmp_path / name
        path.write_bytes(content(size, seed))
        return path

    return make
