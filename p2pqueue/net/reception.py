"""What happens with a connection that comes in, and what does this device show of itself to whoever is greeted?"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from aiohttp import web

from p2pqueue.errors import LinkRefused, P2PQueueError, PeerError
from p2pqueue.identity.keys import Identity
from p2pqueue.net import codes, greeting
from p2pqueue.net.door import Door
from p2pqueue.net.greeting import Admit, Desk, Duplicate
from p2pqueue.net.handshake import INSTANCE_SIZE, Credentials
from p2pqueue.net.hello import Hello
from p2pqueue.net.notes import About
from p2pqueue.net.pairing import MOST_PAIRINGS, PAIRING_WAIT, PairingPipe
from p2pqueue.net.peer import Peer
from p2pqueue.net.pipe import Pipe, PipeClosed
from p2pqueue.net.roster import Roster
from p2pqueue.net.twins import Twins

Pairing = Callable[[PairingPipe], Awaitable[None]]

_log = logging.getLogger(__name__)


class Reception:
    """Greets.

    :param about: what this device says of itself to a device of its space, with a fresh ticket.
    :param on_linked: gets each device that came in, once it is linked.
    :param on_clone: told where another device runs with the key of this one.
    """

    def __init__(
        self, identity: Identity, *, hello: Hello, admit: Admit, about: Callable[[], About], roster: Roster, door: Door,
        on_linked: Callable[[Peer], None], on_clone: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        self.pairing: Pairing | None = None
        self.is_open = True
        self._identity = identity
        self._instance = os.urandom(INSTANCE_SIZE)
        self._roster = roster
        self._door = door
        self._on_linked = on_linked
        self._pairings = 0
        self.twins = Twins(identity, self._instance, holder=roster.holder, on_clone=on_clone)
        self.desk = Desk(hello, self._credentials, admit, about, roster.coming, self.twins)

    async def came(self, pipe: Pipe, request: web.Request) -> None:
        """Takes a connection that came in, until it ends."""
        transport = request.transport
        try:
            if not self.is_open:
                raise LinkRefused("this device is leaving", code=codes.BYE)
            greeted = await greeting.answer(pipe, self.desk)
            if isinstance(greeted, Hello):
                await self._pair(pipe, greeted)
                return
            peer = self._roster.adopt(pipe, greeted, (pipe.address[0], greeted.about.port))
        except (PeerError, OSError) as error:
            _log.info("a connection from %s was refused: %s", pipe.address[0], error)
            self._door.failed(transport, weight=_weight(error))
            await pipe.close(error.code if isinstance(error, LinkRefused) else codes.MALFORMED)
            return
        self._door.vouched(transport)
        self._on_linked(peer)
        await self._roster.carry(peer)

    async def _pair(self, pipe: Pipe, hello: Hello) -> None:
        if self.pairing is None or self._pairings >= MOST_PAIRINGS:
            raise LinkRefused(codes.words(codes.NO_INVITATION), code=codes.NO_INVITATION)
        self._pairings += 1
        try:
            async with asyncio.timeout(PAIRING_WAIT):
                await self.pairing(PairingPipe(pipe, hello))
        except (P2PQueueError, TimeoutError) as error:
            raise LinkRefused(f"pairing failed: {str(error) or 'it took too long'}", code=codes.BYE) from None
        finally:
            self._pairings -= 1
            await pipe.close(codes.BYE)

    def _credentials(self) -> Credentials:
        mine = self._identity
        return Credentials(mine.space_id, mine.root_public, mine.device_id, self._instance, mine.chain, mine.sign)


def _weight(error: Exception) -> float:
    """How much a failure counts against the address that it came from: whoever loses a race, or has our key, has done nothing wrong."""
    if isinstance(error, Duplicate) or (isinstance(error, LinkRefused) and error.code == codes.CLONE):
        return 0.0
    return 0.2 if isinstance(error, (PipeClosed, OSError)) else 1.0
