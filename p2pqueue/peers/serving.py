"""How does a node serve its shards over plain HTTP? To whoever shows the ticket of a link that stands.

Read-only, as an origin is. A shard is ciphertext and checked by whoever gets it, so that nothing needs to be sealed
again on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from p2pqueue.errors import InputChanged, P2PQueueError, PayloadUnavailable
from p2pqueue.payload.format import ADDRESS_SIZE

AT_ONCE: Final = 8  # shards that are read at the same time: each takes its size in memory


class ShardRoutes:
    """The routes under `/shards/`. `may` says whether a request shows a ticket that counts."""

    def __init__(self, read: Callable[[bytes], bytes], may: Callable[[web.Request], bool]) -> None:
        self._read = read
        self._may = may
        self._reading = asyncio.Semaphore(AT_ONCE)
        self.sent = 0  # bytes

    @property
    def routes(self) -> list[web.RouteDef]:
        """What the listener serves."""
        return [web.get("/shards/{address}", self._get)]  # aiohttp answers HEAD by the same

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if not self._may(request):
            return web.Response(status=401, text="a ticket of a link that stands is needed\n")
        address = address_in(request)
        if address is None:
            return web.Response(status=400, text=f"an address is {2 * ADDRESS_SIZE} hexadecimal digits\n")
        async with self._reading:
            try:
                shard = await asyncio.to_thread(self._read, address)
            except InputChanged as error:
                return web.Response(status=410, text=f"{error}\n")
            except PayloadUnavailable:
                return web.Response(status=404, text="this device doesn't have it\n")
            except P2PQueueError as error:
                return web.Response(status=503, text=f"{error}\n")
            answer = web.Response(body=shard, content_type="application/octet-stream")
            await answer.prepare(request)
            await answer.write_eof()
        self.sent += len(shard)
        return answer


def address_in(request: web.Request) -> bytes | None:
    """The address that a request's path names; None where it is none."""
    text = request.match_info["address"]
    try:
        address = bytes.fromhex(text)
    except ValueError:
        return None
    return address if len(text) == 2 * ADDRESS_SIZE and len(address) == ADDRESS_SIZE else None
