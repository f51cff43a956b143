"""What does an origin do? It keeps sealed shards for devices that are never there at the same time.

A plain HTTP store: `PUT`, `GET`, `HEAD` and `DELETE /shards/<address>`. A body is checked against its address before
it is kept. It sees ciphertext only. Behind it lies a folder: one file for each shard, named by its address.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web
from blake3 import blake3

from p2pqueue.errors import DiskFull, WorldError
from p2pqueue.payload.format import LARGEST_SHARD
from p2pqueue.private import FILE_MODE, in_words, make_private_dir, sync_dir

RESERVE: Final = 256 * 1024**2  # bytes of the disk that are left free
UPLOADS: Final = 16  # bodies that are taken in at the same time: each takes up to 8 MiB of memory
_PIECE: Final = 256 * 1024  # bytes sent at once
_ADDRESS = re.compile(r"[0-9a-f]{64}")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ShardFolder:
    """Shards as files of a folder. `quota` is in bytes. For any thread."""

    def __init__(self, folder: Path, *, quota: int) -> None:
        self.folder = folder
        self.quota = quota
        make_private_dir(folder)
        self.used = 0
        for name in os.listdir(folder):
            path = folder / name
            if _ADDRESS.fullmatch(name):
                self.used += path.stat().st_size
            elif name.startswith("."):
                path.unlink()  # of an upload that was cut by the end of an earlier run

    def path_of(self, address: str) -> Path:
        """The file of a shard."""
        return self.folder / address

    def put(self, address: str, body: bytes) -> bool:
        """Keeps a shard, durably; says whether it is new. Raises `DiskFull` beyond the quota or what the disk has."""
        target = self.path_of(address)
        if target.exists():
            os.utime(target)
            return False
        free = shutil.disk_usage(self.folder).free
        if self.used + len(body) > self.quota or free - len(body) < RESERVE:
            raise DiskFull(f"the origin is full: {self.used} of {self.quota} bytes are used, {free} are free on its disk")
        temporary = self.folder / f".{address}.{os.urandom(4).hex()}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb", buffering=0) as file:
                file.write(body)
                os.fsync(file.fileno())
            os.replace(temporary, target)
            sync_dir(self.folder)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise in_words(error, self.folder) from error
        self.used += len(body)
        return True

    def delete(self, address: str) -> bool:
        """Removes a shard; says whether there was one."""
        target = self.path_of(address)
        try:
            size = target.stat().st_size
            target.unlink()
        except FileNotFoundError:
            return False
        self.used -= size
        return True


class Origin:
    """The HTTP side. Without `open_reading` reading needs the token too."""

    def __init__(self, store: ShardFolder, *, token: str, open_reading: bool = False) -> None:
        self._store = store
        self._token = token
        self._open_reading = open_reading
        self._taking = asyncio.Semaphore(UPLOADS)

    @property
    def app(self) -> web.Application:
        """The application to serve."""
        app = web.Application(client_max_size=LARGEST_SHARD, middlewares=[self._check])
        app.add_routes(
            [
                web.get("/shards/{address}", self._get),  # and HEAD
                web.put("/shards/{address}", self._put),
                web.delete("/shards/{address}", self._delete),
                web.get("/healthz", self._health),
            ]
        )
        return app

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        reading = request.method in ("GET", "HEAD")
        if not (reading and self._open_reading) and not self._shows_token(request):
            return web.Response(
                status=401, text="this origin needs its token: use the URL that it printed\n", headers={"WWW-Authenticate": "Bearer"}
            )
        address = request.match_info.get("address")
        if address is not None and not _ADDRESS.fullmatch(address):
            return web.Response(status=400, text="an address is 64 hexadecimal digits in lower case\n")
        return await handler(request)

    def _shows_token(self, request: web.Request) -> bool:
        kind, _, shown = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and hmac.compare_digest(shown.encode(), self._token.encode())

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = self._store.path_of(request.match_info["address"])
        if not await asyncio.to_thread(path.is_file):
            return web.Response(status=404, text="it isn't here\n")
        return web.FileResponse(path, chunk_size=_PIECE, headers={"Content-Type": "application/octet-stream"})

    async def _put(self, request: web.Request) -> web.StreamResponse:
        address = request.match_info["address"]
        if request.content_length is not None and request.content_length > LARGEST_SHARD:
            return web.Response(status=413, text=f"a shard has {LARGEST_SHARD} bytes at most\n")
        async with self._taking:
            body = await request.read()
            if (await asyncio.to_thread(lambda: blake3(body).hexdigest())) != address:
                return web.Response(status=422, text="the body doesn't fit its address; nothing was kept\n")
            try:
                new = await asyncio.to_thread(self._store.put, address, body)
            except DiskFull as error:
                return web.Response(status=507, text=f"{error}\n")
            except WorldError as error:
                return web.Response(status=503, text=f"{error}\n")
        return web.Response(status=201 if new else 200)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        gone = await asyncio.to_thread(self._store.delete, request.match_info["address"])
        return web.Response(status=204 if gone else 404)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True})
