"""What is told of transfers: how far, how fast, from whom, and why one stands still."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.errors import PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload.capability import parse_capability
from p2pqueue.payload.fetching import gathering, transfer
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.landing import Landing
from p2pqueue.payload.fetching.speed import Speed
from p2pqueue.payload.fetching.transfers import Transfer, transfer_of
from p2pqueue.payload.limit import Limits
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content
from tests.unit.payload.peers import CarryingPeer, Peer, SilentPeer


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shelf]:
    """The shelf of another device."""
    home = Home(tmp_path / "there")
    home.ensure()
    made = Shelf(home, SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Things are looked at often."""
    monkeypatch.setattr(transfer, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(transfer, "STANDS_AFTER", 0.1)
    monkeypatch.setattr(gathering, "PATIENCE", 0.3)


async def until(fetcher: Fetcher, wanted: str) -> Transfer:
    """The only transfer, as soon as it says why it stands still."""
    async with asyncio.timeout(20):
        while True:
            for each in fetcher.transfers.now():
                if each.why is not None and wanted in each.why:
                    return each
            await asyncio.sleep(0.01)


class Slow(Peer):
    """Serves a shard now and then."""

    pause = 0.05

    async def shard(self, address: bytes, size: int) -> bytes:
        await asyncio.sleep(self.pause)
        return await super().shard(address, size)


async def test_several_files_of_one_manifest_are_told_as_one_too(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    files = {name: there.ingest(make_file(3 * MIB, name, seed)).capability for seed, name in enumerate(("a.bin", "b.bin"))}
    manifest = there.bundle(files)
    fetcher = Fetcher(shelf, lambda: [Slow(there, "laptop")], called=str.upper)
    fetching, seen = asyncio.ensure_future(fetcher.fetch(manifest)), []
    while not fetching.done():
        seen.extend(each for each in fetcher.transfers.now() if each.root == manifest and each.size)
        await asyncio.sleep(0.01)
    assert (seen[-1].name, seen[-1].size) == ("2 files", 6 * MIB)
    assert [each.verified for each in seen] == sorted(each.verified for each in seen)
    assert any(each.verified > 0 for each in seen)
    assert {share.label for each in seen for share in each.sources} == {"LAPTOP"}


async def test_a_transfer_tells_how_far_it_is_how_fast_and_from_whom(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(12 * MIB))
    fetcher = Fetcher(shelf, lambda: [Slow(there, "laptop")])
    seen: list[Transfer] = []

    async def follow() -> None:
        async for transfers in fetcher.transfers.follow():
            seen.extend(transfers)

    following = asyncio.ensure_future(follow())
    fetching = asyncio.ensure_future(fetcher.fetch(stored.capability))
    while not fetching.done():
        seen.extend(fetcher.transfers.now())
        await asyncio.sleep(0.01)
    following.cancel()
    assert fetcher.transfers.now() == ()
    moving = [each for each in seen if each.verified and each.verified < each.size]
    assert moving
    assert [each.verified for each in moving] == sorted(each.verified for each in moving)
    last = moving[-1]
    assert (last.root, last.name, last.size) == (stored.capability, "input.bin", 12 * MIB)
    assert any(each.why is None for each in moving)
    assert last.rate > 0
    assert last.eta is not None
    (share,) = last.sources
    assert (share.name, share.lane) == ("laptop", "webrtc")
    assert share.bytes >= last.verified - MIB
    assert transfer_of(json.loads(json.dumps(last.plain()))) == last


@pytest.mark.parametrize("chunks", [5, 8], ids=["some bits of the last byte", "whole bytes"])
async def test_one_of_which_all_has_come_says_that_it_is_written(
    chunks: int, shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "STANDS_AFTER", 0.0)
    stored = there.ingest(make_file(chunks * MIB))
    fetcher, seen = Fetcher(shelf, lambda: [Peer(there)]), list[Transfer]()
    finish = Landing.finish

    def look_and_finish(landing: Landing, *given: Any) -> Path:
        seen.extend(fetcher.transfers.now())
        return finish(landing, *given)

    monkeypatch.setattr(Landing, "finish", look_and_finish)
    await fetcher.fetch(stored.capability)
    assert [(each.verified, each.why) for each in seen] == [(chunks * MIB, "all of it has come, and is being written")]


async def test_one_that_is_paused_says_so_waits_and_goes_on(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(20 * MIB))
    limits = Limits()
    fetcher = Fetcher(shelf, lambda: [Slow(there, "laptop")], limits=limits)
    fetching = asyncio.ensure_future(fetcher.fetch(stored.capability))
    while not any(each.verified for each in fetcher.transfers.now()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    limits.pause(everything=True)
    await until(fetcher, "all transfers are paused")
    limits.resume(everything=True)
    limits.pause(["laptop"])
    await until(fetcher, "that device are paused")
    assert not fetching.done()
    limits.resume(["laptop"])
    await fetching
    assert b"".join(shelf.open(stored.capability)) == content(20 * MIB)


async def test_a_way_that_is_metered_is_not_used_unless_it_is_allowed(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 0.2)
    stored = there.ingest(make_file(4 * MIB))
    limits = Limits()
    phone, laptop = CarryingPeer(there, "phone", lane="http", metered=True), Peer(there, "laptop")
    with pytest.raises(PayloadUnavailable, match="metered"):
        await Fetcher(shelf, lambda: [phone], limits=limits).fetch(stored.capability)
    fetched = await Fetcher(shelf, lambda: [phone, laptop], limits=limits).fetch(stored.capability)
    assert {name for name, _ in fetched.received if name == "laptop"} == {"laptop"}
    assert phone.asked <= 2  # for manifests, which are small
    other = there.ingest(make_file(4 * MIB, "other", 1))
    limits.metered = True
    await Fetcher(shelf, lambda: [phone], limits=limits).fetch(other.capability)
    assert phone.asked > 4


async def test_where_nobody_who_is_linked_has_it_those_are_named_who_do(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 0.5)
    stored = there.ingest(make_file(5 * MIB))

    async def holders(capability: str) -> Sequence[tuple[str, str]]:
        assert capability == stored.capability
        return [("id1", "Ann's laptop"), ("id2", "the box")]

    peer = Slow(there, "id2")
    with pytest.raises(PayloadUnavailable, match="only Ann's laptop, the box have it, and are not linked"):
        await Fetcher(shelf, list, holders=holders).fetch(stored.capability)
    fetcher = Fetcher(shelf, lambda: [peer] if peer.asked < 3 else [Peer(None, "id2")], holders=holders)
    fetching = asyncio.ensure_future(fetcher.fetch(stored.capability))
    told = await until(fetcher, "only Ann's laptop has it")
    assert told.verified > 0
    with pytest.raises(PayloadUnavailable, match="only Ann's laptop has it, and is not linked"):
        await fetching
    ended = fetcher.transfers.of(parse_capability(stored.capability).address)
    assert ended is not None
    assert "Ann's laptop" in (ended.why or "")
    await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability)


async def test_one_whose_only_source_is_silent_says_that_nothing_comes(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(5 * MIB))

    class Silenced(SilentPeer):
        async def shard(self, address: bytes, size: int) -> bytes:
            if not self.asked:
                return await Peer.shard(self, address, size)
            return await super().shard(address, size)

    silenced = Silenced(there)
    fetcher = Fetcher(shelf, lambda: [silenced])
    fetching = asyncio.ensure_future(fetcher.fetch(stored.capability))
    told = await until(fetcher, "nothing comes from there just now")
    assert told.verified == 0
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert fetcher.transfers.now() == ()


async def test_one_whose_manifest_does_not_come_says_so_and_who_was_asked(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pqueue.payload.fetching.fetch.STANDS_AFTER", 0.1)
    stored = there.ingest(make_file(5 * MIB))
    silent = SilentPeer(there, "laptop")
    fetcher = Fetcher(shelf, lambda: [silent])
    fetching = asyncio.ensure_future(fetcher.fetch(stored.capability))
    told = await until(fetcher, "its manifest was asked for")
    assert [(each.name, each.lane) for each in told.sources] == [("laptop", "webrtc")]
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching


@pytest.mark.parametrize("kind", [Peer, CarryingPeer])
async def test_a_rate_holds_for_every_kind_of_lane_and_may_be_lifted(
    shelf: Shelf, there: Shelf, make_file: MakeFile, kind: type[Peer]
) -> None:
    stored = there.ingest(make_file(12 * MIB))
    limits = Limits()
    limits.download.set(4 * MIB)
    fetcher = Fetcher(shelf, lambda: [kind(there)], limits=limits)
    begun = asyncio.get_running_loop().time()
    fetching = asyncio.ensure_future(fetcher.fetch(stored.capability))
    while not any(each.verified >= 4 * MIB for each in fetcher.transfers.now()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - begun >= 0.5  # three chunks at that rate, the first at once
    limits.download.set(None)
    await fetching


def test_a_speed_follows_what_comes_and_forgets_what_was() -> None:
    speed = Speed(0, 0.0)
    assert speed.at(0.1, 10) == 0.0
    assert speed.at(1.0, 1000) == pytest.approx(1000)
    for second in range(2, 20):
        last = speed.at(float(second), 1000 + (second - 1) * 2000)
    assert last == pytest.approx(2000, rel=0.05)
    assert speed.still_for(20.0) == 1.0
    assert speed.at(40.0, 37000) == 0.0
