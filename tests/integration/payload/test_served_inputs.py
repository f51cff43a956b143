"""A plain file that others are fetching is changed, cut short, removed or replaced: they are told, and never get a mixture."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from p2pqueue.errors import InputChanged, PayloadUnavailable
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.transfer import Progress
from p2pqueue.payload.limit import Limits
from p2pqueue.payload.shelf import Shelf
from tests.unit.peers.served import MIB, Served, served
from tests.unit.peers.test_sources import Linked, content, fetching, shared

RATE = 12 * MIB  # bytes a second, so that a file of 16 MiB is on its way for a while


def change(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(os.urandom(100))


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.with_suffix(".new").write_bytes(os.urandom(path.stat().st_size))
    path.with_suffix(".new").replace(path)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES, GOINGS = [change, cut_short, empty], [remove, replace, become_a_folder]
if hasattr(os, "mkfifo"):
    GOINGS.append(become_a_pipe)


@contextlib.asynccontextmanager
async def midway(tmp_path: Path, happen: Callable[[Path], None]) -> AsyncIterator[tuple[Served, Fetcher, Shelf, str, bytes, Progress]]:
    """A fetch of the file, and what makes that happen to it at a quarter of the way."""
    limits, happened = Limits(), []
    limits.upload.set(RATE)

    def tell(done: int, size: int) -> None:
        if done >= size // 4 and not happened:
            happened.append(done)
            happen(tmp_path / "shared.bin")

    async with served(tmp_path, limits) as at, fetching(tmp_path) as (sources, fetcher, shelf), asyncio.timeout(45):
        capability, wanted = shared(at, tmp_path, 16 * MIB)
        sources.up(Linked(at.base))
        yield at, fetcher, shelf, capability, wanted, tell
        assert happened


@pytest.mark.parametrize("happen", CHANGES)
async def test_who_fetches_a_file_that_is_written_to_is_told_and_gets_the_rest_from_another_place(
    tmp_path: Path, happen: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P05, at the other end of its life."""
    monkeypatch.setattr("p2pqueue.payload.fetching.transfer.PATIENCE", 0.6)  # all waits a tenth: one must not keep another from its end
    for name, seconds in {"LACKS_FOR": 1.0, "FIRST_REST": 0.1, "LONGEST_REST": 0.8}.items():
        monkeypatch.setattr(f"p2pqueue.payload.fetching.standing.{name}", seconds)
    async with midway(tmp_path, happen) as (at, fetcher, shelf, capability, wanted, tell):
        with pytest.raises(PayloadUnavailable, match="since it was taken in"):
            await fetcher.fetch(capability, on_progress=tell)
        assert not shelf.holds(capability)
        (tmp_path / "again.bin").write_bytes(wanted)
        at.shelf.ingest(tmp_path / "again.bin", name="shared.bin", copy=False)
        fetched = await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted
        assert sum(fetched.received.values()) < 13 * MIB  # what had come is right, and stays


@pytest.mark.parametrize("happen", GOINGS)
async def test_who_fetches_a_file_that_is_taken_away_gets_what_it_was_or_is_told(
    tmp_path: Path, happen: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that have it open go on with it; whoever comes later can't have it."""
    monkeypatch.setattr("p2pqueue.payload.fetching.transfer.PATIENCE", 1.0)
    monkeypatch.setattr("p2pqueue.payload.fetching.gathering.PATIENCE", 1.0)
    async with midway(tmp_path, happen) as (at, fetcher, shelf, capability, wanted, tell):
        try:
            await fetcher.fetch(capability, on_progress=tell)
        except PayloadUnavailable as error:
            assert "since it was taken in" in str(error)
            assert not shelf.holds(capability)
        else:
            assert content(shelf, capability) == wanted
        await asyncio.to_thread(refuses, at.shelf, capability)
        (tmp_path / "other.bin").write_bytes(wanted[: 2 * MIB] + b"more")
        still = at.shelf.ingest(tmp_path / "other.bin", copy=False).capability
        await fetcher.fetch(still)  # it goes on serving
        assert content(shelf, still) == wanted[: 2 * MIB] + b"more"


def refuses(shelf: Shelf, capability: str) -> None:
    with pytest.raises(InputChanged, match="since it was taken in"):
        shelf.shard(shelf.addresses(capability)[0])
