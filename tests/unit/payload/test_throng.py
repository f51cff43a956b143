"""Many fetches at once, some given up at random, from sources of which each does something wrong now and then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.errors import P2PQueueError
from p2pqueue.home import Home
from p2pqueue.payload.fetching import gathering, transfer
from p2pqueue.payload.fetching.fetch import IN_FLIGHT, Fetcher
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content
from tests.unit.payload.peers import CarryingPeer, DeliveringPeer, Peer, SilentCarryingPeer

SIZES = [0, 1000, 3 * MIB, 5 * MIB + 5, 8 * MIB]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shelf]:
    """The shelf of another device."""
    home = Home(tmp_path / "there")
    home.ensure()
    made = Shelf(home, SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


async def fetched(fetcher: Fetcher, capability: str, dice: random.Random) -> None:
    """Fetches a file, after some fetches of it that are given up or fail."""
    for _ in range(dice.randrange(4)):
        fetching = asyncio.ensure_future(fetcher.fetch(capability))
        await asyncio.sleep(dice.random() * 0.2)
        fetching.cancel()
        await asyncio.wait([fetching])
        if not fetching.cancelled():
            assert isinstance(fetching.exception(), P2PQueueError | None)
    for attempt in range(20):
        try:
            await fetcher.fetch(capability)
            return
        except P2PQueueError:
            if attempt == 19:
                raise


@pytest.mark.parametrize("seed", range(3))
async def test_all_files_come_whole_and_nothing_is_held_afterwards(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 1.0)
    monkeypatch.setattr(gathering, "PATIENCE", 1.0)
    dice = random.Random(seed)
    files = [(there.ingest(make_file(size, f"file{number}", number)).capability, size, number) for number, size in enumerate(SIZES)]

    def fate(found: bytes) -> bytes:
        die = dice.random()
        if die < 0.03:
            raise SourceFailed("the cable was pulled")
        if die < 0.05:
            raise ShardMissing
        return found[:-1] if die < 0.055 else found

    peers = [
        CarryingPeer(there, "a", lane="http", fate=fate), Peer(there, "a", lane="webrtc", fate=fate, parallel=4),
        DeliveringPeer(there, "b", fate=fate), SilentCarryingPeer(there, "silent", lane="http"), Peer(there, "origin", last=True),
    ]  # fmt: skip
    fetcher = Fetcher(shelf, lambda: [peer for peer in peers if dice.random() < 0.9])
    async with asyncio.TaskGroup() as group:
        for capability, _, _ in (*files, *files, *files):  # each for three jobs
            group.create_task(fetched(fetcher, capability, dice))
    for capability, size, number in files:
        assert b"".join(shelf.open(capability)) == content(size, number)
    assert fetcher.transfers.now() == ()
    assert not fetcher._wanted
    async with asyncio.timeout(10):
        while fetcher._means.budget._free != IN_FLIGHT:  # noqa: ASYNC110 - threads of the silent one look at times whether they are wanted
            await asyncio.sleep(0.02)
    assert not list(shelf.home.path.glob("landings/*"))
