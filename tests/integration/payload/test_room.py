"""Room ends while a file is on its way: at whoever fetches, at whoever serves, by the quota, and at the origin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from p2pqueue.errors import DiskFull
from p2pqueue.home import Home
from p2pqueue.payload.fetching import transfer
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.payload.limit import Limit, Limits
from p2pqueue.payload.origins.client import OriginClient
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.origins import TOKEN, keeping_in, serving
from tests.unit.payload.test_full_disk import enlarge
from tests.unit.payload.test_full_disk import small_disk as small_disk
from tests.unit.peers.served import MIB, served
from tests.unit.peers.test_sources import Linked, content, fetching, shared


def fill(disk: Path) -> Path:
    """Takes every byte that is left."""
    hog = disk / "hog"
    with contextlib.suppress(OSError), hog.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0
    return hog


async def put_all(shelf: Shelf, origin: OriginClient, addresses: Iterable[bytes], put: list[bytes]) -> None:
    for address in addresses:
        await origin.put(address, await asyncio.to_thread(shelf.shard, address))
        put.append(address)


@pytest.mark.root
async def test_a_disk_that_somebody_fills_while_a_file_comes_ends_it_in_words_and_it_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    """P09"""
    enlarge(small_disk, "40m")
    async with served(tmp_path) as at, fetching(small_disk) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, 24 * MIB)
        sources.up(Linked(at.base))
        filled: list[Path] = []

        def midway(done: int, size: int) -> None:
            if done >= size // 4 and not filled:
                filled.append(fill(small_disk))

        with pytest.raises(DiskFull, match="[Nn]o space left"):
            await fetcher.fetch(capability, on_progress=midway)
        assert not shelf.holds(capability)
        filled[0].unlink()
        fetched = await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted
        assert sum(fetched.received.values()) < 20 * MIB
        assert [each.name for each in shelf.home.path.rglob("shared.bin")] == ["shared.bin"]


@pytest.mark.root
@pytest.mark.parametrize("copy", [True, False])
async def test_a_device_whose_disk_is_full_serves_what_it_has(tmp_path: Path, small_disk: Path, copy: bool) -> None:
    """P09"""
    enlarge(small_disk, "40m")
    async with served(small_disk) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        path = small_disk / "shared.bin"
        path.write_bytes(os.urandom(12 * MIB))
        wanted, capability = path.read_bytes(), at.shelf.ingest(path, copy=copy).capability
        fill(small_disk)
        sources.up(Linked(at.base))
        await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted


async def test_a_quota_that_is_reached_while_a_file_comes_is_told_and_the_file_is_there_once_it_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHECK_EVERY", 0.05)
    limits = Limits(download=Limit(10 * MIB))
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, _, _):
        capability, wanted = shared(at, tmp_path, 20 * MIB)
        sources.up(Linked(at.base))
        home = Home(tmp_path / "small")
        shelf = Shelf(home, bytes(32), quota=24 * MIB, reserve=0)
        elsewhere = Shelf(home, bytes(32), quota=24 * MIB, reserve=0)  # of another process: it knows of no transfer
        hogs: list[str] = []

        def midway(done: int, size: int) -> None:
            if done >= size // 4 and not hogs:
                for size in (4 * MIB, MIB, 128 * 1024):
                    with contextlib.suppress(DiskFull):
                        while True:
                            hogs.append(elsewhere.ingest_bytes(os.urandom(size), f"hog {len(hogs)}").capability)

        with pytest.raises(DiskFull, match="quota for files"):
            await Fetcher(shelf, sources.now, limits=limits).fetch(capability, on_progress=midway)
        assert hogs
        assert not shelf.holds(capability)
        for hog in hogs:
            elsewhere.remove(hog)
        elsewhere.close()
        fetched = await Fetcher(shelf, sources.now).fetch(capability)
        assert content(shelf, capability) == wanted
        assert 0 < sum(fetched.received.values()) < 15 * MIB  # the rest
        shelf.close()


async def test_an_origin_whose_quota_is_reached_in_the_middle_keeps_what_it_has_and_takes_the_rest_when_it_may(tmp_path: Path) -> None:
    keeping = await keeping_in(tmp_path / "origin", quota=3 * MIB)
    async with served(tmp_path) as at, serving(keeping) as client, fetching(tmp_path) as (sources, fetcher, here):
        capability, wanted = shared(at, tmp_path, 5 * MIB)
        addresses, origin = at.shelf.addresses(capability), client(TOKEN)
        put: list[bytes] = []
        with pytest.raises(SourceFailed, match="507.*full"):
            await put_all(at.shelf, origin, addresses, put)
        assert 0 < len(put) < len(addresses)
        assert all([await origin.has(address) for address in put])
        keeping.quota = 10 * MIB
        await put_all(at.shelf, origin, addresses[len(put) :], put)
        sources.origin = lambda: (origin,)
        await fetcher.fetch(capability)
        assert content(here, capability) == wanted


@pytest.mark.root
async def test_an_origin_whose_disk_is_full_says_so_and_keeps_no_half_of_anything(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pqueue.payload.origins.folder.RESERVE", 0)
    keeping = await keeping_in(small_disk / "origin", quota=1024 * MIB)
    async with served(tmp_path) as at, serving(keeping) as client:
        capability, _ = shared(at, tmp_path, 12 * MIB)
        addresses, origin = at.shelf.addresses(capability), client(TOKEN)
        put: list[bytes] = []
        with pytest.raises(SourceFailed, match="507|No space left|full"):
            await put_all(at.shelf, origin, addresses, put)
        assert put
        for address in addresses:
            if await origin.has(address):
                assert await origin.shard(address, 2 * MIB) == await asyncio.to_thread(at.shelf.shard, address)
        enlarge(small_disk, "64m")
        await put_all(at.shelf, origin, addresses[len(put) :], put)
