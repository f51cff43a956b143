"""How does a node use a bucket as its origin, with nothing of ours in front of it?

The same names as behind an origin, so that one may be put before it later. Nothing there checks bodies against their
addresses or counts what is used: receivers check, and a lifecycle rule of the bucket removes what is old.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from p2pqueue.payload.fetching.source import Lane, Request, ShardMissing, SourceFailed
from p2pqueue.payload.origins.objects import MAIL, MAIL_NAME, MOST_LISTED, SHARDS, Listed, ObjectStore, StoreFailed, StoreFull

PARALLEL: Final = 8  # shards under way: a bucket answers late, and gives many at once


@dataclass(frozen=True)
class BucketClient:
    """A bucket, as a source of shards and a place to put them, and mail."""

    store: ObjectStore
    on_bytes: Callable[[int], object] = lambda size: None
    lane: Lane = "origin"
    parallel: int = PARALLEL
    is_last_resort: bool = True
    is_metered: Callable[[], bool] = lambda: False

    @property
    def name(self) -> str:
        """Where it is."""
        return self.store.shown

    @property
    def metered(self) -> bool:
        """Says whether bytes cost money on the way there."""
        return self.is_metered()

    async def shard(self, address: bytes, size: int) -> bytes:
        """A shard of at most `size` bytes. Raises `ShardMissing` and `SourceFailed`."""
        async with _as_source():
            body = await self.store.get(SHARDS + address.hex(), limit=size)
        if body is None:
            raise ShardMissing
        self.on_bytes(len(body))
        return body

    async def deliver(self, request: Request) -> None:
        """Brings what a request asks for, where the bucket's library put it. Raises `ShardMissing` and `SourceFailed`."""
        async with _as_source():
            body = await self.store.view(SHARDS + request.address.hex(), limit=request.size)
        if body is None:
            raise ShardMissing
        request.put(body)
        self.on_bytes(len(body))

    async def has(self, address: bytes) -> bool:
        """Says whether the bucket has a shard."""
        async with _as_source():
            return await self.store.size(SHARDS + address.hex()) is not None

    async def put(self, address: bytes, body: bytes | memoryview) -> None:
        """Puts a shard there."""
        async with _as_source():
            await self.store.put(SHARDS + address.hex(), body)

    async def delete(self, address: bytes) -> None:
        """Removes a shard there, if it has it."""
        async with _as_source():
            await self.store.delete(SHARDS + address.hex())

    async def list_mail(self, space: str) -> list[Listed]:
        """What lies in the mailboxes of a space."""
        async with _as_source():
            found = await self.store.listed(f"{MAIL}{space}/", most=MOST_LISTED)
        named = [replace(each, name=each.name.removeprefix(MAIL)) for each in found]
        return [each for each in named if MAIL_NAME.fullmatch(each.name)]

    async def get_mail(self, name: str, *, limit: int) -> bytes | None:
        """One object of a mailbox."""
        async with _as_source():
            return await self.store.get(MAIL + name, limit=limit)

    async def put_mail(self, name: str, body: bytes) -> None:
        """Puts an object into a mailbox."""
        async with _as_source():
            await self.store.put(MAIL + name, body)

    async def delete_mail(self, name: str) -> None:
        """Removes an object from a mailbox."""
        async with _as_source():
            await self.store.delete(MAIL + name)


@asynccontextmanager
async def _as_source() -> AsyncIterator[None]:
    try:
        yield
    except (StoreFailed, StoreFull) as error:
        raise SourceFailed(str(error)) from error
