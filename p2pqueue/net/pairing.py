"""Over what do a device that was invited and its inviter speak, before they are of one space?

A `PairingPipe` carries small messages over a connection to `/link`, after both hellos. What they say, and that it is
safe, is the matter of `identity.pairing`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp

from p2pqueue.errors import LinkRefused, MalformedMessage, PeerGone, WorldError, told
from p2pqueue.net import codes
from p2pqueue.net.greeting import HANDSHAKE_WAIT, exchange_hellos
from p2pqueue.net.handshake import PAIR_MODE
from p2pqueue.net.hello import Hello
from p2pqueue.net.opening import open_pipe, session
from p2pqueue.net.pipe import Pipe

PAIRING_LIMIT = 2048  # bytes of one message
PAIRING_WAIT = 60.0  # seconds for the whole of a pairing
MOST_PAIRINGS = 4  # at a time: there is one guess per code anyway


class PairingPipe:
    """A connection on which a pairing is spoken."""

    def __init__(self, pipe: Pipe, hello: Hello) -> None:
        self._pipe = pipe
        self.address = pipe.address
        self.hello = hello  # of the other side

    async def send(self, message: bytes) -> None:
        """Sends a message. Raises `PeerGone`."""
        if len(message) > PAIRING_LIMIT:
            raise MalformedMessage(f"a pairing's message of {len(message)} bytes, where at most {PAIRING_LIMIT} are sent")
        try:
            await self._pipe.send(message)
        except OSError:
            raise PeerGone("the other device broke the connection off") from None

    async def receive(self) -> bytes:
        """The next message. Raises `PeerGone` and `MalformedMessage`."""
        try:
            message = await self._pipe.receive()
        except LinkRefused as error:
            raise PeerGone(f"the other device broke the connection off: {error}") from None
        if len(message) > PAIRING_LIMIT:
            raise MalformedMessage(f"a pairing's message of {len(message)} bytes")
        return message


@contextlib.asynccontextmanager
async def pair_with(host: str, port: int, hello: Hello) -> AsyncIterator[PairingPipe]:
    """A joiner's connection to an inviter. Raises `WorldError` and `LinkRefused` in words, `PeerGone` while it lasts."""
    async with session() as client:
        try:
            async with asyncio.timeout(HANDSHAKE_WAIT):
                pipe = await open_pipe(client, host, port)
                try:
                    theirs, _, _ = await exchange_hellos(pipe, hello)
                    await pipe.send(PAIR_MODE)
                except BaseException:
                    await pipe.close(codes.FAULT)
                    raise
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            why = "in time" if isinstance(error, TimeoutError) else told(error)
            raise WorldError(f"{host}:{port} doesn't answer ({why}); is the inviting node running there?") from error
        try:
            yield PairingPipe(pipe, theirs)
        finally:
            await pipe.close(codes.BYE)
