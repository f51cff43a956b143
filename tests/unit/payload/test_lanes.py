"""Sources over lanes of every make, and what they may do wrong in each of them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p2pqueue.errors import BadShard, MalformedMessage, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload.fetching import gathering, plan, transfer
from p2pqueue.payload.fetching.budget import Buffers
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.source import Request, ShardMissing, SourceFailed, Work
from p2pqueue.payload.fetching.standing import STRIKES
from p2pqueue.payload.manifest import FileManifest
from p2pqueue.payload.publish import seal_manifest
from p2pqueue.payload.seal import Sealer
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content
from tests.unit.payload.peers import CarryingPeer, DeliveringPeer, Peer, SilentCarryingPeer, SilentPeer

KINDS = [Peer, DeliveringPeer, CarryingPeer]


def failing(_: bytes) -> bytes:
    raise SourceFailed("the cable was pulled")


def missing(_: bytes) -> bytes:
    raise ShardMissing


FATES: dict[str, Callable[[bytes], bytes]] = {
    "wrong": lambda found: bytes(len(found)),
    "too many": lambda found: found + bytes(1),
    "too few": lambda found: found[:-1],
    "nothing": lambda found: b"",
    "failing": failing,
    "missing": missing,
}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shelf]:
    """The shelf of another device."""
    home = Home(tmp_path / "there")
    home.ensure()
    made = Shelf(home, SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_lane_brings_a_file(shelf: Shelf, there: Shelf, make_file: MakeFile, kind: type[Peer]) -> None:
    stored = there.ingest(make_file(12 * MIB + 5))
    peer = kind(there)
    fetched = await Fetcher(shelf, lambda: [peer]).fetch(stored.capability)
    assert peer.asked == 1 + 13
    assert sum(fetched.received.values()) > 12 * MIB
    assert b"".join(shelf.open(stored.capability)) == content(12 * MIB + 5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fate", FATES)
async def test_what_a_source_does_wrong_costs_time_and_nothing_else(
    shelf: Shelf, there: Shelf, make_file: MakeFile, kind: type[Peer], fate: str
) -> None:
    stored = there.ingest(make_file(6 * MIB))
    bad = kind(there, "bad", fate=FATES[fate], lane="http")
    fetched = await Fetcher(shelf, lambda: [bad, Peer(there, "good")]).fetch(stored.capability)
    assert {source for source, _ in fetched.received} == {"good"}
    assert bad.asked > 0
    assert b"".join(shelf.open(stored.capability)) == content(6 * MIB)


@pytest.mark.parametrize("kind", [SilentPeer, SilentCarryingPeer])
async def test_a_source_that_never_answers_does_not_hold_up_the_end(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, kind: type[Peer]
) -> None:
    monkeypatch.setattr(gathering, "NEXT_AFTER", 0.1)
    stored = there.ingest(make_file(6 * MIB))
    silent = kind(there, "silent", lane="http")
    await Fetcher(shelf, lambda: [silent, Peer(there, "good")]).fetch(stored.capability)
    assert silent.asked > 0
    assert b"".join(shelf.open(stored.capability)) == content(6 * MIB)
    until = time.monotonic() + 5
    while any(thread.name.startswith("p2pqueue-lane") and _works(thread) for thread in threading.enumerate()):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)


def _works(thread: threading.Thread) -> bool:
    import sys

    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == "carry":
            return True
        frame = frame.f_back
    return False


async def test_a_silent_one_alone_is_given_up_in_words(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "STUCK", 0.2)
    monkeypatch.setattr(transfer, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(transfer, "PATIENCE", 0.3)
    stored = there.ingest(make_file(3 * MIB))

    class Silent(Peer):
        async def shard(self, address: bytes, size: int) -> bytes:
            if self.asked:
                await asyncio.Event().wait()
            return await super().shard(address, size)

    with pytest.raises(PayloadUnavailable, match="did not answer in time"):
        await Fetcher(shelf, lambda: [Silent(there)]).fetch(stored.capability)


async def test_a_device_that_lies_over_one_lane_is_not_asked_over_another(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(30 * MIB))
    liars = [CarryingPeer(there, "liar", fate=FATES["wrong"], lane="http"), Peer(there, "liar", fate=FATES["wrong"], lane="webrtc")]
    await Fetcher(shelf, lambda: [*liars, Peer(there, "good")]).fetch(stored.capability)
    assert sum(liar.asked for liar in liars) <= STRIKES + 2 * 2 + 1  # what was under way then, and the manifest
    assert b"".join(shelf.open(stored.capability)) == content(30 * MIB)


async def test_a_lane_that_dies_is_replaced_by_the_other_one_of_its_device(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(30 * MIB))
    other = Peer(there, lane="webrtc")
    quick = CarryingPeer(there, lane="http", fate=lambda found: found if quick.asked < 10 else failing(found))
    fetched = await Fetcher(shelf, lambda: [quick, other]).fetch(stored.capability)
    assert set(fetched.received) == {("peer", "http"), ("peer", "webrtc")}
    assert quick.asked + other.asked <= 1 + 30 + 8
    assert b"".join(shelf.open(stored.capability)) == content(30 * MIB)


@pytest.mark.parametrize("error", [SourceFailed("it was refused"), BadShard("what came makes no sense"), OSError(111, "refused"), None])
async def test_a_lane_that_ends_without_answering_has_failed(
    shelf: Shelf, there: Shelf, make_file: MakeFile, error: Exception | None
) -> None:
    stored = there.ingest(make_file(4 * MIB))

    class Broken(CarryingPeer):
        def carry(self, work: Work) -> None:
            work.take()
            work.take(wait=False)
            if error is not None:
                raise error

    broken = Broken(there, "broken", lane="http")
    fetched = await Fetcher(shelf, lambda: [broken, Peer(there, "good")]).fetch(stored.capability)
    assert ("good", "webrtc") in fetched.received
    assert b"".join(shelf.open(stored.capability)) == content(4 * MIB)


async def test_a_lane_whose_code_fails_ends_the_fetch_with_that_error(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(4 * MIB))

    class Mistaken(DeliveringPeer):
        async def deliver(self, request: Request) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Fetcher(shelf, lambda: [Mistaken(there)]).fetch(stored.capability)


async def test_a_manifest_whose_key_does_not_fit_is_nobody_elses_fault(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    good = there.describe(there.ingest(make_file(3 * MIB)).capability)
    references = bytearray(good.references)
    references[32] ^= 1  # of the key of the first chunk
    wrong = FileManifest(good.name, "", good.size, good.content, good.algorithm, bytes(references))
    with there.batch() as batch:
        root = seal_manifest(wrong, Sealer(SPACE_KEY, algorithm=good.algorithm), batch.add)
        batch.end(lambda connection: None, keep=root.address)
    with pytest.raises(MalformedMessage, match="its key"):
        await Fetcher(shelf, lambda: [Peer(there)]).fetch(root.text)
    assert not shelf.holds(root.text)


async def test_a_manifest_that_is_no_shard_of_that_address_is_asked_of_others(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(MIB))
    liar = Peer(there, "liar", fate=FATES["wrong"], lane="http")
    await Fetcher(shelf, lambda: [liar, Peer(there, "good")]).fetch(stored.capability)
    assert shelf.holds(stored.capability)


async def test_an_input_that_changes_while_it_is_served_is_told_in_words(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 0.3)
    path = make_file(70 * MIB)
    stored = there.ingest(path)

    class Changing(CarryingPeer):
        def get(self, address: bytes) -> bytes:
            if self.asked == 20:
                with open(path, "r+b") as file:
                    file.write(os.urandom(100))
            return super().get(address)

    with pytest.raises(PayloadUnavailable, match="changed since it was taken in"):
        await Fetcher(shelf, lambda: [Changing(there, lane="http")]).fetch(stored.capability)
    assert not shelf.holds(stored.capability)


async def test_memory_is_a_constant_whatever_is_under_way(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = there.ingest(make_file(64 * MIB))
    peers = [CarryingPeer(there, f"peer{number}", lane="http") for number in range(8)]
    most, give = [0], Buffers.give

    def count(buffers: Buffers, buffer: memoryview) -> None:
        give(buffers, buffer)
        most[0] = max(most[0], len(buffers._kept))

    monkeypatch.setattr(Buffers, "give", count)
    await Fetcher(shelf, lambda: peers).fetch(stored.capability)
    assert 0 < most[0] <= 32


def test_a_request_says_how_much_it_takes(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(2 * MIB + 10))
    seen: list[tuple[int, bool]] = []

    class Asking(CarryingPeer):
        def carry(self, work: Work) -> None:
            while (request := work.take()) is not None:
                for size in (0, request.size + 1):
                    with pytest.raises(BadShard):
                        request.room(size)
                body = self.get(request.address)
                request.room(len(body))[:] = body
                seen.append((request.size - len(body), request.finish()))
                assert not request.finish()  # once is enough
                request.fail(SourceFailed("late"))

    asyncio.run(Fetcher(shelf, lambda: [Asking(there)]).fetch(stored.capability))
    assert seen == [(0, True)] * 3
