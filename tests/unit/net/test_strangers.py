"""What those get who are not of the space, or who misbehave: nothing, and soon."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import psutil
import pytest

from p2pqueue.errors import LinkRefused
from p2pqueue.net import codes, greeting
from p2pqueue.net.door import MOST_FROM_ONE, Door
from p2pqueue.net.framing import split
from p2pqueue.net.handshake import FIRST_LIMIT, Initiator
from p2pqueue.net.hello import PROTOCOLS, Hello
from p2pqueue.net.listener import Listener
from p2pqueue.net.notes import Ping
from p2pqueue.net.pipe import Pipe
from p2pqueue.wire import FRAME_LIMIT
from tests.unit.net.kit import Node, Space, by_hand, closing, credentials, link_by_hand, pair, until

HELLO = Hello(*PROTOCOLS, "0").pack()


async def ended(pipe: Pipe) -> int:
    """Reads until the other side closes; gives its code."""
    try:
        while True:
            await pipe.receive()
    except LinkRefused as error:
        return error.code


async def test_a_device_of_another_space_is_refused_by_both_sides_in_words() -> None:
    two = Node(Space().identity("two"))
    await two.mesh.start()
    one = Node(Space().identity("one"), peers=(two.address,))
    async with closing(one, two):
        await one.mesh.start()
        await until(lambda: one.mesh.status()["refused"])
        assert one.mesh.status()["refused"] == [{"address": ["127.0.0.1", int(two.address[10:])], "why": "it belongs to another space"}]
        assert one.ups == two.ups == []


async def test_a_newer_protocol_is_named_on_both_sides() -> None:
    space = Space()
    two = Node(space.identity("two"), hello=Hello(2, 3, "9.9"))
    await two.mesh.start()
    one = Node(space.identity("one"), peers=(two.address,))
    async with closing(one, two):
        await one.mesh.start()
        await until(lambda: one.mesh.status()["refused"])
        why = one.mesh.status()["refused"][0]["why"]
        assert why.startswith("that device speaks protocol 2–3 (p2pqueue 9.9), this one 1")
        assert why.endswith("upgrade this device")


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([b"GET / HTTP/1.1"], codes.MALFORMED),
        ([b""], codes.MALFORMED),
        ([Hello(7, 9, "9").pack()], codes.OTHER_PROTOCOL),
        ([HELLO, b"?"], codes.MALFORMED),
        ([HELLO, b"L" + bytes(32)], codes.MALFORMED),
        ([HELLO, bytes(FIRST_LIMIT + 1)], codes.MALFORMED),
        ([HELLO, b"L" + os.urandom(32), os.urandom(300)], codes.STRANGER),
        ([HELLO, b"L" + os.urandom(32), bytes(FIRST_LIMIT + 1)], codes.MALFORMED),
        ([HELLO, b"P"], codes.NO_INVITATION),
    ],
    ids=["no hello", "nothing", "newer", "no mode", "no key", "large", "no proof", "large proof", "uninvited"],
)
async def test_whatever_a_stranger_says_it_is_sent_away_with_a_code(frames: list[bytes], code: int) -> None:
    node = Node(Space().identity("node"))
    async with closing(node):
        await node.mesh.start()
        async with by_hand(node.address) as pipe:
            for frame in frames:
                await pipe.send(frame)
            assert await ended(pipe) == code
        assert not node.ups


async def test_a_stranger_hears_no_more_than_a_hello_and_an_ephemeral_key() -> None:
    node = Node(Space().identity("node"))
    async with closing(node):
        await node.mesh.start()
        async with by_hand(node.address) as pipe:
            heard = []
            await pipe.send(HELLO)
            heard.append(await pipe.receive())
            stranger = Initiator(credentials(Space().identity("stranger")), secret=os.urandom(32), hellos=(HELLO, heard[0]))
            await pipe.send(stranger.begin())
            heard.append(await pipe.receive())
            await pipe.send(stranger.prove(heard[1]))
            assert await ended(pipe) == codes.STRANGER
        assert (len(heard[1]), heard[0][:9]) == (32, b"p2pqueue\0")


async def test_what_another_device_said_gets_nobody_in() -> None:
    """A whole conversation is recorded, and said again to the same node."""
    space = Space()
    one, two = space.identities("one", "two")
    node, said = Node(two), []
    async with closing(node):
        await node.mesh.start()
        async with by_hand(node.address) as pipe:
            send = pipe.send

            async def recorded(frame: bytes) -> None:
                said.append(frame)
                await send(frame)

            pipe.send = recorded  # type: ignore[method-assign]
            await link_by_hand(pipe, one)
            await until(lambda: node.ups)
        await until(lambda: node.downs)
        async with by_hand(node.address) as pipe:
            for frame in said:
                await pipe.send(frame)
            assert await ended(pipe) == codes.STRANGER
        assert len(node.ups) == 1


Misbehaving = Callable[[Pipe, greeting.Greeted], Awaitable[None]]


async def random_bytes(pipe: Pipe, greeted: greeting.Greeted) -> None:
    await pipe.send(os.urandom(200))


async def replayed(pipe: Pipe, greeted: greeting.Greeted) -> None:
    frame = greeted.sealer.seal(next(split("signal", b"once")))
    await pipe.send(frame)
    await pipe.send(frame)


async def reflected(pipe: Pipe, greeted: greeting.Greeted) -> None:
    await pipe.send(await pipe.receive())


async def oversized(pipe: Pipe, greeted: greeting.Greeted) -> None:
    await pipe.send(bytes(FRAME_LIMIT + 1))


async def enormous(pipe: Pipe, greeted: greeting.Greeted) -> None:
    await pipe.send(bytes(10_000_000))


async def truncated(pipe: Pipe, greeted: greeting.Greeted) -> None:
    await pipe.send(greeted.sealer.seal(b"\x01signal")[:-3])


async def endless(pipe: Pipe, greeted: greeting.Greeted) -> None:
    for _ in range(6):
        await pipe.send(greeted.sealer.seal(b"\x80" + bytes(60_000)))


async def nonsense(pipe: Pipe, greeted: greeting.Greeted) -> None:
    await pipe.send(greeted.sealer.seal(next(split("net", b"\xdd\xff\xff\xff\xff"))))  # an array of 2^32 − 1


async def text(pipe: Pipe, greeted: greeting.Greeted) -> None:
    await pipe._ws.send_str("text")


@pytest.mark.parametrize(
    "misbehave", [random_bytes, replayed, reflected, oversized, enormous, truncated, endless, nonsense, text], ids=lambda act: act.__name__
)
async def test_a_device_that_misbehaves_loses_its_link_and_nobody_else_does(misbehave: Misbehaving) -> None:
    space = Space()
    mine, other, bad = space.identities("mine", "other", "bad")
    node = Node(mine)
    await node.mesh.start()
    good = Node(other, peers=(node.address,))
    async with closing(node, good):
        await good.mesh.start()
        await until(lambda: good.linked(node))
        async with by_hand(node.address) as pipe:
            greeted = await link_by_hand(pipe, bad)
            await until(lambda: bad.device_id in node.mesh.peers)
            try:
                await misbehave(pipe, greeted)
            except OSError:
                pass  # it is cut off in the middle
            await until(lambda: node.downs)
        await good.peer(node).send("rows", b"still there")
        await until(lambda: (other.device_id, "rows", b"still there") in node.got)
        assert [peer.device_id for peer, _ in node.downs] == [bad.device_id]


async def test_a_device_that_asks_without_end_and_never_reads_costs_no_memory() -> None:
    space = Space()
    one, two = space.identities("one", "two")
    node = Node(one)
    async with closing(node):
        await node.mesh.start()
        async with by_hand(node.address) as pipe:
            greeted = await link_by_hand(pipe, two)
            await until(lambda: node.ups)
            before = psutil.Process().memory_info().rss
            frames = b"".join(split("net", Ping(7).pack()))
            for _ in range(20_000):
                await pipe.send(greeted.sealer.seal(frames))
                assert node.ups[0].link.outbox.waiting < 300_000
            assert psutil.Process().memory_info().rss - before < 50_000_000


# -- strangers that don't even speak ---------------------------------------------------------------------------


async def listening(door: Door) -> tuple[Listener, tuple[str, int]]:
    async def refuse(pipe: Pipe, request: Any) -> None:
        await pipe.close(codes.STRANGER)

    listener = Listener("127.0.0.1:0", on_link=refuse, door=door)
    bound = await listener.start()
    return listener, (bound.host, bound.port)


@pytest.mark.parametrize("said", [b"", b"GET /link HTTP/1.1\r\nX-Slow: "], ids=["silent", "half a request"])
async def test_a_connection_that_makes_no_request_is_cut(said: bytes) -> None:
    listener, address = await listening(Door(request_wait=0.1))
    try:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(said)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
    finally:
        await listener.close()


async def test_drop_by_drop_a_request_takes_too_long() -> None:
    listener, address = await listening(Door(request_wait=0.2))
    try:
        reader, writer = await asyncio.open_connection(*address)
        try:
            async with asyncio.timeout(10):
                for byte in b"GET /link HTTP/1.1\r\n" + b"X: y\r\n" * 10_000:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    if reader.at_eof():
                        break
        except ConnectionError:
            pass
        else:
            assert reader.at_eof()
        writer.close()
    finally:
        await listener.close()


async def test_a_stranger_that_opens_a_link_and_says_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "HANDSHAKE_WAIT", 0.1)
    node = Node(Space().identity("node"))
    async with closing(node):
        await node.mesh.start()
        async with by_hand(node.address) as pipe:
            assert await ended(pipe) == codes.TOO_SLOW
        async with by_hand(node.address) as pipe:
            await pipe.send(HELLO)
            assert await ended(pipe) == codes.TOO_SLOW


async def test_many_silent_connections_dont_keep_a_device_out() -> None:
    space = Space()
    one, two = space.identities("one", "two")
    node = Node(two)
    await node.mesh.start()
    host, _, port = node.address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(2 * MOST_FROM_ONE)]
    first = Node(one, peers=(node.address,))
    async with closing(node, first):
        await first.mesh.start()
        await asyncio.sleep(0.1)
        assert not first.linked(node)  # one address, here, is all that there is
        for connection in silent[: MOST_FROM_ONE // 2]:
            connection.close()
        await until(lambda: first.linked(node))
    for connection in silent:
        connection.close()


async def test_a_page_in_a_browser_has_no_business_here() -> None:
    async with pair() as (one, _), aiohttp.ClientSession() as client:
        async with client.get(f"http://{one.address}/link") as response:
            assert response.status == 400
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"http://{one.address}/link", origin="http://evil.example")
        assert caught.value.status == 403
        async with client.get(f"http://{one.address}/") as response:
            assert response.status == 404
