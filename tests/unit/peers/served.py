"""A shelf that is served by a real listener on loopback, and what a fetch asks a lane for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from p2pqueue.errors import BadShard
from p2pqueue.home import Home
from p2pqueue.net.door import Door
from p2pqueue.net.listener import Listener
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.limit import Limits
from p2pqueue.payload.seal import address_of
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.shards.serving import ShardRoutes

MIB = 1024**2
TICKET = "ab" * 32


@dataclass(frozen=True, eq=False)
class Device:
    device_id: str = "d" * 16


@dataclass
class Asked:
    """One shard that is asked for (`source.Request`)."""

    address: bytes
    size: int
    wanted: bool = True
    came: bytearray = field(default_factory=bytearray)
    error: Exception | None = None
    is_right: bool | None = None
    advanced: int = 0

    def room(self, size: int) -> memoryview:
        if not 0 < size <= self.size:
            raise BadShard(f"{size} bytes where {self.size} at most were to be")
        if len(self.came) != size:
            self.came = bytearray(size)
        return memoryview(self.came)

    def put(self, body: memoryview) -> None:
        self.came = bytearray(body)

    def advance(self, size: int) -> None:
        self.advanced += size

    def finish(self) -> bool:
        self.is_right = address_of(self.came) == self.address
        return self.is_right

    def fail(self, error: Exception) -> None:
        self.error = error


class Shift:
    """What there is to do (`source.Work`)."""

    def __init__(self, asks: Iterable[Asked], *, at_once: int = 1000) -> None:
        self._left: Iterator[Asked] = iter(asks)
        self._lock = threading.Lock()
        self._at_once = at_once
        self.taken: list[Asked] = []
        self.ended = False

    def take(self, *, wait: bool = True) -> Asked | None:
        with self._lock:
            under_way = sum(1 for each in self.taken if each.is_right is None and each.error is None)
            asked = next(self._left, None) if under_way < self._at_once else None
            if asked is not None:
                self.taken.append(asked)
            return asked


@dataclass
class Served:
    """A listener with the shards of a shelf."""

    shelf: Shelf
    routes: ShardRoutes
    base: str
    port: int
    tickets: dict[str, Device]

    def shards(self, path: Path, *, copy: bool) -> list[tuple[bytes, bytes]]:
        """Takes a file in and gives the address and the content of each of its shards."""
        addresses = self.shelf.addresses(self.shelf.ingest(path, copy=copy).capability)
        return [(address, self.shelf.shard(address)) for address in addresses]


@contextlib.asynccontextmanager
async def served(folder: Path, limits: Limits | None = None, *, metered: bool = False) -> AsyncIterator[Served]:
    shelf = Shelf(Home(folder / "home"), bytes(32), quota=500 * MIB, reserve=0)
    tickets, door = {TICKET: Device()}, Door()

    def bearer(request: web.Request) -> Device | None:
        device = tickets.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if device is not None:
            door.vouched(request.transport)
        return device

    async def no_link(pipe: Any, request: web.Request) -> None:
        await pipe.close(4000)

    routes = ShardRoutes(shelf, bearer, limits, is_metered=lambda device: metered)
    listener = Listener("127.0.0.1:0", on_link=no_link, routes=routes.routes, door=door)
    bound = await listener.start()
    try:
        yield Served(shelf, routes, f"http://127.0.0.1:{bound.port}", bound.port, tickets)
    finally:
        for device in tickets.values():
            routes.down(device)
        await listener.close()
        shelf.close()


async def in_threads(carry: Callable[[Shift], object], work: Shift, threads: int = 1) -> list[BaseException | None]:
    """Carries in so many threads, and gives what each ended with."""
    ended = await asyncio.gather(*(asyncio.to_thread(carry, work) for _ in range(threads)), return_exceptions=True)
    return [each if isinstance(each, BaseException) else None for each in ended]


def failures(errors: Iterable[BaseException | None]) -> list[str]:
    """The words of those that failed; anything else than a failed source is raised."""
    for error in errors:
        if error is not None and not isinstance(error, (SourceFailed, ShardMissing)):
            raise error
    return [str(error) for error in errors if error is not None]
