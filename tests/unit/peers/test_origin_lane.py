"""A whole fetch from an origin by threads, whether it has the shards itself or sends on to a bucket."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from p2pqueue.payload.capability import parse_capability
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.payload.origins.client import OriginClient, parse_origin
from p2pqueue.payload.origins.line import OriginLine
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.origins import TOKEN, answering, keeping_in, serving
from tests.unit.peers.served import MIB, Asked, Shift, failures, in_threads
from tests.unit.peers.test_inlet import Act, carried, head_of
from tests.unit.peers.test_inlet import answering as answering_with
from tests.unit.peers.test_sources import fetching


async def put_all(shelf: Shelf, capability: str, origin: OriginClient) -> None:
    for address in shelf.addresses(capability):
        await origin.put(address, await asyncio.to_thread(shelf.shard, address))
    assert await origin.has(parse_capability(capability).address)


def shared(shelf: Shelf, folder: Path) -> tuple[str, bytes]:
    content = os.urandom(5 * MIB + 1)
    (folder / "shared.bin").write_bytes(content)
    return shelf.ingest(folder / "shared.bin", copy=False).capability, content


async def test_a_file_comes_from_an_origin_in_threads(tmp_path: Path, shelf: Shelf) -> None:
    keeping = await keeping_in(tmp_path / "origin")
    async with serving(keeping) as client, fetching(tmp_path) as (sources, fetcher, here):
        capability, content = shared(shelf, tmp_path)
        origin = client(TOKEN)
        origin.on_bytes = sources.came_from_origin
        await put_all(shelf, capability, origin)
        sources.origin = lambda: (origin,)
        async with asyncio.timeout(30):
            await fetcher.fetch(capability)
        assert b"".join(here.open(capability)) == content
        assert sources.carried["origin"] >= len(content)


async def test_an_origin_that_sends_on_is_followed_and_its_token_stays_with_it(tmp_path: Path, shelf: Shelf) -> None:
    shown: list[str | None] = []

    async def at_origin(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer token"
        there = f"{request.url.origin()}/bucket/{request.match_info['address']}?signature=a%2Fb"
        return web.Response(status=307, headers={"Location": there}, text="over there")

    async def at_bucket(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        assert request.raw_path.endswith("?signature=a%2Fb")
        return web.Response(body=await asyncio.to_thread(shelf.shard, bytes.fromhex(request.match_info["address"])))

    app = web.Application()
    app.add_routes([web.get("/shards/{address}", at_origin), web.get("/bucket/{address}", at_bucket)])
    async with answering(app) as base, aiohttp.ClientSession() as session, fetching(tmp_path) as (sources, fetcher, here):
        capability, content = shared(shelf, tmp_path)
        origin = OriginClient(parse_origin(base.replace("//", "//token@")), lambda: session)
        sources.origin = lambda: (origin,)
        async with asyncio.timeout(40):
            await fetcher.fetch(capability)
        assert b"".join(here.open(capability)) == content
        assert set(shown) == {None}


@pytest.mark.parametrize(("query", "kind"), [("sv=1&sr=b&se=2&sp=w&sig=a%2Fb", "BlockBlob"), ("X-Amz-Signature=a%2Fb", None)])
async def test_azure_is_told_what_is_put_there_wherever_it_stands(query: str, kind: str | None) -> None:
    told: list[str | None] = []

    async def sign(request: web.Request) -> web.StreamResponse:
        return web.json_response({"url": f"{request.url.origin()}/account/box/x?{query}"})

    async def take(request: web.Request) -> web.Response:
        told.append(request.headers.get("x-ms-blob-type"))
        assert request.raw_path.endswith(query)
        assert await request.read() == b"body"
        return web.Response(status=201)

    app = web.Application()
    app.add_routes([web.post("/shards/{address}", sign), web.put("/account/box/x", take)])
    async with answering(app) as base, aiohttp.ClientSession() as session:
        await OriginClient(parse_origin(base), lambda: session).put(bytes(32), b"body")
    assert told == [kind]


class Phone:
    """All ways but that to the origin itself are metered (`Ways`)."""

    def leads(self, url: str) -> bool:
        return self.refuses(url) is not None

    def refuses(self, url: str) -> str | None:
        return "that way is metered" if "localhost" in url else None


async def test_an_origin_that_sends_on_over_a_metered_way_is_not_followed(tmp_path: Path, shelf: Shelf) -> None:
    asked: list[str] = []

    async def at_origin(request: web.Request) -> web.StreamResponse:
        there = str(request.url.with_host("localhost").with_path("/bucket/x"))
        return web.json_response({"url": there}) if request.method == "POST" else web.Response(status=307, headers={"Location": there})

    async def at_bucket(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=b"x")

    app = web.Application()
    app.add_routes([web.route("*", "/shards/{address}", at_origin), web.route("*", "/bucket/x", at_bucket)])
    async with answering(app) as base, aiohttp.ClientSession() as session:
        origin = OriginClient(parse_origin(base), lambda: session, ways=Phone())
        assert not origin.metered
        for attempt in (origin.shard(bytes(32), 10), origin.put(bytes(32), b"x")):
            with pytest.raises(SourceFailed, match="sends on to localhost: that way is metered"):
                await attempt
        work = Shift([Asked(bytes(32), 10)])
        (failed,) = failures(await in_threads(origin.carry, work))
        assert "sends on to localhost: that way is metered" in failed
        origin.rest()
    assert not asked


def to_itself(sock: socket.socket) -> None:
    while True:
        head_of(sock)
        host, port = sock.getsockname()
        sock.sendall(f"HTTP/1.1 307 On\r\nLocation: http://{host}:{port}/x\r\nContent-Length: 0\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (to_itself, "answers 307"),
        (answering_with("HTTP/1.1 307 On\r\nContent-Length: 0"), "names no URL"),
        (answering_with("HTTP/1.1 307 On\r\nLocation: ftp://127.0.0.1/x\r\nContent-Length: 0"), "names no URL"),
        (answering_with("HTTP/1.1 307 On\r\nLocation: http://[::1/x\r\nContent-Length: 0"), "names no URL"),
        (answering_with("HTTP/1.1 307 On\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 0"), "can't be reached"),
    ],
)
def test_an_origin_that_sends_on_to_nowhere_is_given_up_in_words(act: Act, words: str) -> None:
    asked, ended = carried(act, OriginLine)
    assert asked.is_right is None
    assert words in (ended or "")
