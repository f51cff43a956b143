"""Room for what is still on its way: several transfers at once pass neither the quota nor the reserve of the disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from p2pqueue.errors import DiskFull
from p2pqueue.home import Home
from p2pqueue.payload.fetching import fetch
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.landing import allocated_below
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content
from tests.unit.payload.peers import Peer


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shelf]:
    """The shelf of another device."""
    made = Shelf(Home(tmp_path / "there"), SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Shelf]:
    """A shelf that somebody gave 10 MiB."""
    made = Shelf(Home(tmp_path / "small"), SPACE_KEY, quota=10 * MIB, reserve=0)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for room looks often."""
    monkeypatch.setattr(fetch, "ROOM_AGAIN", 0.02)


class Gated(Peer):
    """Serves the rest of one file only when it is let."""

    def __init__(self, shelf: Shelf, capability: str) -> None:
        super().__init__(shelf)
        self.open, self.reached = asyncio.Event(), asyncio.Event()
        self.held = frozenset(shelf.addresses(capability)[2:-1])  # the last is its manifest

    async def shard(self, address: bytes, size: int) -> bytes:
        if address in self.held:
            self.reached.set()
            await self.open.wait()
        return await super().shard(address, size)


async def told_to_wait(fetcher: Fetcher) -> str:
    """Why a transfer waits for room, as soon as one does."""
    async with asyncio.timeout(20):
        while True:
            for each in fetcher.transfers.now():
                if each.why is not None and "room" in each.why:
                    return each.why
            await asyncio.sleep(0.01)


async def test_a_second_transfer_waits_for_the_first_and_is_told_when_it_does_not_fit_beside_it(
    small: Shelf, there: Shelf, make_file: MakeFile
) -> None:
    first, second = there.ingest(make_file(6 * MIB)), there.ingest(make_file(6 * MIB, "second", seed=1))
    peer = Gated(there, first.capability)
    fetcher = Fetcher(small, lambda: [peer])
    one = asyncio.ensure_future(fetcher.fetch(first.capability))
    await peer.reached.wait()
    other = asyncio.ensure_future(fetcher.fetch(second.capability))
    assert "on their way" in await told_to_wait(fetcher)
    peer.open.set()
    await one
    assert b"".join(small.open(first.capability)) == content(6 * MIB)
    with pytest.raises(DiskFull, match="quota for files"):
        await other
    small.remove(first.capability)
    await fetcher.fetch(second.capability)
    assert b"".join(small.open(second.capability)) == content(6 * MIB, seed=1)


async def test_a_transfer_that_waits_goes_on_when_the_one_before_it_is_given_up(small: Shelf, there: Shelf, make_file: MakeFile) -> None:
    first, second = there.ingest(make_file(8 * MIB)), there.ingest(make_file(4 * MIB, "second", seed=1))
    stuck, peer = Gated(there, first.capability), Peer(there)
    peers: list[Peer] = [stuck]
    fetcher = Fetcher(small, lambda: peers)
    one = asyncio.ensure_future(fetcher.fetch(first.capability))
    await stuck.reached.wait()
    peers[0] = peer
    other = asyncio.ensure_future(fetcher.fetch(second.capability))
    await told_to_wait(fetcher)
    one.cancel()
    await asyncio.wait([one])
    async with asyncio.timeout(20):
        await other
    assert small.holds(second.capability)


async def test_what_waits_for_room_can_be_cancelled(small: Shelf, there: Shelf, make_file: MakeFile) -> None:
    first, second = there.ingest(make_file(8 * MIB)), there.ingest(make_file(4 * MIB, "second", seed=1))
    peer = Gated(there, first.capability)
    fetcher = Fetcher(small, lambda: [peer])
    one = asyncio.ensure_future(fetcher.fetch(first.capability))
    await peer.reached.wait()
    other = asyncio.ensure_future(fetcher.fetch(second.capability))
    await told_to_wait(fetcher)
    for each in (other, one):
        each.cancel()
    await asyncio.wait([one, other])
    assert other.cancelled()
    assert list(fetcher.transfers.now()) == []
    assert small.expected.total() == 0


async def test_what_is_taken_in_leaves_the_room_that_a_transfer_still_needs(small: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(8 * MIB))
    peer = Gated(there, stored.capability)
    fetching = asyncio.ensure_future(Fetcher(small, lambda: [peer]).fetch(stored.capability))
    await peer.reached.wait()
    with pytest.raises(DiskFull, match="on their way"):
        small.ingest_bytes(content(3 * MIB, seed=2), "third")
    small.ingest_bytes(content(MIB // 2, seed=2), "fourth")  # a chunk that is being written may count twice for a moment
    peer.open.set()
    await fetching
    assert b"".join(small.open(stored.capability)) == content(8 * MIB)


async def test_a_quota_that_somebody_set_counts_fetched_files_too(small: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(11 * MIB))
    with pytest.raises(DiskFull, match="quota for files"):
        await Fetcher(small, lambda: [Peer(there)]).fetch(stored.capability)
    assert list((small.home.path / "landings").glob("*")) == []
    fits = there.ingest(make_file(8 * MIB, "fits", seed=1))
    await Fetcher(small, lambda: [Peer(there)]).fetch(fits.capability)
    with pytest.raises(DiskFull, match="quota for files"):
        small.ingest_bytes(content(3 * MIB, seed=2), "third")


async def test_room_is_made_first_where_a_transfer_does_not_fit(small: Shelf, there: Shelf, make_file: MakeFile) -> None:
    useless = small.ingest(make_file(6 * MIB, "useless", seed=3)).capability
    made: list[int] = []

    async def make_room() -> None:
        made.append(await asyncio.to_thread(small.remove, useless))

    small.make_room = make_room
    stored = there.ingest(make_file(8 * MIB))
    await Fetcher(small, lambda: [Peer(there)]).fetch(stored.capability)
    assert b"".join(small.open(stored.capability)) == content(8 * MIB)
    assert len(made) == 1


async def test_two_transfers_at_once_leave_the_reserve_of_the_disk(
    tmp_path: Path, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "disk")
    shelf = Shelf(home, SPACE_KEY, reserve=10 * MIB)
    least = [1 << 40]

    def usage(_: object) -> SimpleNamespace:
        free = 22 * MIB - allocated_below(home.path / "landings") - allocated_below(home.path / "outputs")
        least[0] = min(least[0], free)
        return SimpleNamespace(total=1000 * MIB, used=0, free=free)

    monkeypatch.setattr("p2pqueue.payload.store.shutil", SimpleNamespace(disk_usage=usage))
    files = [there.ingest(make_file(8 * MIB, f"file{n}", seed=n)).capability for n in range(2)]
    fetcher = Fetcher(shelf, lambda: [Peer(there)])
    ended = await asyncio.gather(*(fetcher.fetch(each) for each in files), return_exceptions=True)
    assert sorted(type(each).__name__ for each in ended) == ["DiskFull", "Fetched"]
    usage(None)
    assert least[0] >= 10 * MIB
    assert shutil.disk_usage(home.path).free > 0
    shelf.close()
