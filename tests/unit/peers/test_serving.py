"""A node serves its shards from its listener: a real one, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import aiohttp
import pytest

from p2pqueue.payload.fetching.http_line import Place
from p2pqueue.payload.fetching.lines import Lines
from p2pqueue.payload.limit import Limits
from p2pqueue.payload.store import INLINE_LIMIT
from p2pqueue.peers.shards import inlet, outlet
from p2pqueue.peers.shards.serving import OF_ONE, STREAMS_OF_ONE
from p2pqueue.peers.shards.stream import ANSWER, ASK, PATH, PROTOCOL, SHARD
from tests.unit.peers.served import MIB, TICKET, Asked, Served, Shift, failures, in_threads, served

SHOWN = {"Authorization": f"Bearer {TICKET}"}


def random_file(folder: Path, size: int) -> Path:
    path = folder / f"{size}.bin"
    path.write_bytes(os.urandom(size))
    return path


def carrying(at: Served, ticket: str = TICKET) -> Lines:
    return Lines(Place(at.base, ticket), inlet.Inlet)


def work_of(shards: list[tuple[bytes, bytes]]) -> Shift:
    return Shift([Asked(address, len(body)) for address, body in shards])


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("threads", [1, 4])
async def test_every_shard_comes_over_the_connections_as_it_is(tmp_path: Path, copy: bool, threads: int) -> None:
    async with served(tmp_path) as at:
        shards = [shard for size in (1, INLINE_LIMIT, 9 * MIB + 3) for shard in at.shards(random_file(tmp_path, size), copy=copy)]
        came: list[int] = []
        lines = carrying(at)
        for _ in range(2):  # the second time the connections are used again, and stored files are sent unread
            work = work_of(shards)
            assert not failures(await in_threads(lambda work: lines.carry(work, came.append), work, threads))
            assert [bytes(asked.came) for asked in work.taken] == [body for _, body in shards]
            assert all(asked.is_right for asked in work.taken)
        whole = sum(len(body) for _, body in shards)
        assert sum(came) == 2 * whole
        async with asyncio.timeout(5):
            while at.routes.sent != 2 * whole:  # noqa: ASYNC110  counted when the last byte has left, which may be after it came
                await asyncio.sleep(0.01)
        lines.close()


async def test_a_peer_that_speaks_plain_http_alone_is_asked_by_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet, "PATH", "/no-such-path")
    async with served(tmp_path) as at:
        shards = at.shards(random_file(tmp_path, 3 * MIB + 1), copy=False)
        work, lines = work_of(shards), carrying(at)
        assert not failures(await in_threads(lambda work: lines.carry(work, lambda size: None), work, 2))
        assert [bytes(asked.came) for asked in work.taken] == [body for _, body in shards]
        lines.close()


async def test_what_is_not_there_is_missing_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        shards = at.shards(random_file(tmp_path, 100), copy=True)
        asks = [Asked(bytes(32), 100), *(Asked(address, len(body)) for address, body in shards), Asked(shards[0][0], len(shards[0][1]) - 1)]
        lines = carrying(at)
        assert not failures(await in_threads(lambda work: lines.carry(work, lambda size: None), Shift(asks)))
        assert [type(asked.error).__name__ for asked in asks] == ["ShardMissing", *("NoneType" for _ in shards), "ShardMissing"]
        lines.close()


async def test_an_input_that_changed_is_told_in_words(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        path = random_file(tmp_path, 2 * MIB)
        shards = at.shards(path, copy=False)
        path.write_bytes(b"another")
        lines, work = carrying(at), work_of(shards[:1])
        assert not failures(await in_threads(lambda work: lines.carry(work, lambda size: None), work))
        assert "changed since it was taken in" in str(work.taken[0].error)
        async with aiohttp.ClientSession() as session, session.get(f"{at.base}{PATH}/{shards[0][0].hex()}", headers=SHOWN) as answer:
            assert (answer.status, "changed since it was taken in" in await answer.text()) == (410, True)
        lines.close()


@pytest.mark.parametrize("path", [PATH, f"{PATH}/{'0' * 64}"])
async def test_without_a_ticket_that_counts_there_is_nothing(tmp_path: Path, path: str) -> None:
    async with served(tmp_path) as at, aiohttp.ClientSession() as session:
        for headers in ({}, {"Authorization": "Bearer " + "00" * 32}, {"Authorization": f"Basic {TICKET}"}):
            async with session.get(at.base + path, headers=headers) as answer:
                assert answer.status == 401
        work, lines = Shift([Asked(bytes(32), 100)]), carrying(at, "00" * 32)
        assert "ticket" in failures(await in_threads(lambda work: lines.carry(work, lambda size: None), work))[0]
        lines.close()


async def test_the_end_of_a_link_cuts_what_its_ticket_opened(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        shards = at.shards(random_file(tmp_path, 100), copy=True)
        reader, writer = await stream(at)
        writer.write(ASK.pack(shards[0][0], 1000))
        assert ANSWER.unpack(await reader.readexactly(ANSWER.size)) == (SHARD, len(shards[0][1]))
        await reader.readexactly(len(shards[0][1]))
        at.routes.down(at.tickets.pop(TICKET))
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ("bytes=0-99", 206, slice(0, 100)),
        ("bytes=1000-", 206, slice(1000, None)),
        ("bytes=-7", 206, slice(-7, None)),
        ("bytes=0-99999999", None, slice(0, None)),  # the whole, whatever it is called
        ("bytes=99999999-", 416, None),
        ("lines=1-2", None, slice(0, None)),  # a unit that nobody knows
    ],
)
async def test_a_range_of_a_shard_can_be_had(tmp_path: Path, asked: str, status: int | None, part: slice | None, copy: bool) -> None:
    async with served(tmp_path) as at, aiohttp.ClientSession(headers=SHOWN) as session:
        address, body = at.shards(random_file(tmp_path, MIB), copy=copy)[0]
        for _ in range(2):  # a stored one goes unread the second time
            async with session.get(f"{at.base}{PATH}/{address.hex()}", headers={"Range": asked}) as answer:
                if asked.startswith("lines"):
                    assert answer.status in (200, 416)
                    continue
                assert answer.status in ((status,) if status is not None else (200, 206))
                if part is not None:
                    assert await answer.read() == body[part]
                    if answer.status == 206:
                        start, stop, _ = part.indices(len(body))
                        assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(body)}"


async def test_head_tells_the_size_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as at, aiohttp.ClientSession(headers=SHOWN) as session:
        address, body = at.shards(random_file(tmp_path, MIB), copy=False)[0]
        async with session.head(f"{at.base}{PATH}/{address.hex()}") as answer:
            assert (answer.status, answer.content_length, await answer.read()) == (200, len(body), b"")
        async with session.head(f"{at.base}{PATH}/{'0' * 64}") as answer:
            assert answer.status == 404
        async with session.get(f"{at.base}{PATH}/zz") as answer:
            assert answer.status == 400
        assert at.routes.sent == 0


async def test_two_devices_are_served_at_once_and_a_third_one_that_reads_nothing_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "GRACE", 60.0)  # the sleeper is not cut off meanwhile
    async with served(tmp_path) as at:
        shards = at.shards(random_file(tmp_path, 20 * MIB), copy=False)
        for number in range(3):
            at.tickets[f"{number:02d}" * 32] = type(at.tickets[TICKET])(f"device {number}")
        sleepers = [await stream(at, "00" * 32) for _ in range(STREAMS_OF_ONE)]
        for _, writer in sleepers:
            writer.write(b"".join(ASK.pack(address, 2 * MIB) for address, _ in shards))
        lines = [carrying(at, f"{number:02d}" * 32) for number in (1, 2)]
        works = [work_of(shards) for _ in lines]
        async with asyncio.timeout(40):
            ended = await asyncio.gather(
                *(
                    in_threads(lambda work, line=line: line.carry(work, lambda size: None), work, 2)
                    for line, work in zip(lines, works, strict=True)
                )
            )
        assert not [words for each in ended for words in failures(each)]
        for work in works:
            assert all(asked.is_right for asked in work.taken)
        for _, writer in sleepers:
            writer.close()
        for line in lines:
            line.close()


async def test_a_reader_that_takes_too_long_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "SLOWEST", 1e12)
    async with served(tmp_path) as at:
        monkeypatch.setattr(outlet.Outlet.__init__, "__kwdefaults__", {"quiet_after": 15.0, "grace": 0.2})
        shards = at.shards(random_file(tmp_path, 20 * MIB), copy=False)
        sock = await asyncio.to_thread(raw_stream, at)
        sock.sendall(b"".join(ASK.pack(address, 2 * MIB) for address, _ in shards))
        async with asyncio.timeout(20):
            while at.routes.streams:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        sock.close()


async def test_a_peer_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        held = [await stream(at) for _ in range(STREAMS_OF_ONE)]
        headers = {**SHOWN, "Connection": "Upgrade", "Upgrade": PROTOCOL}
        async with aiohttp.ClientSession() as session, session.get(at.base + PATH, headers=headers) as answer:
            assert answer.status == 503
        for _, writer in held:
            writer.close()


async def test_an_ask_that_makes_no_sense_or_ends_early_costs_that_connection_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        shards = at.shards(random_file(tmp_path, 100), copy=True)
        reader, writer = await stream(at)
        writer.write(b"short")
        writer.write_eof()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        reader, writer = await stream(at)
        writer.write(os.urandom(ASK.size) + ASK.pack(shards[0][0], 1000))
        kind, size = ANSWER.unpack(await reader.readexactly(ANSWER.size))
        await reader.readexactly(size)
        assert kind != SHARD
        assert ANSWER.unpack(await reader.readexactly(ANSWER.size))[0] == SHARD
        writer.close()


async def test_a_rate_that_people_set_holds_and_a_pause_is_told_in_words(tmp_path: Path) -> None:
    limits = Limits()
    async with served(tmp_path, limits) as at:
        shards = at.shards(random_file(tmp_path, 2 * MIB), copy=False)
        limits.upload.set(4 * MIB)
        loop = asyncio.get_running_loop()
        work, lines, begun = work_of(shards), carrying(at), loop.time()
        assert not failures(await in_threads(lambda work: lines.carry(work, lambda size: None), work, 2))
        assert loop.time() - begun >= 0.15  # 2 MiB at 4 MiB/s, of which a quarter of a second comes at once
        assert all(asked.is_right for asked in work.taken)
        limits.pause([at.tickets[TICKET].device_id])
        work = work_of(shards[:1])
        assert not failures(await in_threads(lambda work: lines.carry(work, lambda size: None), work))
        assert "paused" in str(work.taken[0].error)
        async with aiohttp.ClientSession() as session, session.get(f"{at.base}{PATH}/{shards[0][0].hex()}", headers=SHOWN) as answer:
            assert answer.status == 503
        lines.close()


async def test_nothing_is_given_over_a_metered_way_unless_a_person_says_otherwise(tmp_path: Path) -> None:
    limits = Limits()
    async with served(tmp_path, limits, metered=True) as at:
        shards, lines = at.shards(random_file(tmp_path, 2 * MIB), copy=False), carrying(at)
        work = work_of(shards[:1])
        assert not failures(await in_threads(lambda work: lines.carry(work, lambda size: None), work))
        assert "metered" in str(work.taken[0].error)
        async with aiohttp.ClientSession() as session, session.get(f"{at.base}{PATH}/{shards[0][0].hex()}", headers=SHOWN) as answer:
            assert answer.status == 503
        assert not at.routes.sent
        limits.metered = True
        work = work_of(shards[:1])
        assert not failures(await in_threads(lambda work: lines.carry(work, lambda size: None), work))
        assert work.taken[0].is_right
        lines.close()


async def test_plain_requests_are_answered_beside_one_another_however_many(tmp_path: Path) -> None:
    connector = aiohttp.TCPConnector(limit=10)  # some more than have their turn at once
    async with served(tmp_path) as at, aiohttp.ClientSession(headers=SHOWN, connector=connector) as session:
        shards = at.shards(random_file(tmp_path, 6 * MIB), copy=False)

        async def get(address: bytes) -> bytes:
            async with session.get(f"{at.base}{PATH}/{address.hex()}") as answer:
                assert answer.status == 200
                return await answer.read()

        asked = [shard for _ in range(OF_ONE) for shard in shards]
        assert await asyncio.gather(*(get(address) for address, _ in asked)) == [body for _, body in asked]


def upgrade(ticket: str) -> bytes:
    return (
        f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ticket}\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n".encode()
    )


async def stream(at: Served, ticket: str = TICKET) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", at.port, limit=64 * 1024)
    writer.write(upgrade(ticket))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return reader, writer


def raw_stream(at: Served) -> socket.socket:
    """One whose answers nobody reads."""
    sock = socket.create_connection(("127.0.0.1", at.port))
    sock.sendall(upgrade(TICKET))
    came = b""
    while not came.endswith(b"\r\n\r\n"):
        came += sock.recv(1)
    return sock
