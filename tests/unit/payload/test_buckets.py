"""Objects in a folder, in memory, in a bucket of a server that speaks S3; and what a node is told where that can't be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from blake3 import blake3

from p2pqueue.errors import ConfigError
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.origins.access import check_origin, open_origin, shown_origin
from p2pqueue.payload.origins.bucket import Bucket
from p2pqueue.payload.origins.bucket_client import BucketClient
from p2pqueue.payload.origins.folder import Folder
from p2pqueue.payload.origins.keeping import Keeping
from p2pqueue.payload.origins.objects import ObjectStore, StoreFailed
from tests.unit.payload.origins import BUCKET, TOKEN, answering, environment_of, names_in, s3, serving

BODY = os.urandom(200_000)
ADDRESS = blake3(BODY).digest()
MAIL = f"{'a' * 32}/{'b' * 32}/index"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3() as url:
        yield url


@pytest.fixture
def environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment_of(endpoint).items():
        monkeypatch.setenv(name, value)
    return endpoint


@pytest.fixture(params=["folder", "memory", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    if request.param == "folder":
        yield Folder(tmp_path / "objects")
        return
    if request.param == "s3":
        request.getfixturevalue("environment")
    found = Bucket("memory://" if request.param == "memory" else f"s3://{BUCKET}/one")
    yield found
    for name in await names_in(found):
        await found.delete(name)


async def test_every_place_keeps_gives_lists_and_removes_objects(store: ObjectStore) -> None:
    assert await store.get("shards/x", limit=10) is None
    assert await store.size("shards/x") is None
    await store.delete("shards/x")
    await store.put("shards/x", b"first")
    await store.put("shards/x", b"second")
    await store.put(f"mail/{MAIL}", b"sealed")
    assert await store.get("shards/x", limit=6) == b"second"
    assert await store.size("shards/x") == 6
    with pytest.raises(StoreFailed):
        await store.get("shards/x", limit=5)
    (listed,) = await store.listed(f"mail/{'a' * 32}/")
    assert (listed.name, listed.size) == (f"mail/{MAIL}", 6)
    assert await store.listed("mail/" + "c" * 32) == []
    await store.put("shards/y", b"other")
    assert len(await store.listed("shards/", most=1)) == 1
    await store.delete("shards/x")
    assert await names_in(store) == [f"mail/{MAIL}", "shards/y"]


async def test_what_was_put_stays_when_the_caller_uses_its_memory_again(store: ObjectStore) -> None:
    memory = bytearray(BODY)
    await store.put("shards/x", memoryview(memory)[1:])
    memory[:] = bytes(len(BODY))
    assert await store.get("shards/x", limit=len(BODY)) == BODY[1:]


async def test_an_origin_stands_before_every_place(store: ObjectStore) -> None:
    keeping = await Keeping.open(store, quota=1_000_000)
    async with serving(keeping) as client:
        origin = client(TOKEN)
        assert not await origin.has(ADDRESS)
        await origin.put(ADDRESS, BODY)
        assert await origin.shard(ADDRESS, 1 << 20) == BODY
        with pytest.raises(SourceFailed, match="422"):
            await origin.put(bytes(32), BODY)
        await origin.put_mail(MAIL, b"sealed")
        assert [each.name for each in await origin.list_mail("a" * 32)] == [MAIL]
    again = await Keeping.open(store, quota=1_000_000)
    assert again.ledger.used == len(BODY) + 6


async def test_a_node_uses_every_place_without_an_origin(store: ObjectStore) -> None:
    client = BucketClient(store)
    with pytest.raises(ShardMissing):
        await client.shard(ADDRESS, 1 << 20)
    await client.put(ADDRESS, BODY)
    assert await client.has(ADDRESS)
    assert await client.shard(ADDRESS, len(BODY)) == BODY
    with pytest.raises(SourceFailed):
        await client.shard(ADDRESS, len(BODY) - 1)
    await client.put_mail(MAIL, b"sealed")
    await store.put(f"mail/{'a' * 32}/somebody's own", b"x")
    assert await client.get_mail(MAIL, limit=100) == b"sealed"
    assert [each.name for each in await client.list_mail("a" * 32)] == [MAIL]
    await client.delete(ADDRESS)
    await client.delete_mail(MAIL)
    await store.delete(f"mail/{'a' * 32}/somebody's own")
    assert await names_in(store) == []


async def test_an_origin_that_signs_lets_bytes_go_straight_to_the_bucket(environment: str) -> None:
    store = Bucket(f"s3://{BUCKET}/signed")
    keeping = await Keeping.open(store, quota=1_000_000)
    async with serving(keeping, signs=True) as client:
        origin = client(TOKEN)
        with pytest.raises(ShardMissing):
            await origin.shard(ADDRESS, 1 << 20)
        await origin.put(bytes(32), BODY)  # nobody looks at what goes past the origin
        assert await store.get("shards/" + "0" * 64, limit=1 << 20) == BODY
        await origin.delete(bytes(32))
        await origin.put(ADDRESS, BODY)
        assert await origin.shard(ADDRESS, 1 << 20) == BODY
        async with aiohttp.ClientSession() as session:
            url = f"{origin.address.base}/shards/{ADDRESS.hex()}"
            async with session.get(url, headers={"Authorization": f"Bearer {TOKEN}"}, allow_redirects=False) as answer:
                assert answer.status == 307
                assert answer.headers["Location"].startswith(environment)
        keeping.quota = keeping.ledger.used
        with pytest.raises(SourceFailed, match="507"):
            await origin.put(bytes(32), BODY)
    await store.delete(f"shards/{ADDRESS.hex()}")


async def test_a_bucket_that_is_not_there_is_told_in_words(environment: str) -> None:
    none = Bucket("s3://no-such-bucket/x")
    for attempt in (none.check(), none.put("shards/x", b"x"), none.get("shards/x", limit=1)):
        with pytest.raises(StoreFailed, match="s3://no-such-bucket/x is not there"):
            await attempt


async def test_a_place_that_nobody_answers_at_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreFailed, match="can't be reached"):
        await Bucket("s3://bucket").check()


async def test_missing_keys_are_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # a machine of the cloud would give them
    with pytest.raises(StoreFailed, match="has no credentials: see the variables AWS_"):
        await Bucket("s3://bucket").check()
    with pytest.raises(ConfigError, match="AZURE_"):
        Bucket("az://container/x")
    assert Bucket("gs://bucket/x").shown == "gs://bucket/x"


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///x", "s3://key:secret@bucket/x", "s3://bucket/x?secret=1", "file:///tmp", "gs://", "http://bucket"]
)
def test_a_url_that_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Bucket(url)


def test_what_is_shown_of_an_origin_has_no_token() -> None:
    assert shown_origin("http://secret@nas:7434/x") == "http://nas:7434/x"
    assert shown_origin("s3://bucket/x") == "s3://bucket/x"
    with pytest.raises(ConfigError):
        check_origin("ftp://x")


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def _refuse(request: web.Request) -> web.StreamResponse:
    words = "<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>"
    return web.Response(status=403, text=words, content_type="application/xml")


async def _fail(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="out of order")


async def _halve(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": str(len(BODY)), "ETag": "x", "Last-Modified": "Mon, 30 Nov 2026 15:00:00 GMT"})
    await answer.prepare(request)
    await answer.write(BODY[: len(BODY) // 2])
    assert request.transport is not None
    request.transport.close()
    return answer


async def _change(request: web.Request) -> web.StreamResponse:
    return web.Response(body=BODY[::-1], headers={"ETag": "x", "Last-Modified": "Mon, 30 Nov 2026 15:00:00 GMT"})


@pytest.fixture(params=["bucket", "origin"])
def reach(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, aiohttp.ClientSession], object]:
    def opened(base: str, session: aiohttp.ClientSession) -> object:
        for name, value in environment_of(base).items():
            monkeypatch.setenv(name, value)
        return open_origin(f"s3://{BUCKET}/x" if request.param == "bucket" else base.replace("//", "//secret@"), lambda: session)

    return opened


@pytest.mark.parametrize(("answer", "words"), [(_refuse, "403|refuses these credentials"), (_fail, "500"), (_halve, ".")])
async def test_an_origin_or_a_bucket_that_refuses_fails_or_stops_half_way_is_told_in_words(
    reach: Callable[[str, aiohttp.ClientSession], BucketClient], answer: Answer, words: str
) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with answering(app) as base, aiohttp.ClientSession() as session:
        origin = reach(base, session)
        with pytest.raises(SourceFailed, match=words) as raised:
            async with asyncio.timeout(30):
                await origin.shard(ADDRESS, 1 << 20)
        assert "secret" not in str(raised.value)
        assert len(str(raised.value)) < 500


async def test_another_object_is_given_as_it_is_since_whoever_fetches_checks_it(
    reach: Callable[[str, aiohttp.ClientSession], BucketClient],
) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _change)
    async with answering(app) as base, aiohttp.ClientSession() as session:
        assert await reach(base, session).shard(ADDRESS, 1 << 20) == BODY[::-1]
