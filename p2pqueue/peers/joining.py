"""How does a device that was told a code find the one that made it, and come in?

By an address that it was given, else by the nameplate, which mDNS shows. An address that doesn't answer costs nothing;
whoever answers is asked once, since each answer allows a guess.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

import p2pqueue
from p2pqueue.errors import LinkRefused, NobodyThere, PairingFailed, PeerGone, WorldError
from p2pqueue.home import Home
from p2pqueue.identity import keys
from p2pqueue.identity.codes import Code
from p2pqueue.identity.keys import Identity, JoinedSpace
from p2pqueue.identity.pairing import Joiner
from p2pqueue.jobs.opening import open_replica
from p2pqueue.net.discovery import find_nameplate
from p2pqueue.net.hello import PROTOCOLS, Hello
from p2pqueue.net.interfaces import InterfaceWatch
from p2pqueue.net.pairing import pair_with
from p2pqueue.peers import book
from p2pqueue.peers.pairing import pair

PATIENCE = 30.0  # seconds for which an inviter is looked for
Endpoint = tuple[str, int]


class Keep(Protocol):
    """Writes what was given, by a device that was reached `at` an address."""

    def __call__(self, space: JoinedSpace, /, *, at: Endpoint) -> Identity: ...  # noqa: D102


async def join(
    joiner: Joiner, code: Code, *, keep: Keep, addresses: Sequence[Endpoint] = (),
    interfaces: Sequence[str] = (), patience: float = PATIENCE,
) -> Identity:  # fmt: skip
    """Comes into the space of whoever made the code, at one of these addresses, or where mDNS shows the nameplate.

    Raises `NobodyThere`, and `PairingFailed` and other errors of the house in words.
    """
    if addresses:
        identity, trouble = await _try(addresses, joiner, keep)
        if identity is None:
            raise NobodyThere(trouble)
        return identity
    trouble = f"No device nearby shows the number {code.nameplate}: is the code still open there, and the network the same?"
    deadline = asyncio.get_running_loop().time() + patience
    async with aclosing(_sightings(code.nameplate, interfaces)) as sightings:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    found = await anext(sightings)
            except (TimeoutError, StopAsyncIteration):
                raise NobodyThere(f"{trouble} Name its address: --peer HOST:PORT") from None
            identity, trouble = await _try(found, joiner, keep)
            if identity is not None:
                return identity


def new_joiner(code: Code, label: str) -> Joiner:
    """The machine for one try with a code."""
    return Joiner(code, label=label, protocols=PROTOCOLS, random=os.urandom)


def settle(home: Home, space: JoinedSpace, /, *, label: str, at: Endpoint | None = None) -> Identity:
    """Writes keys, and an empty replica in which this device's certificate stands; and where its inviter was."""
    identity = keys.join(home, space, label)
    with open_replica(home, identity) as replica:
        if at is not None and space.inviter is not None:
            device = space.inviter[0]
            replica.write(lambda writer: book.note(writer, device, *at))
    return identity


async def _sightings(nameplate: str, interfaces: Sequence[str]) -> AsyncGenerator[tuple[Endpoint, ...]]:
    watch = InterfaceWatch(interfaces)
    async with aclosing(find_nameplate(nameplate, protocol=PROTOCOLS, interfaces=watch)) as found:  # type: ignore[type-var]
        async for sighting in found:
            if sighting.addresses:
                yield sighting.addresses


async def _try(addresses: Sequence[Endpoint], joiner: Joiner, keep: Keep) -> tuple[Identity | None, str]:
    """Pairs at the first address that answers; else says why none did."""
    trouble = "no address"
    for host, port in addresses:
        began = False
        try:
            async with pair_with(host, port, Hello(*PROTOCOLS, p2pqueue.__version__)) as pipe:
                began = True
                return await pair(pipe, joiner, keep=partial(keep, at=(host, port))), ""
        except (LinkRefused, PeerGone) as error:
            raise PairingFailed(f"{host}:{port} refused: {error}") from error
        except WorldError as error:
            if began:
                raise
            trouble = str(error)
    return None, trouble
