"""Everything that a node and an origin do with a bucket, with what speaks as Azure and as Google do.

Their emulators are large, so that no other run needs them: `P2PQUEUE_TEST_AZURITE` names an `azurite-blob`,
`P2PQUEUE_TEST_FAKE_GCS` a `fake-gcs-server`, where they aren't on the path.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from blake3 import blake3
from yarl import URL

from p2pqueue.home import Home
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.origins import bucket as room
from p2pqueue.payload.origins.bucket import Bucket
from p2pqueue.payload.origins.bucket_client import BucketClient
from p2pqueue.payload.origins.keeping import Keeping
from p2pqueue.payload.origins.objects import StoreFailed
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.shards.uploading import Uploader
from tests.integration.clouds.azure import azure
from tests.integration.clouds.emulator import installed
from tests.integration.clouds.google import google
from tests.integration.mail.test_apart import be_done
from tests.unit.payload.origins import TOKEN, names_in, serving

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

MIB = 1024**2
BODY = os.urandom(200_000)
ADDRESS = blake3(BODY).digest()
MAIL = f"{'a' * 32}/{'b' * 32}/index"
BOX = "box"


@pytest.fixture(scope="module", params=["az", "gs"])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "az":
        with azure(installed("P2PQUEUE_TEST_AZURITE", "azurite-blob"), folder, BOX) as environment:
            yield "az", environment
    else:
        with google(installed("P2PQUEUE_TEST_FAKE_GCS", "fake-gcs-server"), folder, BOX) as environment:
            yield "gs", environment


@pytest.fixture
def url(cloud: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A prefix of its own."""
    scheme, environment = cloud
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return f"{scheme}://{BOX}/{blake3(request.node.name.encode()).hexdigest(length=4)}"


async def test_it_keeps_gives_lists_and_removes_objects(url: str) -> None:
    store = Bucket(url)
    await store.check()
    assert await store.get("shards/x", limit=10) is None
    assert await store.size("shards/x") is None
    await store.delete("shards/x")
    await store.put("shards/x", b"first")
    (before,) = await store.listed("shards/")
    await store.put("shards/x", memoryview(b"a second")[2:])
    (after,) = await store.listed("shards/")
    assert (after.name, after.size) == ("shards/x", 6)
    assert before.mark != after.mark
    assert await store.get("shards/x", limit=6) == b"second"
    assert await store.size("shards/x") == 6
    with pytest.raises(StoreFailed):
        await store.get("shards/x", limit=5)
    await store.put(f"mail/{MAIL}", b"sealed")
    await store.put("shards/y", b"other")
    assert len(await store.listed("shards/", most=1)) == 1
    assert await store.listed("mail/" + "c" * 32) == []
    await store.delete("shards/x")
    assert await names_in(store) == [f"mail/{MAIL}", "shards/y"]


async def test_a_node_uses_it_without_an_origin(url: str) -> None:
    client = BucketClient(Bucket(url))
    with pytest.raises(ShardMissing):
        await client.shard(ADDRESS, MIB)
    await client.put(ADDRESS, BODY)
    assert await client.has(ADDRESS)
    assert await client.shard(ADDRESS, len(BODY)) == BODY
    await client.put_mail(MAIL, b"sealed")
    assert await client.get_mail(MAIL, limit=100) == b"sealed"
    assert [each.name for each in await client.list_mail("a" * 32)] == [MAIL]
    await client.delete(ADDRESS)
    await client.delete_mail(MAIL)
    assert await names_in(client.store) == []


async def test_an_origin_that_signs_sends_on_to_it_and_what_nobody_read_goes(url: str) -> None:
    keeping = await Keeping.open(Bucket(url), quota=1_000_000)
    async with serving(keeping, signs=True) as client:
        origin = client(TOKEN)
        with pytest.raises(ShardMissing):
            await origin.shard(ADDRESS, MIB)
        await origin.put(ADDRESS, BODY)
        assert await origin.shard(ADDRESS, MIB) == BODY
        await origin.put_mail(MAIL, b"sealed")
    again = await Keeping.open(Bucket(url), quota=1_000_000)
    assert again.ledger.used == len(BODY) + 6
    assert await again.tidy(now=2e9 + 31 * 86_400) == 2
    assert await names_in(again.store) == []


async def test_a_signed_url_counts_for_one_object_and_for_a_while(
    url: str, cloud: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if cloud[0] == "gs":
        pytest.skip("this emulator looks at no signature")
    store = Bucket(url)
    await store.put("shards/x", b"x")
    signed = await store.url("GET", "shards/x")
    assert signed is not None
    monkeypatch.setattr(room, "SIGNED_FOR", timedelta(seconds=1))
    short = await store.url("GET", "shards/x")
    assert short is not None
    await asyncio.sleep(2.5)
    async with aiohttp.ClientSession() as session:
        asked = [(signed, 200), (short, 403), (signed.replace("shards/x", "shards/y"), 403)]
        for each, status in asked:
            async with session.get(URL(each, encoded=True)) as answer:
                assert answer.status == status


async def test_a_large_file_goes_there_and_comes_from_there(url: str, tmp_path: Path) -> None:
    shelves = []
    for name in ("from", "to"):
        home = Home(tmp_path / name)
        home.ensure()
        shelves.append(Shelf(home, bytes(32), quota=200 * MIB, reserve=0))
    content = os.urandom(20 * MIB + 1)
    (tmp_path / "large.bin").write_bytes(content)
    capability = shelves[0].ingest(tmp_path / "large.bin").capability
    client = BucketClient(Bucket(url), is_last_resort=False)

    async def wanted() -> list[str]:
        return [capability]

    async def nothing(*_: object) -> None:
        pass

    uploader = Uploader(shelves[0], client, wanted, note=nothing, take=nothing, forbids=lambda: None)
    task = asyncio.get_running_loop().create_task(uploader.run())
    try:
        async with asyncio.timeout(120):
            await uploader.settled()
    finally:
        task.cancel()
    assert uploader.trouble is None
    await Fetcher(shelves[1], lambda: [client]).fetch(capability)
    assert b"".join(shelves[1].open(capability)) == content
    for shelf in shelves:
        shelf.close()


async def test_what_is_wrong_with_it_is_told_in_words(url: str, cloud: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    none = BucketClient(Bucket(url.replace(BOX, "no-such-box")))
    for attempt in (none.put(ADDRESS, BODY), none.shard(ADDRESS, MIB)):
        with pytest.raises((SourceFailed, ShardMissing)):
            await attempt
    if cloud[0] == "az":
        with pytest.raises(StoreFailed, match="no-such-box.* is not there"):
            await Bucket(none.store.shown).check()
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
        with pytest.raises(StoreFailed, match="refuses these credentials .*AZURE_"):
            await Bucket(url).check()


def test_a_job_with_an_input_goes_through_it_between_devices_that_are_never_there_together(
    url: str, cloud: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    be_done(tmp_path, {"P2PQUEUE_ORIGIN": url, **cloud[1]}, "owner")
