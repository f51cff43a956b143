"""A real origin on loopback, and the client that nodes use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from blake3 import blake3

from p2pqueue.errors import ConfigError, DiskFull
from p2pqueue.payload.origin import Origin, ShardFolder
from p2pqueue.payload.origin_client import OriginClient, parse_origin
from p2pqueue.payload.source import ShardMissing, SourceFailed

TOKEN = "t0ken"
BODY = os.urandom(100_000)
ADDRESS = blake3(BODY).digest()
Clients = Callable[[str], OriginClient]


@contextlib.asynccontextmanager
async def serving(store: ShardFolder, *, open_reading: bool = False) -> AsyncIterator[Clients]:
    runner = web.AppRunner(Origin(store, token=TOKEN, open_reading=open_reading).app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession() as session:
            yield lambda token: OriginClient(parse_origin(f"http://{token}@127.0.0.1:{port}"), lambda: session)
    finally:
        await runner.cleanup()


@pytest.fixture
def store(tmp_path: Path) -> ShardFolder:
    return ShardFolder(tmp_path / "origin", quota=10_000_000)


async def test_a_shard_that_was_put_can_be_got_by_another_until_it_is_deleted(store: ShardFolder) -> None:
    async with serving(store) as client:
        origin = client(TOKEN)
        assert not await origin.has(ADDRESS)
        with pytest.raises(ShardMissing):
            await origin.shard(ADDRESS, 1 << 20)
        await origin.put(ADDRESS, BODY)
        await origin.put(ADDRESS, BODY)
        assert await origin.has(ADDRESS)
        assert await origin.shard(ADDRESS, 1 << 20) == BODY
        assert store.used == len(BODY)
        await origin.delete(ADDRESS)
        await origin.delete(ADDRESS)
        assert not await origin.has(ADDRESS)
        assert store.used == 0


async def test_what_was_put_outlives_the_origin(store: ShardFolder) -> None:
    async with serving(store) as client:
        await client(TOKEN).put(ADDRESS, BODY)
    (store.folder / f".{ADDRESS.hex()}.cut").write_bytes(b"half")
    again = ShardFolder(store.folder, quota=10_000_000)
    assert again.used == len(BODY)
    assert [path.name for path in store.folder.iterdir()] == [ADDRESS.hex()]
    async with serving(again) as client:
        assert await client(TOKEN).shard(ADDRESS, 1 << 20) == BODY


async def test_a_body_that_does_not_fit_its_address_is_refused(store: ShardFolder) -> None:
    async with serving(store) as client:
        with pytest.raises(SourceFailed, match="422: the body doesn't fit its address"):
            await client(TOKEN).put(ADDRESS, BODY[:-1])
        assert not await client(TOKEN).has(ADDRESS)
        assert list(store.folder.iterdir()) == []


async def test_without_the_token_nothing_is_given_taken_or_removed(store: ShardFolder) -> None:
    async with serving(store) as client:
        await client(TOKEN).put(ADDRESS, BODY)
        stranger = client("guess")
        for attempt in (stranger.shard(ADDRESS, 1 << 20), stranger.put(ADDRESS, BODY), stranger.delete(ADDRESS), stranger.has(ADDRESS)):
            with pytest.raises(SourceFailed, match="401"):
                await attempt
        assert await client(TOKEN).has(ADDRESS)


async def test_an_origin_that_is_open_gives_to_anybody_and_takes_from_none(store: ShardFolder) -> None:
    async with serving(store, open_reading=True) as client:
        await client(TOKEN).put(ADDRESS, BODY)
        assert await client("guess").shard(ADDRESS, 1 << 20) == BODY
        with pytest.raises(SourceFailed, match="401"):
            await client("guess").delete(ADDRESS)


async def test_a_full_origin_says_so(tmp_path: Path) -> None:
    small = ShardFolder(tmp_path / "small", quota=len(BODY) + 10)
    async with serving(small) as client:
        await client(TOKEN).put(ADDRESS, BODY)
        other = os.urandom(100)
        with pytest.raises(SourceFailed, match="507: the origin is full"):
            await client(TOKEN).put(blake3(other).digest(), other)
        await client(TOKEN).delete(ADDRESS)
        await client(TOKEN).put(blake3(other).digest(), other)
    with pytest.raises(DiskFull):
        small.put("0" * 64, BODY)


@pytest.mark.parametrize("path", ["/shards/abc", "/shards/" + "A" * 64, "/shards/..%2f..%2fetc%2fpasswd", "/shards/" + "0" * 65])
async def test_a_path_that_is_no_address_reaches_no_file(store: ShardFolder, path: str) -> None:
    async with serving(store) as client:
        base = client(TOKEN).address.base
        async with aiohttp.ClientSession() as session:
            for method in ("GET", "PUT", "DELETE"):
                async with session.request(method, f"{base}{path}", data=b"x", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
                    assert answer.status in (400, 404)


async def test_a_body_that_is_larger_than_any_shard_is_refused(store: ShardFolder) -> None:
    async with serving(store) as client:
        with pytest.raises(SourceFailed, match="413"):
            await client(TOKEN).put(ADDRESS, bytes(9 << 20))


async def test_an_answer_that_is_larger_than_asked_for_is_not_taken(store: ShardFolder) -> None:
    async with serving(store) as client:
        await client(TOKEN).put(ADDRESS, BODY)
        with pytest.raises(SourceFailed, match="more than a shard of 1000 bytes"):
            await client(TOKEN).shard(ADDRESS, 1000)


async def test_an_origin_that_is_not_there_is_told_in_words() -> None:
    async with aiohttp.ClientSession() as session:
        gone = OriginClient(parse_origin("http://token@127.0.0.1:9"), lambda: session)
        with pytest.raises(SourceFailed, match=r"the origin http://127\.0\.0\.1:9 can't be reached") as raised:
            await gone.has(ADDRESS)
        assert "token" not in str(raised.value)


@pytest.mark.parametrize("url", ["", "host:80", "ftp://a@b", "http://", "http://[::1", "http://a@b:99999"])
def test_a_url_that_is_none_of_an_origin_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_origin(url)
