"""Sources that serve a shelf, or do worse, over lanes of every make."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from p2pqueue.errors import BadShard, InputChanged, PayloadUnavailable
from p2pqueue.payload.fetching.source import Lane, Request, ShardMissing, SourceFailed, Work
from p2pqueue.payload.shelf import Shelf


class Peer:
    """A source that serves a shelf, or does worse."""

    def __init__(
        self, shelf: Shelf | None, name: str = "peer", *, fate: Callable[[bytes], bytes] = bytes, last: bool = False, parallel: int = 2,
        lane: Lane = "webrtc", metered: bool = False,
    ) -> None:  # fmt: skip
        self.shelf, self.name, self.fate, self.is_last_resort, self.parallel = shelf, name, fate, last, parallel
        self.lane: Lane = "origin" if last else lane
        self.metered = metered
        self.asked = 0
        self.most = self._now = 0

    async def shard(self, address: bytes, size: int) -> bytes:
        self.asked += 1
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(0)
            return await asyncio.to_thread(self.get, address)
        finally:
            self._now -= 1

    def get(self, address: bytes) -> bytes:
        """The shard, or what becomes of it."""
        if self.shelf is None:
            raise ShardMissing
        try:
            found = self.shelf.shard(address)
        except PayloadUnavailable:
            raise ShardMissing from None
        except InputChanged as error:
            raise ShardMissing(str(error)) from error
        return self.fate(found)


class DeliveringPeer(Peer):
    """The same, into the buffer of the request."""

    async def deliver(self, request: Request) -> None:
        body = await Peer.shard(self, request.address, request.size)
        into = request.room(len(body))
        for start in range(0, len(body), 64 * 1024):
            piece = body[start : start + 64 * 1024]
            into[start : start + len(piece)] = piece
            request.advance(len(piece))
            await asyncio.sleep(0)


class CarryingPeer(Peer):
    """The same, in threads of its own."""

    threads = 2

    def carry(self, work: Work) -> None:
        while (request := work.take()) is not None:
            self.asked += 1
            try:
                body = self.get(request.address)
                request.room(len(body))[:] = body
            except (ShardMissing, SourceFailed, BadShard) as error:
                request.fail(error)
            else:
                request.advance(len(body))
                request.finish()


class SilentPeer(Peer):
    """It takes requests and never answers."""

    async def shard(self, address: bytes, size: int) -> bytes:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError


class SilentCarryingPeer(Peer):
    """It takes requests in a thread and never answers."""

    threads = 1

    def carry(self, work: Work) -> None:
        while (request := work.take()) is not None:
            self.asked += 1
            while request.wanted:
                time.sleep(0.02)
            request.fail(SourceFailed("it is not wanted any more"))
