"""A bucket is used for a whole file and answers what it should not: for a while, which costs time, or always, which is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from p2pqueue.errors import PayloadUnavailable
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.origins.bucket import Bucket
from p2pqueue.payload.origins.bucket_client import BucketClient
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.shards import uploading
from p2pqueue.peers.shards.uploading import Uploader
from tests.unit.payload.origins import BUCKET, answering, environment_of
from tests.unit.peers.served import MIB, served
from tests.unit.peers.test_sources import Linked, content, fetching, shared

SIZE = 5 * MIB
MARKS = {"ETag": '"x"', "Last-Modified": "Mon, 30 Nov 2026 15:00:00 GMT"}

Answer = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


def error(status: int, code: str) -> web.Response:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>of the bucket</Message></Error>"
    return web.Response(status=status, text=text, content_type="application/xml")


async def right(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body, headers=MARKS)


async def refusal(request: web.Request, body: bytes) -> web.StreamResponse:
    return error(403, "AccessDenied")


async def skew(request: web.Request, body: bytes) -> web.StreamResponse:
    return error(403, "RequestTimeTooSkewed")


async def failure(request: web.Request, body: bytes) -> web.StreamResponse:
    return error(500, "InternalError")


async def half(request: web.Request, body: bytes) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": str(len(body)), **MARKS})
    await answer.prepare(request)
    await answer.write(body[: len(body) // 2])
    assert request.transport is not None
    request.transport.close()
    return answer


async def half_called_whole(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body[: len(body) // 2], headers=MARKS)


async def nothing(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=b"", headers=MARKS)


async def another(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body[::-1], headers=MARKS)


async def more(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body + bytes(4 * MIB), headers=MARKS)


async def words(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(text="<html>Sign in to this network</html>", content_type="text/html", headers=MARKS)


async def sign_in(request: web.Request) -> web.StreamResponse:
    return await words(request, b"")


async def elsewhere(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": f"{request.url.origin()}/sign-in"})


async def other_region(request: web.Request, body: bytes) -> web.StreamResponse:
    return error(301, "PermanentRedirect")


@dataclass
class BadBucket:
    """Answers wrongly from the `first` ask to the `last`; `kept` is what was put there."""

    answer: Answer
    first: int = 0
    last: float = float("inf")
    shelf: Shelf | None = None
    asked: int = 0
    wrongly: int = 0
    kept: dict[str, bytes] = field(default_factory=dict)

    def is_wrong(self) -> bool:
        self.asked += 1
        is_wrong = self.first < self.asked <= self.last
        self.wrongly += is_wrong
        return is_wrong

    async def give(self, request: web.Request) -> web.StreamResponse:
        assert self.shelf is not None
        body = await asyncio.to_thread(self.shelf.shard, bytes.fromhex(request.match_info["address"]))
        return await (self.answer if self.is_wrong() else right)(request, body)

    async def take(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self.is_wrong():
            return await self.answer(request, b"")
        self.kept[request.match_info["address"]] = body
        return web.Response(headers={"ETag": '"x"'})

    async def look(self, request: web.Request) -> web.StreamResponse:
        is_there = request.match_info["address"] in self.kept
        return web.Response(status=200 if is_there else 404, headers={**MARKS, "Content-Length": "1"})

    @contextlib.asynccontextmanager
    async def reached(self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BucketClient]:
        """It has what the shelf has."""
        self.shelf = shelf
        path = f"/{BUCKET}/x/shards/{{address}}"
        app = web.Application(client_max_size=2 * MIB)
        app.add_routes([web.head(path, self.look), web.get(path, self.give, allow_head=False), web.put(path, self.take)])
        app.add_routes([web.get("/sign-in", sign_in)])
        async with answering(app) as base:
            for name, value in environment_of(base).items():
                monkeypatch.setenv(name, value)
            yield BucketClient(Bucket(f"s3://{BUCKET}/x"))


FAULTS = [refusal, skew, failure, half, half_called_whole, nothing, another, more, words, elsewhere, other_region]
TOLD = {
    refusal: r"refuses these credentials \(AccessDenied\): see the variables AWS_",
    skew: "the clock of this device is wrong",
    failure: "500",
    more: "where .* at most were to be",
    other_region: "incorrectly configured region",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.payload.fetching.plan.ORIGIN_AFTER", 0.1)
    monkeypatch.setattr("p2pqueue.payload.fetching.standing.LACKS_FOR", 0.3)
    monkeypatch.setattr("p2pqueue.payload.origins.bucket._RETRIES", 0)


@pytest.mark.parametrize("answer", FAULTS)
async def test_what_it_does_wrong_for_a_while_costs_time_alone(tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = BadBucket(answer, first=2, last=4)  # two wrong answers to an ask for a chunk, not yet three
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), bad.reached(at.shelf, monkeypatch) as bucket:
        capability, wanted = shared(at, tmp_path, SIZE)
        sources.origin = lambda: (bucket,)
        async with asyncio.timeout(45):
            await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted
        assert bad.wrongly == 2


@pytest.mark.parametrize("answer", FAULTS)
async def test_what_it_does_wrong_always_is_told_and_leaves_nothing_half(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pqueue.payload.fetching.transfer.PATIENCE", 0.3)
    bad = BadBucket(answer, first=1)  # the manifest comes
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), bad.reached(at.shelf, monkeypatch) as bucket:
        capability, wanted = shared(at, tmp_path, SIZE)
        sources.origin = lambda: (bucket,)
        with pytest.raises(PayloadUnavailable, match=TOLD.get(answer, ".")) as told:
            async with asyncio.timeout(45):
                await fetcher.fetch(capability)
        assert "secret" not in str(told.value)
        assert len(str(told.value)) < 1000
        assert not shelf.holds(capability)
        sources.up(Linked(at.base))  # a device is there again
        await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted


async def test_one_that_falls_silent_does_not_keep_a_device_from_bringing_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def silence(request: web.Request, body: bytes) -> web.StreamResponse:
        await ended.wait()
        return error(500, "InternalError")

    bad = BadBucket(silence, first=2)
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), bad.reached(at.shelf, monkeypatch) as bucket:
        capability, wanted = shared(at, tmp_path, SIZE)
        sources.origin = lambda: (bucket,)
        fetch = asyncio.ensure_future(fetcher.fetch(capability))
        async with asyncio.timeout(30):
            while not bad.wrongly:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        sources.up(Linked(at.base))
        async with asyncio.timeout(40):
            await fetch
        assert content(shelf, capability) == wanted
        ended.set()


@pytest.mark.parametrize("answer", [refusal, skew, failure, elsewhere, other_region])
async def test_an_upload_that_it_does_not_take_is_told_and_goes_on_when_it_does(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "FIRST_WAIT", 0.1)
    bad = BadBucket(answer)
    async with served(tmp_path) as at, bad.reached(at.shelf, monkeypatch) as bucket:
        capability, wanted = shared(at, tmp_path, SIZE)

        async def all_of_it() -> list[str]:
            return [capability]

        async def none(*_: object) -> None:
            pass

        uploader = Uploader(at.shelf, bucket, all_of_it, note=none, take=none, forbids=lambda: None)
        uploads = asyncio.ensure_future(uploader.run())
        try:
            async with asyncio.timeout(45):
                await uploader.settled()
                assert uploader.trouble
                assert "secret" not in uploader.trouble
                bad.last = bad.asked
                while uploader.trouble or len(bad.kept) < 6:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            uploads.cancel()
        assert {bytes.fromhex(address) for address in bad.kept} == set(at.shelf.addresses(capability))
        async with fetching(tmp_path) as (_, _, shelf):
            bad.answer = right
            await Fetcher(shelf, lambda: [bucket]).fetch(capability)
            assert content(shelf, capability) == wanted
