"""Two shelves of one space; what one has is fetched by the other from sources that fail in every way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p2pqueue.errors import DiskFull, MalformedMessage, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload import reading
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.fetching import fetch, gathering, plan, transfer
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.format import LARGEST_FILE, PART_SIZE, REFERENCE_SIZE, ROOT_LIMIT, TAG_SIZES
from p2pqueue.payload.manifest import FileManifest, PartedManifest, encode
from p2pqueue.payload.seal import Sealer, address_of
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content
from tests.unit.payload.peers import Peer


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shelf]:
    """The shelf of another device."""
    home = Home(tmp_path / "there")
    home.ensure()
    made = Shelf(home, SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


def failing(_: bytes) -> bytes:
    raise SourceFailed("the cable was pulled")


@pytest.mark.parametrize("size", [0, 1, MIB, 3 * MIB + 17])
async def test_a_fetched_file_is_whole_and_can_be_served_on(shelf: Shelf, there: Shelf, make_file: MakeFile, size: int) -> None:
    stored = there.ingest(make_file(size), copy=False)
    steps: list[tuple[int, int]] = []
    fetched = await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability, on_progress=lambda *step: steps.append(step))
    path = shelf.locate(stored.capability)
    assert path is not None
    assert path.read_bytes() == content(size)
    assert path.name == "input.bin"
    assert sum(fetched.received.values()) > size
    assert set(fetched.received) == {("peer", "webrtc")}
    assert steps == [] if size == 0 else steps[-1] == (size, size)
    assert b"".join(shelf.open(stored.capability)) == content(size)
    for chunk in there.describe(stored.capability).chunks():
        assert shelf.shard(chunk.address) == there.shard(chunk.address)


async def test_what_came_is_served_on_without_hashing_it_again(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file whose first part came before a cut, I expect the chunks of the second to be checked by their tags."""
    stored = there.ingest(make_file(4 * MIB), copy=False)
    chunks = list(there.describe(stored.capability).chunks())
    served: list[bytes] = []

    def cut(shard: bytes) -> bytes:
        served.append(shard)
        if len(served) > 3:
            raise SourceFailed("the cable was pulled")
        return shard

    with monkeypatch.context() as brief:
        brief.setattr(transfer, "PATIENCE", 0.3)
        with pytest.raises(PayloadUnavailable):
            await Fetcher(shelf, lambda: [Peer(there, fate=cut)]).fetch(stored.capability)
    fetched = await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability)
    came = sum(fetched.received.values()) // MIB
    assert 0 < came < len(chunks)
    hashed: list[bytes] = []

    def note(shard: memoryview) -> bytes:
        hashed.append(address_of(shard))
        return hashed[-1]

    monkeypatch.setattr(reading, "address_of", note)
    assert [address_of(shelf.shard(chunk.address)) for chunk in chunks] == [chunk.address for chunk in chunks]
    assert len(hashed) == len(chunks) - came


async def test_what_is_here_already_is_not_fetched(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(MIB))
    peer = Peer(there)
    fetcher = Fetcher(shelf, lambda: [peer])
    first, second = await asyncio.gather(fetcher.fetch(stored.capability), fetcher.fetch(stored.capability))
    assert [bool(first.received), bool(second.received)].count(True) == 1
    asked = peer.asked
    assert not (await fetcher.fetch(stored.capability)).received
    assert peer.asked == asked


