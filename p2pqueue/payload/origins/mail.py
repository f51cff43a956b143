"""How do mailboxes pass through an origin? `GET /mail/<space>` lists one, `/mail/<space>/<device>/<object>` is one object.

What lies in them is sealed and signed by the devices. Space and device are hashes under a key that the origin lacks.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from p2pqueue.payload.format import LARGEST_SHARD
from p2pqueue.payload.origins.keeping import Keeping
from p2pqueue.payload.origins.objects import MAIL, MAIL_NAME, MAILBOX, MOST_LISTED

_OCTETS: Final = "application/octet-stream"


class MailRoutes:
    """The part of an origin's HTTP side that is about mailboxes; the token was asked for before."""

    def __init__(self, keeping: Keeping, taking: asyncio.Semaphore) -> None:
        self._keeping = keeping
        self._taking = taking

    @property
    def routes(self) -> list[web.AbstractRouteDef]:
        """What is to be added to the application."""
        return [
            web.get("/mail/{space}", self._list),
            web.get("/mail/{space}/{device}/{object}", self._get),
            web.put("/mail/{space}/{device}/{object}", self._put),
            web.delete("/mail/{space}/{device}/{object}", self._delete),
        ]

    async def _list(self, request: web.Request) -> web.StreamResponse:
        space = request.match_info["space"]
        if not MAILBOX.fullmatch(space):
            return web.Response(status=400, text="a mailbox is named by 32 hexadecimal digits in lower case\n")
        prefix = f"{MAIL}{space}/"
        found = await self._keeping.listed(prefix, most=MOST_LISTED)
        return web.json_response([[each.name.removeprefix(MAIL), each.size, each.mark, each.modified] for each in found])

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = _name(request)
        body = None if name is None else await self._keeping.get(name, limit=LARGEST_SHARD)
        return _missing() if body is None else web.Response(body=body, content_type=_OCTETS)

    async def _put(self, request: web.Request) -> web.StreamResponse:
        name = _name(request)
        if name is None:
            return web.Response(status=400, text="this is no name of an object in a mailbox\n")
        async with self._taking:
            new = await self._keeping.put(name, await request.read())
        return web.Response(status=201 if new else 200)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        name = _name(request)
        gone = name is not None and await self._keeping.delete(name)
        return web.Response(status=204 if gone else 404)


def _name(request: web.Request) -> str | None:
    told = "/".join(request.match_info[part] for part in ("space", "device", "object"))
    return MAIL + told if MAIL_NAME.fullmatch(told) else None


def _missing() -> web.Response:
    return web.Response(status=404, text="it isn't here\n")
