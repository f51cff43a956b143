"""A real origin on loopback, and the client that nodes use."""

from __future__ import annotations

import os
from pathlib import Path

import aiohttp
import pytest
from blake3 import blake3

from p2pqueue.errors import ConfigError
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.origins.client import OriginClient, parse_origin
from p2pqueue.payload.origins.keeping import Keeping
from p2pqueue.payload.origins.ledger import UNREAD
from p2pqueue.payload.origins.objects import StoreFull
from tests.unit.payload.origins import TOKEN, keeping_in, names_in, serving

BODY = os.urandom(100_000)
ADDRESS = blake3(BODY).digest()
NAME = f"shards/{ADDRESS.hex()}"
MAIL = f"{'a' * 32}/{'b' * 32}/index"


@pytest.fixture
async def keeping(tmp_path: Path) -> Keeping:
    return await keeping_in(tmp_path / "origin")


async def test_a_shard_that_was_put_can_be_got_by_another_until_it_is_deleted(keeping: Keeping) -> None:
    async with serving(keeping) as client:
        origin = client(TOKEN)
        assert not await origin.has(ADDRESS)
        with pytest.raises(ShardMissing):
            await origin.shard(ADDRESS, 1 << 20)
        await origin.put(ADDRESS, BODY)
        await origin.put(ADDRESS, BODY)
        assert await origin.has(ADDRESS)
        assert await origin.shard(ADDRESS, 1 << 20) == BODY
        assert keeping.ledger.used == len(BODY)
        await origin.delete(ADDRESS)
        await origin.delete(ADDRESS)
        assert not await origin.has(ADDRESS)
        assert keeping.ledger.used == 0


async def test_what_was_put_outlives_the_origin_and_half_a_file_of_a_cut_upload_does_not(tmp_path: Path) -> None:
    async with serving(await keeping_in(tmp_path)) as client:
        await client(TOKEN).put(ADDRESS, BODY)
    (tmp_path / "shards" / f".{ADDRESS.hex()}.cut").write_bytes(b"half")
    (tmp_path / ".profile").write_bytes(b"somebody's own")
    again = await keeping_in(tmp_path)
    assert again.ledger.used == len(BODY)
    assert [path.name for path in (tmp_path / "shards").iterdir()] == [ADDRESS.hex()]
    assert (tmp_path / ".profile").exists()
    async with serving(again) as client:
        assert await client(TOKEN).shard(ADDRESS, 1 << 20) == BODY


async def test_a_body_that_does_not_fit_its_address_is_refused(keeping: Keeping) -> None:
    async with serving(keeping) as client:
        with pytest.raises(SourceFailed, match="422: the body doesn't fit its address"):
            await client(TOKEN).put(ADDRESS, BODY[:-1])
        assert not await client(TOKEN).has(ADDRESS)
        assert await names_in(keeping.store) == []


async def test_without_the_token_nothing_is_given_taken_or_removed(keeping: Keeping) -> None:
    async with serving(keeping) as client:
        await client(TOKEN).put(ADDRESS, BODY)
        await client(TOKEN).put_mail(MAIL, b"sealed")
        stranger = client("guess")
        for attempt in (
            stranger.shard(ADDRESS, 1 << 20), stranger.put(ADDRESS, BODY), stranger.delete(ADDRESS), stranger.has(ADDRESS),
            stranger.list_mail("a" * 32), stranger.get_mail(MAIL, limit=100), stranger.put_mail(MAIL, b"x"), stranger.delete_mail(MAIL),
        ):  # fmt: skip
            with pytest.raises(SourceFailed, match="401"):
                await attempt
        assert await client(TOKEN).has(ADDRESS)


async def test_an_origin_that_is_open_gives_shards_to_anybody_and_takes_from_none_and_shows_no_mail(keeping: Keeping) -> None:
    async with serving(keeping, open_reading=True) as client:
        await client(TOKEN).put(ADDRESS, BODY)
        await client(TOKEN).put_mail(MAIL, b"sealed")
        assert await client("guess").shard(ADDRESS, 1 << 20) == BODY
        for attempt in (client("guess").delete(ADDRESS), client("guess").list_mail("a" * 32), client("guess").get_mail(MAIL, limit=100)):
            with pytest.raises(SourceFailed, match="401"):
                await attempt


async def test_mail_is_listed_with_marks_that_change_with_what_is_in_it(keeping: Keeping) -> None:
    async with serving(keeping) as client:
        origin = client(TOKEN)
        assert await origin.list_mail("a" * 32) == []
        await origin.put_mail(MAIL, b"one")
        (first,) = await origin.list_mail("a" * 32)
        assert (first.name, first.size) == (MAIL, 3)
        await origin.put_mail(MAIL, b"two")
        (second,) = await origin.list_mail("a" * 32)
        assert second.mark != first.mark
        assert await origin.get_mail(MAIL, limit=100) == b"two"
        assert keeping.ledger.used == 3
        await origin.delete_mail(MAIL)
        assert await origin.get_mail(MAIL, limit=100) is None
        assert await origin.list_mail("a" * 32) == []


async def test_a_full_origin_says_so(tmp_path: Path) -> None:
    small = await keeping_in(tmp_path / "small", quota=len(BODY) + 10)
    async with serving(small) as client:
        await client(TOKEN).put(ADDRESS, BODY)
        other = os.urandom(100)
        with pytest.raises(SourceFailed, match="507: the origin is full"):
            await client(TOKEN).put(blake3(other).digest(), other)
        await client(TOKEN).delete(ADDRESS)
        await client(TOKEN).put(blake3(other).digest(), other)
    with pytest.raises(StoreFull):
        await small.put("shards/" + "0" * 64, BODY)


async def test_what_nobody_has_read_for_long_is_removed_and_what_was_read_stays(tmp_path: Path) -> None:
    keeping = await keeping_in(tmp_path)
    other = os.urandom(10)
    for body in (BODY, other):
        await keeping.put(f"shards/{blake3(body).hexdigest()}", body)
    entered = keeping.ledger.unread(now=1e12)
    assert len(entered) == 2
    now = (tmp_path / NAME).stat().st_mtime
    keeping.ledger.touch(NAME, now=now + UNREAD - 10)
    assert await keeping.tidy(now=now + UNREAD + 60) == 1
    assert await names_in(keeping.store) == [NAME]
    again = await keeping_in(tmp_path)
    assert again.ledger.used == len(BODY)


@pytest.mark.parametrize("path", ["/shards/abc", "/shards/" + "A" * 64, "/shards/..%2f..%2fetc%2fpasswd", "/shards/" + "0" * 65,
                                  "/mail/x", f"/mail/{'a' * 32}/{'b' * 32}/..", f"/mail/{'a' * 32}/..%2f../index",
                                  f"/mail/{'a' * 32}/{'b' * 32}/{'x' * 65}"])  # fmt: skip
async def test_a_path_that_is_no_address_reaches_no_file(keeping: Keeping, path: str) -> None:
    async with serving(keeping) as client:
        base = client(TOKEN).address.base
        async with aiohttp.ClientSession() as session:
            for method in ("GET", "PUT", "DELETE"):
                async with session.request(method, f"{base}{path}", data=b"x", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
                    assert answer.status in (400, 404, 405)


async def test_a_body_that_is_larger_than_any_shard_is_refused(keeping: Keeping) -> None:
    async with serving(keeping) as client:
        with pytest.raises(SourceFailed, match="413"):
            await client(TOKEN).put(ADDRESS, bytes(9 << 20))


async def test_an_answer_that_is_larger_than_asked_for_is_not_taken(keeping: Keeping) -> None:
    async with serving(keeping) as client:
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
