"""Devices of one space find their links, keep them, and mend them."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from p2pqueue.errors import PeerGone
from p2pqueue.net.framing import Topic
from p2pqueue.net.mesh import NetOptions
from p2pqueue.net.peer import Peer
from p2pqueue.wire import MESSAGE_LIMIT
from tests.unit.net.kit import QUICK, Node, Space, by_hand, closing, link_by_hand, linked_pair, pair, running, until


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


async def test_a_device_that_is_named_is_linked_and_messages_pass_both_ways() -> None:
    async with pair() as (one, two):
        there, back = one.peer(two), two.peer(one)
        assert (there.label, there.role, there.path, back.label) == ("two", "member", "link", "one")
        await there.send("rows", bytes(MESSAGE_LIMIT))
        assert there.send_soon("signal", b"hello")
        await back.send("rows", b"rows")
        await until(lambda: len(two.got) == 2 and one.got)
        assert sorted(two.got) == sorted(
            [(one.identity.device_id, "rows", bytes(MESSAGE_LIMIT)), (one.identity.device_id, "signal", b"hello")]
        )
        assert one.got == [(two.identity.device_id, "rows", b"rows")]


async def test_messages_of_a_topic_come_in_order() -> None:
    async with pair() as (one, two):
        for number in range(500):
            await one.peer(two).send("rows", b"%d" % number)
        await until(lambda: len(two.got) == 500)
        assert [message for _, _, message in two.got] == [b"%d" % number for number in range(500)]


async def test_both_tell_where_they_listen_how_far_away_and_with_which_clock() -> None:
    async with pair() as (one, two):
        await until(lambda: one.peer(two).rtt is not None and two.peer(one).rtt is not None)
        for node, other in ((one, two), (two, one)):
            peer = node.peer(other)
            assert peer.http_base == f"http://{other.address}"
            assert abs(peer.clock_offset or 0.0) < 5.0
            assert peer.version
        status = one.mesh.status()
        assert status["online"] is True
        assert [(peer["label"], peer["path"]) for peer in status["peers"]] == [("two", "link")]


async def test_two_devices_that_dial_one_another_at_once_keep_one_link() -> None:
    for _ in range(5):
        space = Space()
        here, there = free_address(), free_address()
        one, two = space.identities("one", "two")
        first = Node(one, peers=(there,), options=options(here, there))
        second = Node(two, peers=(here,), options=options(there, here))
        async with closing(first, second), asyncio.TaskGroup() as group:
            group.create_task(first.mesh.start())
            group.create_task(second.mesh.start())
            await until(lambda first=first, second=second: first.linked(second))
            await stays(first, second)


async def test_every_device_of_many_has_one_lasting_link_to_every_other() -> None:
    space = Space()
    addresses = [free_address() for _ in range(5)]
    nodes = [
        Node(identity, options=options(own, *(other for other in addresses if other != own)))
        for identity, own in zip(space.identities(*"abcde"), addresses, strict=True)
    ]
    async with closing(*nodes):
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.mesh.start())
        pairs = [(one, other) for one in nodes for other in nodes if one is not other]
        await until(lambda: all(one.linked(other) for one, other in pairs))
        await stays(*nodes)
        assert all(one.linked(other) for one, other in pairs)


async def stays(*nodes: Node) -> None:
    """No link comes or goes any more."""
    before: list[Any] = []
    quiet = 0
    while quiet < 10:
        now = [(len(node.ups), len(node.downs)) for node in nodes]
        quiet, before = (quiet + 1, before) if now == before else (0, now)
        await asyncio.sleep(0.02)


def options(listen: str, *peers: str) -> Any:
    return NetOptions(listen=listen, peers=peers, discovery=False, rtc=False)


async def test_a_device_met_through_another_address_is_linked_once() -> None:
    space = Space()
    one, two = space.identities("one", "two")
    second = Node(two)
    await second.mesh.start()
    port = second.address.rpartition(":")[2]
    first = Node(one, peers=(second.address, f"localhost:{port}", f"[::ffff:127.0.0.1]:{port}"))
    async with closing(first, second):
        await first.mesh.start()
        await until(lambda: first.linked(second))
        await stays(first, second)
        assert len(first.ups) == len(second.ups) == 1


async def test_a_lost_link_is_noticed_at_once_and_dialled_again() -> None:
    async with pair() as (one, two):
        for _ in range(3):
            old = one.peer(two)
            two.peer(one).link.pipe.cut()
            await until(lambda old=old: one.linked(two) and one.peer(two) is not old)
        assert {why for _, why in one.downs} <= {"the connection was lost", "the connection was closed"}
        assert len(one.ups) == len(one.downs) + 1
        with pytest.raises(PeerGone):
            await old.send("rows", b"too late")
        assert not old.send_soon("signal", b"too late")


async def test_a_frozen_peer_is_noticed_though_its_connection_stands() -> None:
    space = Space()
    one, two = space.identities("one", "two")
    node = Node(one, beat=QUICK)
    async with closing(node):
        await node.mesh.start()
        async with by_hand(node.address) as pipe:
            await link_by_hand(pipe, two)
            await until(lambda: node.ups)
            await until(lambda: node.downs)
            assert node.downs[0][1] == "nothing was heard from it for a while"


async def test_a_healthy_link_outlives_its_deadline_many_times() -> None:
    async with pair(beat=QUICK) as (one, two):
        old = one.peer(two)
        await asyncio.sleep(5 * QUICK.dead_after)
        assert one.peer(two) is old or "while" in one.downs[0][1]  # a machine that stood still for longer may part them


async def test_going_offline_says_goodbye_and_coming_back_links_again() -> None:
    async with pair() as (one, two):
        address = one.address
        await one.mesh.offline()
        await until(lambda: two.downs)
        assert [why for _, why in two.downs] == ["it left: it goes offline"]
        assert not one.mesh.peers
        assert one.mesh.status()["online"] is False
        with pytest.raises(OSError):
            await asyncio.open_connection(*address.split(":"))
        await one.mesh.online()
        await until(lambda: one.linked(two))
        assert one.mesh.is_online


async def test_a_known_device_is_found_again_by_the_address_book() -> None:
    first, second = await linked_pair()
    async with closing(first, second):
        book, identity, other = first.book, first.identity, second.identity
        await first.mesh.close()
        again = Node(identity, others=[other])
        for device, host, port, at in book.dump():
            again.book.note_good(device, host, port, at)
        async with closing(again):
            await again.mesh.start()
            await until(lambda: again.linked(second))


async def test_a_device_that_restarted_gets_its_new_link_at_once() -> None:
    first, second = await linked_pair()
    async with closing(first, second):
        old = second.peer(first)
        twin = Node(first.identity, peers=(second.address,))  # the same device, while the old link still stands
        first.mesh._dialling.cancel()  # type: ignore[union-attr]  the old process is gone, and nobody has noticed
        async with closing(twin):
            await twin.mesh.start()
            await until(lambda: twin.has(second) and second.has(twin) and second.peer(twin) is not old)
            assert (old, "another connection to it took over") in second.downs


async def test_the_clone_of_a_device_is_noticed_by_both() -> None:
    identity = Space().identity("twice")
    clones: list[str] = []
    original = Node(identity, on_clone=clones.append)
    await original.mesh.start()
    copy = Node(identity, peers=(original.address,), on_clone=clones.append)
    async with closing(original, copy):
        await copy.mesh.start()
        await until(lambda: len(clones) >= 2)
        assert "has the key of this one" in clones[0]
        assert not original.mesh.peers
        assert not copy.mesh.peers


async def test_two_devices_with_one_key_dont_push_one_another_out_for_ever() -> None:
    space = Space()
    twice, other = space.identities("twice", "other")
    node = Node(other)
    await node.mesh.start()
    original, copy = (Node(twice, peers=(node.address,)) for _ in range(2))
    async with closing(node, original, copy):
        await original.mesh.start()
        await copy.mesh.start()
        await until(lambda: original.mesh.status()["refused"] or copy.mesh.status()["refused"])
        refused = original.mesh.status()["refused"] + copy.mesh.status()["refused"]
        assert [each["why"] for each in refused] == ["another running device has the same key"]
        await stays(node, original, copy)
        assert len(node.ups) <= 5
        assert node.has(original)


async def test_a_device_that_dials_itself_takes_it_lightly() -> None:
    address = free_address()
    node = Node(Space().identity("alone"), options=options(address, address), on_clone=lambda words: pytest.fail(words))
    async with closing(node):
        await node.mesh.start()
        await until(lambda: node.mesh.status()["refused"])
        assert "this device's own" in node.mesh.status()["refused"][0]["why"]
        assert not node.ups


async def test_a_device_that_is_admitted_no_more_is_dropped() -> None:
    async with pair() as (one, two):
        two.refuses.add(one.identity.device_id)
        two.mesh.look_again()
        await until(lambda: two.downs)
        assert two.downs[0][1] == "it was revoked"
        await until(lambda: one.mesh.status()["refused"])
        assert "doesn't admit this device" in one.mesh.status()["refused"][0]["why"]
        two.refuses.clear()
        one.mesh.dial(two.address)
        await until(lambda: one.linked(two))


async def test_a_fault_in_a_callback_costs_the_link_and_not_the_node() -> None:
    async with pair() as (one, two):
        old = two.peer(one)

        def raising(peer: Peer, topic: Topic, message: bytes) -> None:
            raise ValueError("a fault of ours")

        two.on_message = raising
        one.peer(two).send_soon("signal", b"boom")
        await until(lambda: two.downs)
        assert two.downs[0] == (old, "a message could not be dealt with")
        await until(lambda: one.linked(two))


async def test_a_flood_is_held_back_while_nobody_takes_it() -> None:
    async with pair() as (one, two):
        there, back = one.peer(two), two.peer(one)
        back.pause()
        sent = 0
        try:
            async with asyncio.timeout(1.0):
                while sent < 200_000_000:
                    await there.send("rows", bytes(60_000))
                    sent += 60_000
        except TimeoutError:
            pass
        assert sent < 20_000_000  # the rest waits at its source; the kernel holds the most of this
        assert there.link.outbox.waiting <= 1.1 * MESSAGE_LIMIT
        assert len(two.got) * 60_000 <= 500_000  # what had been read before
        back.resume()
        await until(lambda: sum(len(message) for _, _, message in two.got) >= sent)
        assert one.linked(two)


async def test_a_device_shows_its_ticket_to_fetch_by_http() -> None:
    bearers: list[Peer | None] = []
    space = Space()
    one, two = space.identities("one", "two")

    async def shard(request: web.Request) -> web.Response:
        bearers.append(second.mesh.bearer(request))
        return web.Response(text="shard")

    second = Node(two, routes=[web.get("/shards/{address}", shard)])
    await second.mesh.start()
    first = Node(one, peers=(second.address,))
    async with closing(first, second), aiohttp.ClientSession() as client:
        await first.mesh.start()
        await until(lambda: first.linked(second))
        peer = first.peer(second)
        assert peer.ticket is not None
        for ticket in (peer.ticket.hex(), "00" * 32, ""):
            async with client.get(f"{peer.http_base}/shards/abc", headers={"Authorization": f"Bearer {ticket}"}) as response:
                assert await response.text() == "shard"
        assert bearers == [second.peer(first), None, None]
        assert peer.http_base is not None
        reader, writer = await asyncio.open_connection(*peer.http_base.removeprefix("http://").split(":"))
        writer.write(b"GET /shards/abc HTTP/1.0\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")  # which is no text
        assert b" 200 OK" in await reader.readline()
        writer.close()


async def test_links_that_come_and_go_leave_nothing_behind() -> None:
    first, second = await linked_pair()
    async with closing(first, second):

        async def cycle() -> None:
            old = first.peer(second)
            old.drop(4000, "once more")
            await until(lambda: first.linked(second) and first.peer(second) is not old)

        def held() -> tuple[int, int]:
            gc.collect()
            return len(asyncio.all_tasks()), sum(isinstance(thing, Peer) for thing in gc.get_objects())

        for _ in range(3):
            await cycle()
        first.ups.clear(), first.downs.clear(), second.ups.clear(), second.downs.clear()
        await asyncio.sleep(0.1)
        before = held()
        for _ in range(40):
            await cycle()
            first.ups.clear(), first.downs.clear(), second.ups.clear(), second.downs.clear()
        await until(lambda: held() <= before)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_devices_find_one_another_by_mdns() -> None:
    space = Space()
    stranger = Node(Space().identity("stranger"), options=NetOptions(interfaces=("lo",), rtc=False))
    nodes = [Node(identity, options=NetOptions(interfaces=("lo",), rtc=False)) for identity in space.identities("one", "two")]
    async with closing(stranger, *nodes):
        for node in (stranger, *nodes):
            await node.mesh.start()
        await until(lambda: nodes[0].linked(nodes[1]), within=40)
        assert nodes[0].peer(nodes[1]).local_subnet
        assert len({node.address for node in (stranger, *nodes)}) == 3
        await nodes[0].mesh.offline()  # the address book, and mDNS again, lead back
        await nodes[0].mesh.online()
        await until(lambda: nodes[0].linked(nodes[1]), within=40)
        assert not stranger.ups


async def test_a_device_that_went_without_a_word_and_listens_no_more_has_died() -> None:
    dead: list[str] = []
    async with pair(on_dead=dead.append) as (one, two):
        assert two.mesh._dialling is not None
        two.mesh._dialling.cancel()
        for server in two.mesh._listener._servers:
            server.close()  # as when the process is gone: its links are not closed by this
        two.peer(one).link.pipe.cut()
        await until(lambda: dead)
        assert dead == [two.identity.device_id]
        assert not one.mesh.peers


async def test_a_device_whose_connection_broke_is_linked_again_and_not_dead() -> None:
    dead: list[str] = []
    async with pair(on_dead=dead.append) as (one, two):
        two.peer(one).link.pipe.cut()
        await until(lambda: len(one.ups) == 2 and one.has(two))
        assert dead == []


@pytest.mark.parametrize("how", ["close", "offline"])
async def test_a_device_that_said_goodbye_is_not_dead(how: str) -> None:
    dead: list[str] = []
    async with pair(on_dead=dead.append) as (one, two):
        await getattr(two.mesh, how)()
        await until(lambda: one.downs)
        tried = one.mesh._schedule.next_due
        await until(lambda: (tried(0.0) or 0.0) > 0.0)
        await asyncio.sleep(0.5)  # it is dialled, and refuses, meanwhile
        assert dead == []


async def test_an_address_of_another_device_that_leads_here_by_now_is_passed_over_quietly(caplog: pytest.LogCaptureFixture) -> None:
    one, two = Space().identities("one", "two")
    node = Node(one, others=[two])
    async with running(node):
        host, _, port = node.address.rpartition(":")
        node.book.note_good(two.device_id, host, int(port), 0)
        node.mesh._schedule.told(two.device_id, time.monotonic())
        node.mesh._dialler.hurry()
        await until(lambda: node.mesh._schedule._targets[two.device_id].failures)
        assert (node.mesh.status()["refused"], caplog.messages) == ([], [])
        assert node.book.candidates(two.device_id) == ((host, int(port)),)
