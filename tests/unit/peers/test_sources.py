"""A whole fetch over the lanes of linked devices: real listeners and sockets on loopback, links that are made up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.errors import NoBulk, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.shards import sources as sourcing
from p2pqueue.peers.shards.sources import Sources
from tests.unit.peers.served import MIB, TICKET, Asked, Served, Shift, failures, in_threads, served
from tests.unit.peers.test_inlet import BODY, peer, wrong

ALL = frozenset({"webrtc", "http", "origin"})


@dataclass(eq=False)
class Linked:
    """A linked device as `net.peer.Peer` shows it."""

    http_base: str | None
    ticket: bytes | None = bytes.fromhex(TICKET)
    device_id: str = "d" * 16
    path: str = "link"
    lanes: frozenset[str] = ALL
    shortest_rtt: float | None = 0.001

    async def bulk(self) -> Any:
        raise NoBulk("UDP is blocked")


@contextlib.asynccontextmanager
async def fetching(folder: Path, lanes: frozenset[str] = ALL) -> AsyncIterator[tuple[Sources, Fetcher, Shelf]]:
    shelf = Shelf(Home(folder / "fetching"), bytes(32), quota=500 * MIB, reserve=0)
    sources = Sources(shelf.shard, lanes)
    running = asyncio.ensure_future(sources.run())
    await asyncio.sleep(0)
    try:
        yield sources, Fetcher(shelf, sources.now), shelf
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        shelf.close()


def shared(at: Served, folder: Path, size: int) -> tuple[str, bytes]:
    path = folder / "shared.bin"
    if not path.exists():
        path.write_bytes(os.urandom(size))
    return at.shelf.ingest(path, copy=False).capability, path.read_bytes()


def content(shelf: Shelf, capability: str) -> bytes:
    return b"".join(shelf.open(capability))


async def test_a_file_comes_by_http_and_is_counted_there(tmp_path: Path) -> None:
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, 9 * MIB + 1)
        sources.up(Linked(at.base))
        fetched = await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted
        assert {lane for _, lane in fetched.received} == {"http"}
        assert sources.carried["http"] >= len(wanted)


async def test_of_two_devices_one_dies_and_the_file_is_whole(tmp_path: Path) -> None:
    """N09: what the dead one was asked for is asked of the other."""
    async with served(tmp_path / "a") as dying, served(tmp_path / "b") as living, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(dying, tmp_path, 40 * MIB)
        assert shared(living, tmp_path, 0)[0] == capability
        limits = dying.routes, living.routes
        sources.up(Linked(dying.base))
        sources.up(Linked(living.base, device_id="e" * 16))

        def die(done: int, size: int) -> None:
            if done > size // 4 and dying.tickets:
                dying.routes.down(dying.tickets.pop(TICKET))

        async with asyncio.timeout(40):
            await fetcher.fetch(capability, on_progress=die)
        assert content(shelf, capability) == wanted
        assert limits[1].sent > 0
        assert not dying.tickets


async def test_a_device_that_sends_wrong_bytes_costs_time_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, 20 * MIB)
        with peer(wrong) as liar:
            sources.up(Linked(liar.base, device_id="f" * 16))
            sources.up(Linked(at.base))
            async with asyncio.timeout(40):
                await fetcher.fetch(capability)
            assert content(shelf, capability) == wanted
        assert BODY not in wanted


async def test_a_ticket_that_has_expired_is_told_in_words_and_a_new_link_brings_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pqueue.payload.fetching.transfer.PATIENCE", 0.5)
    monkeypatch.setattr("p2pqueue.payload.fetching.gathering.PATIENCE", 0.5)
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, 3 * MIB)
        link = Linked(at.base)
        sources.up(link)
        device = at.tickets.pop(TICKET)
        with pytest.raises(PayloadUnavailable, match="ticket"):
            await fetcher.fetch(capability)
        assert sources.now() == []  # the lane rests
        sources.down(link)
        at.tickets["cd" * 32] = device
        sources.up(Linked(at.base, bytes.fromhex("cd" * 32)))
        await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted


async def test_each_lane_is_a_source_of_its_own_and_those_that_are_left_out_are_none(tmp_path: Path) -> None:
    both, http, webrtc = {("d" * 16, "webrtc"), ("d" * 16, "http")}, {("d" * 16, "http")}, {("d" * 16, "webrtc")}
    cases = [
        (ALL, Linked("http://127.0.0.1:1", path="webrtc"), both),
        (ALL, Linked("http://127.0.0.1:1"), http),
        (ALL, Linked(None, path="webrtc"), webrtc),
        (ALL, Linked("http://127.0.0.1:1", ticket=None, path="webrtc"), webrtc),
        (ALL, Linked("http://127.0.0.1:1", path="webrtc", lanes=frozenset({"webrtc"})), webrtc),
        (frozenset({"webrtc", "origin"}), Linked("http://127.0.0.1:1", path="webrtc"), webrtc),
        (frozenset({"http"}), Linked("http://127.0.0.1:1", path="webrtc"), http),
        (frozenset({"origin"}), Linked("http://127.0.0.1:1", path="webrtc"), set()),
    ]
    for number, (lanes, link, found) in enumerate(cases):
        async with fetching(tmp_path / str(number), lanes) as (sources, _, _):
            sources.up(link)
            assert {(source.name, source.lane) for source in sources.now()} == found
            sources.down(link)
            assert sources.now() == []


async def test_where_webrtc_does_not_form_the_file_comes_by_http(tmp_path: Path) -> None:
    """N13: UDP is blocked, and nobody waits for it."""
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, 5 * MIB)
        sources.up(Linked(at.base, path="webrtc"))
        await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted
        assert set(sources.carried) == {"http"}


async def test_a_far_device_is_asked_over_more_connections(tmp_path: Path) -> None:
    async with fetching(tmp_path) as (sources, _, _):
        sources.up(Linked("http://127.0.0.1:1", device_id="near"))
        sources.up(Linked("http://127.0.0.1:1", device_id="far", shortest_rtt=0.05))
        threads = {source.name: getattr(source, "threads", 0) for source in sources.now()}
        assert 2 <= threads["near"] <= sourcing.HTTP_PARALLEL < threads["far"] == sourcing.HTTP_PARALLEL_FAR


async def test_a_metered_way_is_marked_as_such(tmp_path: Path) -> None:
    async with served(tmp_path) as at, fetching(tmp_path) as (sources, fetcher, shelf):
        capability, wanted = shared(at, tmp_path, MIB)
        sources.is_metered = lambda peer: True
        sources.up(Linked(at.base))
        assert [getattr(source, "metered", False) for source in sources.now()] == [True]
        fetching_it = asyncio.ensure_future(fetcher.fetch(capability))
        await asyncio.sleep(0.5)
        assert at.routes.sent < MIB  # nothing but its manifest
        fetcher.limits.metered = True
        with contextlib.suppress(PayloadUnavailable):
            await fetching_it
        await fetcher.fetch(capability)
        assert content(shelf, capability) == wanted


async def test_a_listener_that_cannot_be_reached_rests_where_there_is_another_lane(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with fetching(tmp_path) as (sources, _, _):
        for path, left in (("webrtc", {"webrtc"}), ("link", {"http"})):
            sources.up(Linked(base, path=path))
            http: Any = next(source for source in sources.now() if source.lane == "http")
            assert "can't be reached" in failures(await in_threads(http.carry, Shift([Asked(bytes(32), 100)])))[0]
            assert {source.lane for source in sources.now()} == left
