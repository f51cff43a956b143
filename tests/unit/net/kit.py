"""Devices of one space in one process, each with a real `Mesh` on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from nacl.signing import SigningKey

from p2pqueue.identity.certificate import device_id, issue
from p2pqueue.identity.keys import Identity
from p2pqueue.identity.members import Members, Refusal
from p2pqueue.net import opening
from p2pqueue.net.addresses import AddressBook
from p2pqueue.net.framing import Topic, split
from p2pqueue.net.greeting import Desk, Greeted, dial
from p2pqueue.net.handshake import INSTANCE_SIZE, Credentials
from p2pqueue.net.hello import PROTOCOLS, Hello
from p2pqueue.net.link import Beat
from p2pqueue.net.mesh import Mesh, NetOptions
from p2pqueue.net.notes import TICKET_SIZE, About
from p2pqueue.net.peer import Peer
from p2pqueue.net.pipe import Pipe
from p2pqueue.net.twins import Twins

QUICK = Beat(every=0.1, dead_after=0.3)


class Space:
    """A root key, and devices that it certified."""

    def __init__(self) -> None:
        self.root = SigningKey.generate()
        self.space_id, self.space_key = os.urandom(16).hex(), os.urandom(32)

    def identity(self, label: str) -> Identity:
        signing = SigningKey.generate()
        key = bytes(signing.verify_key)
        return Identity(
            space_id=self.space_id,
            space_name="test",
            device_id=device_id(key),
            label=label,
            space_key=self.space_key,
            signing=signing,
            root=None,
            certificate=issue(self.root, space_id=self.space_id, public_key=key, role="member"),
            root_public=bytes(self.root.verify_key),
        )

    def identities(self, *labels: str) -> list[Identity]:
        """Identities in the order of their ids."""
        made = sorted((self.identity(label) for label in labels), key=lambda identity: identity.device_id)
        return [replace(identity, label=label) for identity, label in zip(made, labels, strict=True)]


def credentials(identity: Identity) -> Credentials:
    return Credentials(
        identity.space_id, identity.root_public, identity.device_id, os.urandom(INSTANCE_SIZE), identity.chain, identity.sign
    )  # fmt: skip


class Node:
    """A mesh, and all that it told."""

    def __init__(self, identity: Identity, *, others: list[Identity] | None = None, peers: tuple[str, ...] = (), **more: Any) -> None:
        self.identity = identity
        self.members = Members(identity)
        self.refuses: set[str] = set()
        self.others = {other.device_id: other.label for other in others or []}
        self.ups: list[Peer] = []
        self.downs: list[tuple[Peer, str]] = []
        self.got: list[tuple[str, Topic, bytes]] = []
        self.on_message: Callable[[Peer, Topic, bytes], None] = lambda peer, topic, message: self.got.append(
            (peer.device_id, topic, message)
        )
        self.book = AddressBook()
        options = more.pop("options", None) or NetOptions(listen="127.0.0.1:0", peers=peers, discovery=False, rtc=False)
        self.mesh = Mesh(
            identity=identity,
            admit=more.pop("admit", self.admit),
            known=lambda: self.others,
            options=options,
            book=self.book,
            on_up=self.ups.append,
            on_down=lambda peer, why: self.downs.append((peer, why)),
            on_message=lambda peer, topic, message: self.on_message(peer, topic, message),
            **more,
        )

    def admit(self, chain: list[bytes]) -> Any:
        outcome = self.members.admit(chain)
        if getattr(outcome, "device_id", None) in self.refuses:
            return Refusal("it was revoked")
        return outcome

    @property
    def address(self) -> str:
        bound = self.mesh._listener.bound
        assert bound is not None
        return f"127.0.0.1:{bound.port}"

    def peer(self, other: Node) -> Peer:
        return self.mesh.peers[other.identity.device_id]

    def has(self, *others: Node) -> bool:
        return all(other.identity.device_id in self.mesh.peers for other in others)

    def linked(self, other: Node) -> bool:
        """Both see the other, by one and the same link."""
        return self.has(other) and other.has(self) and self.peer(other).dialled != other.peer(self).dialled


@contextlib.asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """Starts nodes one after another, and closes them all."""
    try:
        for node in nodes:
            await node.mesh.start()
        yield
    finally:
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.mesh.close())


async def until(condition: Callable[[], Any], within: float = 20.0) -> None:
    """Waits until something holds; a busy machine may take its time."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  a condition of many parts sets no event
            await asyncio.sleep(0.005)


async def linked_pair(space: Space | None = None, **more: Any) -> tuple[Node, Node]:
    """Two nodes that are linked; the second, whose id is the higher, was dialled by the first."""
    space = space or Space()
    one, two = space.identities("one", "two")
    second = Node(two, **more)
    await second.mesh.start()
    first = Node(one, peers=(second.address,), **more)
    await first.mesh.start()
    await until(lambda: first.linked(second))
    return first, second


@contextlib.asynccontextmanager
async def pair(**more: Any) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes that are linked, and closed afterwards."""
    first, second = await linked_pair(**more)
    async with closing(first, second):
        yield first, second


@contextlib.asynccontextmanager
async def by_hand(address: str) -> AsyncIterator[Pipe]:
    """A connection to a node's `/link`, on which a test says what it likes."""
    host, _, port = address.rpartition(":")
    async with opening.session() as client:
        pipe = await opening.open_pipe(client, host, int(port))
        try:
            yield pipe
        finally:
            await pipe.close(4000)


async def link_by_hand(pipe: Pipe, identity: Identity) -> Greeted:
    """Greets as a device would, and says no more."""

    def about() -> About:
        return About(identity.label, 0, bytes(TICKET_SIZE), frozenset())

    mine = credentials(identity)
    twins = Twins(identity, mine.instance, holder=lambda proven: None, on_clone=None)
    desk = Desk(Hello(*PROTOCOLS, "0"), lambda: mine, Members(identity).admit, about, lambda device, change: None, twins)
    greeted = await dial(pipe, desk)
    await pipe.send(greeted.sealer.seal(next(split("net", greeted.mine.pack()))))
    return greeted


@contextlib.asynccontextmanager
async def closing(*nodes: Node) -> AsyncIterator[None]:
    try:
        yield
    finally:
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.mesh.close())
