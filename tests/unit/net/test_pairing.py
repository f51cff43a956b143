"""The connection over which a device is invited."""

from __future__ import annotations

import asyncio

import pytest

from p2pqueue.errors import LinkRefused, MalformedMessage, PeerGone, WorldError
from p2pqueue.net.hello import PROTOCOLS, Hello
from p2pqueue.net.pairing import MOST_PAIRINGS, PAIRING_LIMIT, PairingPipe, pair_with
from tests.unit.net.kit import Node, Space, closing

HELLO = Hello(*PROTOCOLS, "joiner")


def where(node: Node) -> tuple[str, int]:
    host, _, port = node.address.rpartition(":")
    return host, int(port)


async def echo(pipe: PairingPipe) -> None:
    assert pipe.hello.product == "joiner"
    await pipe.send(b"re: " + await pipe.receive())


async def test_a_joiner_and_an_inviter_speak_before_they_are_of_one_space() -> None:
    node = Node(Space().identity("inviter"), pairing=echo)
    async with closing(node):
        await node.mesh.start()
        async with pair_with(*where(node), HELLO) as pipe:
            assert pipe.hello.highest == PROTOCOLS[1]
            await pipe.send(b"let me in")
            assert await pipe.receive() == b"re: let me in"
            with pytest.raises(PeerGone, match="it left"):
                await pipe.receive()


async def test_without_an_invitation_a_joiner_is_told_so() -> None:
    node = Node(Space().identity("inviter"))
    async with closing(node):
        await node.mesh.start()
        async with pair_with(*where(node), HELLO) as pipe:
            with pytest.raises(PeerGone, match="no invitation is open there"):
                await pipe.receive()


async def test_an_invitation_may_come_and_go_while_the_node_runs() -> None:
    node = Node(Space().identity("inviter"))
    async with closing(node):
        await node.mesh.start()
        node.mesh.pairing = echo
        async with pair_with(*where(node), HELLO) as pipe:
            await pipe.send(b"")
            assert await pipe.receive() == b"re: "


async def test_messages_are_small_and_joiners_few() -> None:
    async def silent(pipe: PairingPipe) -> None:
        await pipe.receive()

    node = Node(Space().identity("inviter"), pairing=silent)
    async with closing(node):
        await node.mesh.start()
        async with pair_with(*where(node), HELLO) as pipe:
            with pytest.raises(MalformedMessage):
                await pipe.send(bytes(PAIRING_LIMIT + 1))
            await pipe._pipe.send(bytes(PAIRING_LIMIT + 1))
            with pytest.raises(PeerGone):
                await pipe.receive()
        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(turned_away(node)) for _ in range(MOST_PAIRINGS + 3)]
            async with asyncio.timeout(10):
                while sum(tried.done() for tried in tries) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            for tried in tries:
                tried.cancel()


async def turned_away(node: Node) -> None:
    async with pair_with(*where(node), HELLO) as pipe:
        with pytest.raises(PeerGone):
            await pipe.receive()


async def test_an_inviter_that_isnt_there_or_is_of_another_time_is_named_in_words() -> None:
    with pytest.raises(WorldError, match=r"127.0.0.1:9 doesn't answer .*; is the inviting node running there\?"):
        async with pair_with("127.0.0.1", 9, HELLO):
            pass
    node = Node(Space().identity("inviter"), pairing=echo, hello=Hello(5, 6, "7.7"))
    async with closing(node):
        await node.mesh.start()
        with pytest.raises(LinkRefused, match=r"p2pqueue 7.7.*upgrade this device"):
            async with pair_with(*where(node), HELLO):
                pass
