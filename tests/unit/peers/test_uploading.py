"""What goes to an origin and what goes away from it, with a real shelf, real rows, and a bucket in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from p2pqueue.errors import PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.identity.keys import create
from p2pqueue.jobs.local import remember_shared
from p2pqueue.jobs.opening import open_store
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.payload.manifest import FileManifest
from p2pqueue.payload.origins.bucket import Bucket
from p2pqueue.payload.origins.bucket_client import BucketClient
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.shards.retiring import Retiring
from p2pqueue.peers.shards.uploading import Uploader
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from tests.unit.payload.conftest import content
from tests.unit.payload.origins import names_in

MIB = 1024**2


class Stage:
    """A device with a shelf, and a bucket."""

    def __init__(self, store: Store, shelf: Shelf, folder: Path, space_key: bytes) -> None:
        self.store, self.shelf, self.folder, self.space_key = store, shelf, folder, space_key
        self.bucket = Bucket("memory://")
        self.client = BucketClient(self.bucket)
        self.puts: list[str] = []
        self.wanted: list[str] = []
        self.forbidden: str | None = None
        self.taken = 0
        self.fails = 0
        self.retiring = Retiring(store, shelf, self.client, describe=self.describe, is_on=lambda: True)
        self.elsewhere: dict[str, FileManifest] = {}
        put = self.bucket.put

        async def counted(name: str, body: bytes | memoryview) -> None:
            if self.fails:
                self.fails -= 1
                raise SourceFailed("the bucket is out of order")
            self.puts.append(name)
            await put(name, body)

        self.bucket.put = counted  # type: ignore[method-assign]
        self.uploader = self.new_uploader()

    def new_uploader(self) -> Uploader:
        return Uploader(
            self.shelf, self.client, self._wanted, note=self.retiring.note, take=self._take, forbids=lambda: self.forbidden
        )  # fmt: skip

    async def _wanted(self) -> list[str]:
        return list(self.wanted)

    async def _take(self, size: int) -> None:
        self.taken += size

    async def describe(self, capability: str) -> FileManifest:
        if capability not in self.elsewhere:
            raise PayloadUnavailable("nobody has it")
        return self.elsewhere[capability]

    def file(self, size: int, *, name: str = "file.bin", seed: int = 0) -> str:
        path = self.folder / name
        path.write_bytes(content(size, seed))
        return self.shelf.ingest(path).capability

    async def uploaded(self) -> None:
        """Lets the uploader do what is wanted now."""
        task = asyncio.get_running_loop().create_task(self.uploader.run())
        end = time.monotonic() + 20
        try:
            while self.uploader.trouble or not all([await self.is_there(each) for each in self.wanted]):
                assert time.monotonic() < end, self.uploader.trouble
                await asyncio.sleep(0.02)
        finally:
            task.cancel()

    async def uploader_settles(self) -> None:
        """The same, without asking the bucket for anything."""
        task = asyncio.get_running_loop().create_task(self.uploader.run())
        try:
            async with asyncio.timeout(30):
                await self.uploader.settled()
        finally:
            task.cancel()
        assert self.uploader.trouble is None

    async def is_there(self, capability: str) -> bool:
        return all([await self.client.has(address) for address in self.shelf.addresses(capability)])

    async def name(self, capability: str) -> None:
        """A row names it."""
        await self.store.write(lambda writer: remember_shared(writer.connection, capability, 1))

    async def forget(self, capability: str) -> None:
        def write(writer: Writer) -> None:
            writer.connection.execute("DELETE FROM shared WHERE capability = ?", (capability,))

        await self.store.write(write)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    home = Home(tmp_path / "home")
    identity = create(home, space_name="studio", label="box")
    store = await open_store(home, identity)
    shelf = Shelf(home, identity.space_key, quota=100 * MIB, reserve=0)
    yield Stage(store, shelf, tmp_path, identity.space_key)
    shelf.close()
    await store.close()


async def test_a_file_goes_there_whole_its_manifest_last_and_what_is_there_is_not_sent_again(stage: Stage) -> None:
    stage.wanted = [stage.file(5 * MIB)]
    await stage.uploaded()
    root = stage.shelf.addresses(stage.wanted[0])[-1]
    assert stage.puts[-1] == f"shards/{root.hex()}"
    assert len(stage.puts) == len(set(stage.puts)) == 6
    assert stage.taken == stage.uploader.sent > 5 * MIB
    stage.uploader = stage.new_uploader()
    await stage.uploaded()
    assert len(stage.puts) == 6


async def test_an_upload_that_was_cut_goes_on_where_it_was(stage: Stage) -> None:
    stage.wanted = [stage.file(5 * MIB)]
    addresses = stage.shelf.addresses(stage.wanted[0])
    for address in addresses[:3]:
        await stage.client.put(address, stage.shelf.shard(address))
    stage.puts.clear()
    stage.fails = 1
    await stage.uploaded()
    assert not {f"shards/{address.hex()}" for address in addresses[:3]} & set(stage.puts)
    assert len(stage.puts) == 3


async def test_it_ends_where_it_is_stopped_while_an_upload_fails(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.wanted = [stage.file(5 * MIB)]
    begun = asyncio.Event()

    async def put(name: str, body: bytes | memoryview) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise SourceFailed("this device is offline")  # as it is at the same moment

    monkeypatch.setattr(stage.bucket, "put", put)
    running = asyncio.get_running_loop().create_task(stage.uploader.run())
    await begun.wait()
    running.cancel()
    await asyncio.wait((running,), timeout=10)
    assert running.cancelled()


async def test_a_large_file_that_is_not_there_is_hardly_asked_for(stage: Stage) -> None:
    stage.wanted = [stage.file(60 * MIB)]
    asked: list[str] = []
    size = stage.bucket.size

    async def counted(name: str) -> int | None:
        asked.append(name)
        return await size(name)

    stage.bucket.size = counted  # type: ignore[method-assign]
    await stage.uploader_settles()
    assert len(stage.puts) == 61
    assert len(asked) <= 1 + 8 + 3  # the manifest, the first of each task, and fewer and fewer of the others


async def test_an_upload_that_was_cut_far_on_finds_all_that_is_there(stage: Stage) -> None:
    stage.wanted = [stage.file(60 * MIB)]
    addresses = stage.shelf.addresses(stage.wanted[0])
    for address in addresses[:50]:
        await stage.client.put(address, stage.shelf.shard(address))
    stage.puts.clear()
    await stage.uploader_settles()
    assert sorted(stage.puts) == sorted(f"shards/{address.hex()}" for address in addresses[50:])


async def test_nothing_is_sent_while_transfers_are_paused_and_the_reason_is_told(stage: Stage) -> None:
    stage.wanted, stage.forbidden = [stage.file(2 * MIB)], "all transfers are paused"
    task = asyncio.get_running_loop().create_task(stage.uploader.run())
    async with asyncio.timeout(10):
        while stage.uploader.trouble != "all transfers are paused":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not stage.puts
    stage.forbidden = None
    task.cancel()
    await stage.uploaded()
    assert len(stage.puts) == 3


async def test_what_no_row_names_any_more_is_removed_but_not_what_another_file_needs(stage: Stage) -> None:
    one = stage.file(3 * MIB, name="one.bin")
    same = stage.file(3 * MIB, name="other name.bin")
    other = stage.file(2 * MIB, name="other.bin", seed=1)
    for each in (one, same, other):
        await stage.name(each)
    stage.wanted = [one, same, other]
    await stage.uploaded()
    assert await stage.retiring.look() == 0
    await stage.forget(one)
    await stage.forget(other)
    assert await stage.retiring.look() == 4  # both manifests, and the chunks of the other file
    assert await stage.is_there(same)
    assert not await stage.client.has(stage.shelf.addresses(one)[-1])
    await stage.forget(same)
    await stage.retiring.look()
    assert await names_in(stage.bucket) == []
    assert await stage.retiring.look() == 0


async def test_what_a_file_of_another_device_may_need_stays_until_its_manifest_can_be_had(stage: Stage, tmp_path: Path) -> None:
    mine = stage.file(3 * MIB)
    stage.wanted = [mine]
    await stage.uploaded()
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.ensure()
    theirs = Shelf(elsewhere, stage.space_key, quota=100 * MIB, reserve=0)
    path = tmp_path / "theirs.bin"
    path.write_bytes(content(3 * MIB)[: 2 * MIB])  # two of the three chunks
    named = theirs.ingest(path).capability
    await stage.name(named)
    with pytest.raises(PayloadUnavailable):
        await stage.retiring.look()
    assert await stage.is_there(mine)
    stage.elsewhere[named] = theirs.describe(named)
    theirs.close()
    await stage.retiring.look()
    left = await names_in(stage.bucket)
    assert left == sorted(f"shards/{address.hex()}" for address in stage.shelf.addresses(mine)[:2])


async def test_what_was_to_be_removed_goes_later_when_the_bucket_was_away(stage: Stage) -> None:
    mine = stage.file(2 * MIB)
    stage.wanted = [mine]
    await stage.uploaded()
    delete = stage.bucket.delete

    async def fail(name: str) -> None:
        raise SourceFailed("away")

    stage.bucket.delete = fail  # type: ignore[method-assign]
    with pytest.raises(SourceFailed):
        await stage.retiring.look()
    stage.bucket.delete = delete  # type: ignore[method-assign]
    assert await stage.retiring.look() == 3
    assert await names_in(stage.bucket) == []
