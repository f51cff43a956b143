"""Where do other devices reach this node?

One TCP port speaks HTTP: `/link` becomes a WebSocket between devices, other routes are passed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from p2pqueue.errors import ConfigError, WorldError
from p2pqueue.net.addresses import DEFAULT_PORT, listening_at
from p2pqueue.net.door import Door, Knocking, address_of
from p2pqueue.net.pipe import CLOSE_WAIT, Pipe
from p2pqueue.wire import FRAME_LIMIT

NEXT_PORTS = 32  # tried after the default one; then the system picks any
_BACKLOG = 64
_WS_LIMIT = FRAME_LIMIT + 1024  # bytes: aiohttp refuses a longer frame before it has come

_log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")


def _is_no_junk(record: logging.LogRecord) -> bool:
    """Says whether a record tells of more than bytes that are no HTTP, or somebody who went before the answer: no traceback for those."""
    return record.exc_info is None or not isinstance(record.exc_info[1], (HttpProcessingError, ConnectionResetError))


_http_log.addFilter(_is_no_junk)


@dataclass(frozen=True)
class Bound:
    """Where a listener listens: its host is empty where that is every address of the machine."""

    host: str
    port: int


class Listener:
    """The node's one TCP listener.

    :param listen: `HOST:PORT` or `HOST` as `--listen` gives it; without it, every address and port 7433 or the next free one.
    :param on_link: gets each connection to `/link`; it ends when that returns.
    """

    def __init__(
        self, listen: str | None, *, on_link: Callable[[Pipe, web.Request], Awaitable[None]], routes: Sequence[web.RouteDef] = (),
        door: Door,
    ) -> None:  # fmt: skip
        self._wanted = listen
        self._on_link = on_link
        self._routes = routes
        self._door = door
        self._runner: web.AppRunner | None = None
        self._servers: list[asyncio.Server] = []
        self.bound: Bound | None = None

    async def start(self) -> Bound:
        """Begins to listen. Raises `ConfigError` and `WorldError` in words."""
        sockets = bind(self._wanted, again=self.bound)
        try:
            app = web.Application(middlewares=[self._watched], client_max_size=FRAME_LIMIT)
            app.add_routes([web.get("/link", self._link), *self._routes])
            self._runner = web.AppRunner(
                app, access_log=None, logger=_http_log, handle_signals=False, keepalive_timeout=30, shutdown_timeout=CLOSE_WAIT
            )  # fmt: skip
            await self._runner.setup()
            assert self._runner.server is not None
            loop = asyncio.get_running_loop()
            while sockets:
                make = partial(Knocking, self._door, self._runner.server)
                self._servers.append(await loop.create_server(make, sock=sockets[0], backlog=_BACKLOG))
                name = sockets.pop(0).getsockname()
            self.bound = Bound("" if name[0] in ("0.0.0.0", "::") else name[0], name[1])
        except BaseException:
            await self.close()
            raise
        finally:
            for unused in sockets:
                unused.close()
        return self.bound

    async def close(self) -> None:
        """Stops listening and cuts what is still open. Links are ended before by their owner."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._door.close()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await asyncio.shield(asyncio.get_running_loop().create_task(runner.cleanup(), name="p2pqueue-listener-close"))

    async def _link(self, request: web.Request) -> web.StreamResponse:
        if "Origin" in request.headers:  # a page in a browser has no business here
            raise web.HTTPForbidden(text="devices only")
        ws = web.WebSocketResponse(compress=False, max_msg_size=_WS_LIMIT, timeout=CLOSE_WAIT, autoclose=True)
        await ws.prepare(request)
        pipe = Pipe(ws, address_of(request.transport))
        await self._on_link(pipe, request)
        return ws

    @web.middleware
    async def _watched(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:  # fmt: skip
        transport = request.transport
        self._door.arrived(transport)
        try:
            return await handler(request)
        finally:
            self._door.answered(transport)


def bind(wanted: str | None, *, again: Bound | None = None) -> list[socket.socket]:
    """Listening sockets, one per address family. Raises `ConfigError` where the address can't be, `WorldError` where it is taken."""
    if wanted is not None:
        return _bind_wanted(wanted)
    first = [again.port] if again is not None else []
    for port in (*first, *range(DEFAULT_PORT, DEFAULT_PORT + 1 + NEXT_PORTS), 0):
        try:
            return _bind_everywhere(port)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise WorldError(f"No port can be opened for other devices ({error.strerror})") from error
    raise WorldError("No port is free for other devices; name one with --listen HOST:PORT")


def _bind_wanted(wanted: str) -> list[socket.socket]:
    try:
        host, port = listening_at(wanted, default_port=DEFAULT_PORT)
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE) if host else []
    except (ValueError, OSError) as error:
        raise ConfigError(f"--listen {wanted}: no address to listen at ({error})") from error
    try:
        if not host:
            return _bind_everywhere(port)
        family, _, _, _, where = found[0]
        return [_bound(family, where)]
    except OSError as error:
        raise WorldError(f"--listen {wanted}: the port can't be opened ({error.strerror}); choose another") from error


def _bind_everywhere(port: int) -> list[socket.socket]:
    """One port on every IPv4 and every IPv6 address; a machine may have but one of the families."""
    sockets: list[socket.socket] = []
    try:
        sockets.append(_bound(socket.AF_INET, ("0.0.0.0", port)))
        port = sockets[0].getsockname()[1]
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise
    if socket.has_ipv6:
        try:
            sockets.append(_bound(socket.AF_INET6, ("::", port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE or not sockets:
                for bound in sockets:
                    bound.close()
                raise
    return sockets


def _bound(family: int, where: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(where)
        made.listen(_BACKLOG)  # now: another program could bind the same address until somebody listens
    except BaseException:
        made.close()
        raise
    return made
