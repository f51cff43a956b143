"""Real meshes over loopback whose messages change from the link to WebRTC and back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from p2pqueue.errors import NoBulk, PeerGone
from p2pqueue.net.mesh import NetOptions
from p2pqueue.net.peer import HELD_LIMIT
from p2pqueue.net.webrtc.bulk import BulkChannel
from tests.unit.net.connected import nothing_unseen  # noqa: F401  a fixture
from tests.unit.net.kit import Node, Space, closing, until

pytestmark = pytest.mark.usefixtures("nothing_unseen")


def options(*peers: str, lanes: frozenset[str] = frozenset({"webrtc", "http"}), interfaces: tuple[str, ...] = ("lo",)) -> NetOptions:
    return NetOptions(listen="127.0.0.1:0", peers=peers, discovery=False, interfaces=interfaces, lanes=lanes)


@contextlib.asynccontextmanager
async def meeting(one: Any = None, two: Any = None, **more: Any) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes that are linked; `one` and `two` are options of each."""
    space = Space()
    lower, higher = space.identities("one", "two")
    second = Node(higher, options=options(**(two or {})), **more)
    await second.mesh.start()
    first = Node(lower, options=options(second.address, **(one or {})), **more)
    async with closing(first, second):
        await first.mesh.start()
        await until(lambda: first.linked(second))
        yield first, second


def direct(one: Node, two: Node) -> bool:
    return one.has(two) and two.has(one) and one.peer(two).path == two.peer(one).path == "webrtc"


async def test_webrtc_takes_over_and_the_link_carries_on_when_it_ends() -> None:
    async with meeting() as (one, two):
        await until(lambda: direct(one, two))
        there, back = one.peer(two), two.peer(one)
        assert there.why is back.why is None
        await there.send("rows", bytes(200_000))
        assert back.send_soon("signal", b"hello")
        await until(lambda: two.got and one.got)
        assert [(topic, len(message)) for _, topic, message in two.got] == [("rows", 200_000)]
        assert there.direct is not None
        assert there.direct.control is not None
        there.direct.control._connection.lose("a test cuts it")
        await until(lambda: there.path == back.path == "link")
        assert there.why == "a test cuts it"
        assert back.why in ("a test cuts it", "the other device closed the connection")  # whichever tells it first
        await there.send("rows", b"by the link")
        await until(lambda: two.got[-1][2] == b"by the link")
        await until(lambda: direct(one, two))
        assert one.peer(two) is there  # the link was there all the time


async def test_messages_that_are_sent_all_the_time_arrive_whichever_way_they_go() -> None:
    async with meeting() as (one, two):
        numbers = 0
        while not direct(one, two) or numbers < 300:
            await one.peer(two).send("rows", b"%d" % numbers)
            numbers += 1
            await asyncio.sleep(0.001)
        await until(lambda: {int(message) for _, _, message in two.got} == set(range(numbers)))


@pytest.mark.parametrize("whose", [0, 1], ids=["the lower asks", "the higher asks"])
async def test_bulk_is_a_connection_of_its_own(whose: int) -> None:
    bulks: list[BulkChannel] = []
    async with meeting(on_bulk=lambda peer, channel: bulks.append(channel)) as both:
        asking, other = both[whose], both[1 - whose]
        channel = await asking.peer(other).bulk()
        await until(lambda: len(bulks) == 2)
        (there,) = [bulk for bulk in bulks if bulk is not channel]
        await channel.send(b"shard" * 1000)
        assert await there.receive() == b"shard" * 1000
        await until(lambda: direct(*both))


@pytest.mark.parametrize("side", ["one", "two"])
async def test_where_either_device_has_switched_webrtc_off_the_link_carries_all(side: str) -> None:
    async with meeting(**{side: {"lanes": frozenset({"http"})}}) as (one, two):
        here, there = one.peer(two), two.peer(one)
        assert {here.why, there.why} == {"WebRTC is switched off on this device", "WebRTC is switched off on that device"}
        with pytest.raises(NoBulk, match="WebRTC is switched off"):
            await here.bulk()
        await here.send("rows", b"rows")
        await until(lambda: two.got)


async def test_where_a_device_has_no_address_for_it_status_says_why() -> None:
    async with meeting(two={"interfaces": ("no such interface",)}) as (one, two):
        await until(lambda: one.peer(two).why and two.peer(one).why)
        assert "no network interface is up" in str(one.mesh.status()["peers"][0]["why"])
        assert "no network interface is up" in str(two.mesh.status()["peers"][0]["why"])


async def test_a_lost_link_ends_everything_and_begins_anew() -> None:
    async with meeting() as (one, two):
        await until(lambda: direct(one, two))
        old = one.peer(two)
        two.peer(one).link.pipe.cut()
        await until(lambda: one.peer(two) is not old and direct(one, two) if one.has(two) else False)
        assert old.direct is not None
        assert old.direct.control is None


async def test_what_webrtc_brings_while_nothing_is_taken_is_bounded() -> None:
    async with meeting() as (one, two):
        await until(lambda: direct(one, two))
        there, back = one.peer(two), two.peer(one)
        back.pause()
        for number in range(10):
            await there.send("rows", b"%d" % number)
        await there.send("rows", bytes(1000))
        await until(lambda: len(back._held) == 11)
        assert not two.got
        back.resume()
        assert [message for _, _, message in two.got[:10]] == [b"%d" % number for number in range(10)]
        back.pause()
        try:
            for _ in range(2 * HELD_LIMIT // 50_000):
                await there.send("rows", bytes(50_000))
        except PeerGone as error:
            assert "more than it could take" in str(error) or "connection" in str(error)
        await until(lambda: two.downs)
        assert two.downs[0] == (back, "it sends more than can be taken")


async def test_going_offline_leaves_nothing_behind() -> None:
    async with meeting() as (one, two):
        await until(lambda: direct(one, two))
        await one.peer(two).bulk()
        await one.mesh.offline()
        await until(lambda: two.downs)
        await one.mesh.online()
        await until(lambda: direct(one, two))
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) == 1
