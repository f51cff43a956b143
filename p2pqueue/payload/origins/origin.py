"""What does an origin do? It keeps sealed shards for devices that are never there at the same time.

A plain HTTP store: `PUT`, `GET`, `HEAD` and `DELETE /shards/<address>`. A body is checked against its address before
it is kept. `/mail/…` is that of `origin_mail`. It sees ciphertext only.

Where a bucket stands behind it and it was told to sign, a reader is sent on to the bucket, and `POST /shards/<address>`
gives a URL to write to: the bytes don't come past here then, and only whoever reads them checks them.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from blake3 import blake3

from p2pqueue.payload.format import LARGEST_SHARD
from p2pqueue.payload.origins.folder import Folder
from p2pqueue.payload.origins.keeping import Keeping
from p2pqueue.payload.origins.mail import MailRoutes
from p2pqueue.payload.origins.objects import ADDRESS, SHARDS, StoreFailed, StoreFull

UPLOADS: Final = 16  # bodies that are taken in at the same time: each takes up to 8 MiB of memory
_PIECE: Final = 256 * 1024  # bytes sent at once
_OCTETS: Final = "application/octet-stream"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Origin:
    """The HTTP side. Without `open_reading` reading needs the token too; `signs` sends devices on to a bucket."""

    def __init__(self, keeping: Keeping, *, token: str, open_reading: bool = False, signs: bool = False) -> None:
        self._keeping = keeping
        self._token = token
        self._open_reading = open_reading
        self._signs = signs
        self._taking = asyncio.Semaphore(UPLOADS)
        self._mail = MailRoutes(keeping, self._taking)

    @property
    def app(self) -> web.Application:
        """The application to serve."""
        app = web.Application(client_max_size=LARGEST_SHARD, middlewares=[self._check])
        app.add_routes(
            [
                web.head("/shards/{address}", self._head),
                web.get("/shards/{address}", self._get, allow_head=False),
                web.put("/shards/{address}", self._put),
                web.post("/shards/{address}", self._sign),
                web.delete("/shards/{address}", self._delete),
                web.get("/healthz", self._health),
                *self._mail.routes,
            ]
        )
        return app

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        reading = request.method in ("GET", "HEAD") and request.path.startswith("/shards/")
        if not (reading and self._open_reading) and not self._shows_token(request):
            return web.Response(
                status=401, text="this origin needs its token: use the URL that it printed\n", headers={"WWW-Authenticate": "Bearer"}
            )
        address = request.match_info.get("address")
        if address is not None and not ADDRESS.fullmatch(address):
            return web.Response(status=400, text="an address is 64 hexadecimal digits in lower case\n")
        try:
            return await handler(request)
        except StoreFull as error:
            return web.Response(status=507, text=f"the origin is full: {error}\n")
        except StoreFailed as error:
            return web.Response(status=503, text=f"{error}\n")

    def _shows_token(self, request: web.Request) -> bool:
        kind, _, shown = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and hmac.compare_digest(shown.encode(), self._token.encode())

    async def _head(self, request: web.Request) -> web.StreamResponse:
        size = await self._keeping.size(_name(request))
        return web.Response(status=404 if size is None else 200)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name, store = _name(request), self._keeping.store
        if isinstance(store, Folder):
            if await self._keeping.size(name) is None:
                return _missing()
            return web.FileResponse(store.path_of(name), chunk_size=_PIECE, headers={"Content-Type": _OCTETS})
        url = await store.url("GET", name) if self._signs else None
        if url is not None:
            self._keeping.ledger.touch(name)
            return web.Response(status=307, headers={"Location": url})
        body = await self._keeping.get(name, limit=LARGEST_SHARD)
        return _missing() if body is None else web.Response(body=body, content_type=_OCTETS)

    async def _put(self, request: web.Request) -> web.StreamResponse:
        if request.content_length is not None and request.content_length > LARGEST_SHARD:
            return web.Response(status=413, text=f"a shard has {LARGEST_SHARD} bytes at most\n")
        async with self._taking:
            body = await request.read()
            if (await asyncio.to_thread(lambda: blake3(body).hexdigest())) != request.match_info["address"]:
                return web.Response(status=422, text="the body doesn't fit its address; nothing was kept\n")
            if await self._keeping.size(_name(request)) is not None:
                return web.Response(status=200)
            await self._keeping.put(_name(request), body)
        return web.Response(status=201)

    async def _sign(self, request: web.Request) -> web.StreamResponse:
        """Where a shard of `size` bytes may be put without coming past here; no URL where that can't be."""
        size = request.query.get("size", "")
        if not size.isascii() or not size.isdigit() or len(size) > 12 or not int(size):
            return web.Response(status=400, text="?size=BYTES is missing\n")
        if int(size) > LARGEST_SHARD:
            return web.Response(status=413, text=f"a shard has {LARGEST_SHARD} bytes at most\n")
        url = None
        if self._signs:
            self._keeping.check_room(_name(request), int(size))
            url = await self._keeping.store.url("PUT", _name(request))
            if url is not None:
                self._keeping.ledger.enter(_name(request), int(size))
        return web.json_response({"url": url})

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        gone = await self._keeping.delete(_name(request))
        return web.Response(status=204 if gone else 404)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True})


def _name(request: web.Request) -> str:
    return SHARDS + request.match_info["address"]


def _missing() -> web.Response:
    return web.Response(status=404, text="it isn't here\n")
