"""An origin is asked for a whole file and answers what it should not: for a while, which costs time, or always, which is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from p2pqueue.errors import PayloadUnavailable
from p2pqueue.payload.origins.client import OriginClient, parse_origin
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.shards.uploading import Uploader
from tests.unit.payload.origins import answering
from tests.unit.peers.served import MIB, served
from tests.unit.peers.test_sources import Linked, content, fetching, shared

SIZE = 5 * MIB

Answer = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


async def right(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body)


async def refusal(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(status=403, text="not for you")


async def failure(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(status=500, text="out of order")


async def half(request: web.Request, body: bytes) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": str(len(body))})
    await answer.prepare(request)
    await answer.write(body[: len(body) // 2])
    assert request.transport is not None
    request.transport.close()
    return answer


async def half_called_whole(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body[: len(body) // 2])


async def another(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body[::-1])


async def more(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body + bytes(4 * MIB))


async def words(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(text="<html>Sign in to this network</html>", content_type="text/html")


@dataclass
class BadOrigin:
    """Answers wrongly from the `first` ask to the `last`."""

    answer: Answer
    first: int = 0
    last: float = float("inf")
    shelf: Shelf | None = None
    asked: int = 0
    wrongly: int = 0

    async def give(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        is_wrong = self.first < self.asked <= self.last
        self.wrongly += is_wrong
        assert self.shelf is not None
        body = await asyncio.to_thread(self.shelf.shard, bytes.fromhex(request.match_info["address"]))
        return await (self.answer if is_wrong else right)(request, body)

    @contextlib.asynccontextmanager
    async def reached(self, shelf: Shelf) -> AsyncIterator[OriginClient]:
        """It has what the shelf has."""
        self.shelf = shelf
        app = web.Application()
        app.add_routes([web.get("/shards/{address}", self.give)])
        async with answering(app) as base, aiohttp.ClientSession() as session:
            origin = OriginClient(parse_origin(base.replace("//", "//secret@")), lambda: session)
            yield origin
            origin.rest()


FAULTS = [refusal, failure, half, half_called_whole, another, more, words]


@pytest.mark.parametrize("answer", FAULTS)
async def test_what_it_does_wrong_for_a_while_costs_time_alone(tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.payload.fetching.plan.ORIGIN_AFTER", 0.1)
    monkeypatch.setattr("p2pqueue.payload.fetching.standing.LACKS_FOR", 0.3)
    bad = BadOrigin(answer, first=2, last=4)  # two wrong answers to an ask for a chunk, not yet three
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), bad.reached(at.shelf) as origin:
        capability, wanted = shared(at, tmp_path, SIZE)
        sources.origin = lambda: (origin,)
        async with asyncio.timeout(45):
            await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted
        assert bad.wrongly == 2


@pytest.mark.parametrize("answer", FAULTS)
async def test_what_it_does_wrong_always_is_told_and_leaves_nothing_half(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pqueue.payload.fetching.plan.ORIGIN_AFTER", 0.1)
    monkeypatch.setattr("p2pqueue.payload.fetching.transfer.PATIENCE", 0.3)
    bad = BadOrigin(answer, first=1)  # the manifest comes
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), bad.reached(at.shelf) as origin:
        capability, wanted = shared(at, tmp_path, SIZE)
        sources.origin = lambda: (origin,)
        with pytest.raises(PayloadUnavailable) as told:
            async with asyncio.timeout(45):
                await fetcher.fetch(capability)
        assert "secret" not in str(told.value)
        assert len(str(told.value)) < 1000
        if answer in (refusal, failure):
            assert {refusal: "403: not for you", failure: "500: out of order"}[answer] in str(told.value)
        assert not shelf.holds(capability)
        sources.up(Linked(at.base))  # a device is there again
        await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted


@pytest.mark.parametrize("answer", FAULTS)
async def test_what_it_does_wrong_when_asked_for_the_manifest_is_told(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pqueue.payload.fetching.gathering.PATIENCE", 0.3)
    bad = BadOrigin(answer)
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf), bad.reached(at.shelf) as origin:
        capability, _ = shared(at, tmp_path, SIZE)
        sources.origin = lambda: (origin,)
        with pytest.raises(PayloadUnavailable) as told:
            async with asyncio.timeout(45):
                await fetcher.fetch(capability)
        assert "secret" not in str(told.value)
        assert not shelf.holds(capability)


async def test_a_signed_url_to_put_to_that_has_expired_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.peers.shards.uploading.FIRST_WAIT", 0.1)
    kept: dict[str, bytes] = {}
    given: list[str] = []

    async def sign(request: web.Request) -> web.StreamResponse:
        given.append(f"{len(given)}")
        return web.json_response({"url": f"{request.url.origin()}/bucket/{request.match_info['address']}?signature={given[-1]}"})

    async def look(request: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if request.match_info["address"] in kept else 404)

    async def take(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.query["signature"] in ("1", "2"):
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        kept[request.match_info["address"]] = body
        return web.Response()

    async def nothing(*_: object) -> None:
        pass

    app = web.Application(client_max_size=2 * MIB)
    app.add_routes([web.head("/shards/{address}", look), web.post("/shards/{address}", sign), web.put("/bucket/{address}", take)])
    async with served(tmp_path) as at, answering(app) as base, aiohttp.ClientSession() as session:
        capability, _ = shared(at, tmp_path, SIZE)

        async def wanted() -> list[str]:
            return [capability]

        origin = OriginClient(parse_origin(base.replace("//", "//secret@")), lambda: session)
        uploader = Uploader(at.shelf, origin, wanted, note=nothing, take=nothing, forbids=lambda: None)
        uploads = asyncio.ensure_future(uploader.run())
        try:
            async with asyncio.timeout(45):
                await uploader.settled()
                assert "403: <Error><Code>AccessDenied" in (uploader.trouble or "")
                while uploader.trouble or len(kept) < 6:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            uploads.cancel()
        assert kept == {address.hex(): at.shelf.shard(address) for address in at.shelf.addresses(capability)}


async def test_a_signed_url_that_has_expired_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a bucket whose signatures count for a while: the one that was given for a shard counts no more."""
    monkeypatch.setattr("p2pqueue.payload.fetching.plan.ORIGIN_AFTER", 0.1)
    given: list[str] = []
    late: list[str] = []
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, SIZE)

        async def sign(request: web.Request) -> web.StreamResponse:
            given.append(f"{len(given)}")
            where = f"{request.url.origin()}/bucket/{request.match_info['address']}?signature={given[-1]}"
            return web.Response(status=307, headers={"Location": where})

        async def give(request: web.Request) -> web.StreamResponse:
            if request.query["signature"] in ("2", "3"):
                late.append(request.query["signature"])
                return web.Response(status=403, text="<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
            return web.Response(body=await asyncio.to_thread(at.shelf.shard, bytes.fromhex(request.match_info["address"])))

        app = web.Application()
        app.add_routes([web.get("/shards/{address}", sign), web.get("/bucket/{address}", give)])
        async with answering(app) as base, aiohttp.ClientSession() as session:
            origin = OriginClient(parse_origin(base.replace("//", "//secret@")), lambda: session)
            sources.origin = lambda: (origin,)
            async with asyncio.timeout(45):
                await fetcher.fetch(capability)
            origin.rest()
        assert content(shelf, capability) == wanted
        assert late == ["2", "3"]
        assert len(given) >= 1 + 5 + 2
