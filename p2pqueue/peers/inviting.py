"""How does a device let another one in while no node runs on it?

It listens and shows the nameplate for as long as the code is good, links to nobody, and writes down who came in.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from p2pqueue.config import Home, Settings
from p2pqueue.identity import keys
from p2pqueue.identity.members import Refusal
from p2pqueue.jobs.opening import open_store
from p2pqueue.net.addresses import AddressBook
from p2pqueue.net.mesh import Listening, Mesh, NetOptions
from p2pqueue.net.opening import bracketed
from p2pqueue.peers.pairing import Invitations

_NOT_NOW = "no node runs here, only an invitation"


async def invite(home: Home, *, role: str, ttl: float, settings: Settings) -> AsyncGenerator[dict[str, Any], None]:
    """Tells what `Invitations.open` tells, of a code that is good as long as this runs."""
    identity = keys.load(home)
    where: list[str] = []
    async with AsyncExitStack() as stack:
        store = await open_store(home, identity)
        stack.push_async_callback(store.close)
        invitations = Invitations(
            identity=identity, write=store.write, announce=lambda nameplate: mesh.set_nameplate(nameplate), addresses=lambda: where
        )
        mesh = Mesh(
            identity=identity,
            admit=lambda _chain: Refusal(_NOT_NOW),
            known=dict,
            options=NetOptions(
                listen=settings.listen or None, discovery=settings.discovery, interfaces=settings.interfaces, lanes=frozenset(), rtc=False
            ),
            book=AddressBook(),
            on_up=lambda _peer: None,
            on_down=lambda _peer, _why: None,
            on_message=lambda _peer, _topic, _message: None,
            pairing=invitations.serve,
        )
        where += addresses_of(await mesh.start())
        stack.push_async_callback(mesh.close)
        async with aclosing(invitations.open(role, ttl)) as events:
            async for event in events:
                yield event


def addresses_of(listening: Listening) -> list[str]:
    """Where a node listens, as `HOST:PORT`."""
    return [f"{bracketed(address)}:{listening.port}" for address in listening.addresses]