async def test_several_files_of_one_manifest_come_together(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    files = {name: there.ingest(make_file(2 * MIB, name, seed)).capability for seed, name in enumerate(("video", "sound"))}
    bundle = there.bundle(files)
    await Fetcher(shelf, lambda: [Peer(there)]).fetch(bundle)
    assert shelf.holds(bundle)
    assert shelf.unbundle(bundle).keys() == files.keys()
    assert b"".join(shelf.open(files["sound"])) == content(2 * MIB, 1)


async def test_manifests_that_are_nested_without_end_are_refused(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "DEEPEST", 3)

    def nest(name: str, levels: int) -> str:
        nested = there.ingest(make_file(1, name)).capability
        for _ in range(levels):
            nested = there.bundle({name: nested})
        return nested

    fetcher = Fetcher(shelf, lambda: [Peer(there)])
    await fetcher.fetch(nest("deep", 3))
    with pytest.raises(MalformedMessage, match="nested"):
        await fetcher.fetch(nest("deeper", 4))


async def test_a_manifest_that_many_list_is_fetched_once(shelf: Shelf, there: Shelf) -> None:
    """Thirty storeys of two manifests that each list both of the next storey: a thousand million ways lead to the last one."""
    first, second = (there.ingest_bytes(data, "x").capability for data in (b"x", b"y"))
    for storey in range(30):
        first, second = (there.bundle({f"{name}{storey}": first, "other": second}) for name in "ab")
    peer = Peer(there)
    await Fetcher(shelf, lambda: [peer]).fetch(first)
    assert shelf.holds(first)
    assert peer.asked == 1 + 2 * 29 + 2 * 2


async def test_partial_holders_together_bring_what_none_has_alone(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(8 * MIB))
    chunks = {chunk.address: number for number, chunk in enumerate(there.describe(stored.capability).chunks())}

    class Half(Peer):
        odd = False

        async def shard(self, address: bytes, size: int) -> bytes:
            if chunks.get(address, int(self.odd)) % 2 != self.odd:
                raise ShardMissing
            return await super().shard(address, size)

    even, odd = Half(there, "even"), Half(there, "odd")
    odd.odd = True
    fetched = await Fetcher(shelf, lambda: [even, odd]).fetch(stored.capability)
    assert {source for source, _ in fetched.received} == {"even", "odd"}
    assert b"".join(shelf.open(stored.capability)) == content(8 * MIB)


@pytest.mark.parametrize("fate", [failing, lambda found: found[:-1], lambda found: bytes(len(found)), lambda _: b""])
async def test_a_source_that_fails_or_lies_costs_time_and_nothing_else(
    shelf: Shelf, there: Shelf, make_file: MakeFile, fate: Callable[[bytes], bytes]
) -> None:
    stored = there.ingest(make_file(4 * MIB))
    bad = Peer(there, "bad", fate=fate)
    fetched = await Fetcher(shelf, lambda: [bad, Peer(there, "good")]).fetch(stored.capability)
    assert {source for source, _ in fetched.received} == {"good"}
    assert bad.asked > 0
    assert b"".join(shelf.open(stored.capability)) == content(4 * MIB)


async def test_the_origin_is_asked_only_when_no_peer_delivers(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ORIGIN_AFTER", 0.3)
    stored = there.ingest(make_file(3 * MIB))
    origin = Peer(there, "origin", last=True)
    near = await Fetcher(shelf, lambda: [Peer(there), origin]).fetch(stored.capability)
    assert origin.asked == 0
    assert set(near.received) == {("peer", "webrtc")}
    other = there.ingest(make_file(3 * MIB, "other", 5))
    far = await Fetcher(shelf, lambda: [Peer(None), origin]).fetch(other.capability)
    assert set(far.received) == {("origin", "origin")}


async def test_where_nobody_has_it_that_is_said_and_what_came_stays(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "PATIENCE", 0.4)
    monkeypatch.setattr(transfer, "PATIENCE", 0.4)
    stored = there.ingest(make_file(3 * MIB))
    with pytest.raises(PayloadUnavailable, match="no device is linked, and no origin is set; start"):
        await Fetcher(shelf, list).fetch(stored.capability)
    chunk = there.describe(stored.capability).chunk(2).address

    class Without(Peer):
        async def shard(self, address: bytes, size: int) -> bytes:
            if address == chunk:
                raise ShardMissing
            return await super().shard(address, size)

    with pytest.raises(PayloadUnavailable, match=r"no device that is linked has all of input\.bin.*\(shard [0-9a-f]{12}"):
        await Fetcher(shelf, lambda: [Without(there)]).fetch(stored.capability)
    assert not shelf.holds(stored.capability)
    whole = Peer(there)
    await Fetcher(shelf, lambda: [whole]).fetch(stored.capability)
    assert whole.asked == 2  # the manifest, and the chunk that was missing
    assert b"".join(shelf.open(stored.capability)) == content(3 * MIB)
    assert not list((shelf.home.path / "landings").iterdir())


@pytest.mark.parametrize(("happens", "words"), [("change", "changed since it was taken in"), ("go", "is gone since it was taken in")])
async def test_where_the_source_itself_failed_its_reason_is_told(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, happens: str, words: str
) -> None:
    monkeypatch.setattr(gathering, "PATIENCE", 0.4)
    monkeypatch.setattr(transfer, "PATIENCE", 0.4)
    path = make_file(70 * MIB)  # large enough to be served from where it lies
    stored = there.ingest(path)
    path.write_bytes(b"other") if happens == "change" else path.unlink()
    with pytest.raises(PayloadUnavailable, match=rf"input\.bin can't be had.*{words}"):
        await Fetcher(shelf, lambda: [Peer(there)]).fetch(stored.capability)
    cut = Peer(there, fate=failing_after(1))
    with pytest.raises(PayloadUnavailable, match="the cable was pulled"):
        await Fetcher(shelf, lambda: [cut]).fetch(there.ingest(make_file(3 * MIB, "b.bin")).capability)


def failing_after(count: int) -> Callable[[bytes], bytes]:
    """Serves so many shards, and then fails."""
    left = [count]

    def serve(found: bytes) -> bytes:
        left[0] -= 1
        return found if left[0] >= 0 else failing(found)

    return serve


async def test_a_source_that_comes_back_goes_on_where_it_was(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "LOOK_EVERY", 0.02)
    stored = there.ingest(make_file(6 * MIB))
    served = 0

    def cut(found: bytes) -> bytes:
        nonlocal served
        served += 1
        if served == 4:
            gone.set()
        if gone.is_set():
            raise SourceFailed("the cable was pulled")
        return found

    gone = asyncio.Event()
    first, second = Peer(there, fate=cut), Peer(there)
    fetching = asyncio.ensure_future(
        Fetcher(shelf, lambda: [] if gone.is_set() and not back.is_set() else [second if back.is_set() else first]).fetch(stored.capability)
    )
    back = asyncio.Event()
    await gone.wait()
    await asyncio.sleep(0.1)
    assert not fetching.done()
    back.set()
    await fetching
    assert second.asked <= 5
    assert b"".join(shelf.open(stored.capability)) == content(6 * MIB)


async def test_a_full_disk_ends_the_fetch_in_words(there: Shelf, make_file: MakeFile, tmp_path: Path) -> None:
    home = Home(tmp_path / "full")
    home.ensure()
    full = Shelf(home, SPACE_KEY, quota=64 * MIB, reserve=0)
    stored = there.ingest(make_file(2 * MIB))

    def no_room(size: int, *, expected: int = 0) -> None:
        raise DiskFull("No space left")

    full._store.check_disk = no_room  # type: ignore[method-assign]
    with pytest.raises(DiskFull):
        await Fetcher(full, lambda: [Peer(there)]).fetch(stored.capability)
    full.close()


async def test_a_fetch_that_is_cancelled_is_gone_on_with_by_the_next_one(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(8 * MIB))
    stuck = asyncio.Event()

    class Stuck(Peer):
        async def shard(self, address: bytes, size: int) -> bytes:
            if self.asked >= 6:
                stuck.set()
                await asyncio.Event().wait()
            return await super().shard(address, size)

    fetcher, peer = Fetcher(shelf, lambda: [peers[0]]), Peer(there)
    peers: list[Peer] = [Stuck(there)]
    fetching = asyncio.ensure_future(fetcher.fetch(stored.capability))
    waiting = asyncio.ensure_future(fetcher.fetch(stored.capability))
    await stuck.wait()
    peers[0] = peer
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await waiting
    assert peer.asked <= 1 + 8 - 5 + 2
    assert b"".join(shelf.open(stored.capability)) == content(8 * MIB)


async def test_a_fetch_that_is_cancelled_before_anything_came_leaves_nothing(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(4 * MIB))
    stuck = asyncio.Event()

    class Stuck(Peer):
        async def shard(self, address: bytes, size: int) -> bytes:
            if self.asked >= 1:
                stuck.set()
                await asyncio.Event().wait()
            return await super().shard(address, size)

    fetching = asyncio.ensure_future(Fetcher(shelf, lambda: [Stuck(there)]).fetch(stored.capability))
    await stuck.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert not list((shelf.home.path / "landings").iterdir())


async def test_no_more_is_asked_at_once_than_a_source_takes(shelf: Shelf, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(12 * MIB))
    peer = Peer(there, parallel=3)
    await Fetcher(shelf, lambda: [peer]).fetch(stored.capability)
    assert 2 <= peer.most <= 3


async def test_a_chunk_that_a_file_has_many_times_is_fetched_once(shelf: Shelf, there: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "sparse.img"
    zeros, some = bytes(MIB), content(MIB)
    whole = zeros * 9 + some + zeros * 9 + some + content(100, 1)
    path.write_bytes(whole)
    stored = there.ingest(path, copy=False)
    peer = Peer(there)
    steps: list[int] = []
    await Fetcher(shelf, lambda: [peer]).fetch(stored.capability, on_progress=lambda done, size: steps.append(done))
    assert peer.asked == 1 + 3
    assert steps[-1] == len(whole)
    assert b"".join(shelf.open(stored.capability)) == whole


async def test_a_manifest_that_claims_more_than_the_disk_can_take_is_refused_before_its_parts_are_fetched(
    shelf: Shelf, there: Shelf
) -> None:
    """A manifest of a few hundred bytes may claim 16 TiB, all parts of its references being one and the same shard."""
    sealer = Sealer(SPACE_KEY, capacity=ROOT_LIMIT)
    with there.batch() as batch:
        part = sealer.seal(bytes(PART_SIZE))
        reference = part.address + part.key
        batch.add(part)
        head = FileManifest("huge", "", LARGEST_FILE, bytes(32), sealer.algorithm, b"")
        count = -(-head.chunk_count * REFERENCE_SIZE // PART_SIZE)
        root = sealer.seal(encode(PartedManifest(head, reference * count)))
        capability = Capability(sealer.algorithm, root.address, root.key, len(root.body) - TAG_SIZES[sealer.algorithm])
        batch.add(root)
        batch.end(lambda connection: None, keep=root.address)
    peer = Peer(there)
    fetcher = Fetcher(shelf, lambda: [peer])
    with pytest.raises(DiskFull):
        await fetcher.fetch(capability.text)
    assert peer.asked == 1
    described = await fetcher.describe(capability.text)
    assert described.size == LARGEST_FILE
    assert not list(shelf.home.path.glob("landings/*"))
