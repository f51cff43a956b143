"""How do the requests of replication sessions reach the disk without holding up the event loop?

What only reads goes to connections that only read, in a few threads; what writes goes through the store's one hop,
in turn with the writes of this device, and never for long at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from p2pqueue.errors import WorldError
from p2pqueue.peers.signatures import Signatures
from p2pqueue.replica.signatures.signing import Keyring
from p2pqueue.replica.store import Store
from p2pqueue.replica.syncing.effects import Answer, DropEnded, Merge, MoveHeads, Observe, Recheck, Request
from p2pqueue.replica.syncing.messages import Message, Refusal
from p2pqueue.replica.syncing.peering import VERIFY_BATCH, Peering, Place
from p2pqueue.replica.wire.codec import decode, encode, is_large

T = TypeVar("T")
THREADS = 3  # that read for all peers together: a large page or message of one doesn't keep the others waiting
LARGE = 2 * 1024  # bytes of a message from which on reading it is worth a thread's hop
_PENDING = f"SELECT count(*) FROM (SELECT 1 FROM changes INDEXED BY changes_unverified WHERE verified = 0 LIMIT {VERIFY_BATCH + 1})"


class Disk:
    """Carries out what sessions ask for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keyring = Keyring(store.replica.signer)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="p2pqueue-sync")

    async def answer(self, peering: Peering, request: Request) -> Answer:
        """Gives what a session asked for. Raises what the disk says."""
        match request:
            case MoveHeads():
                return await self._move_heads(peering, request)
            case Observe():
                observed = await self._in_thread(lambda: peering.observe(request))
                return observed or await self._store.call(lambda _: peering.answer(request))
            case Merge() | Recheck() | DropEnded():
                return await self._store.call(lambda _: peering.answer(request))
            case _:
                return await self._in_thread(lambda: peering.answer(request))

    async def read(self, data: bytes) -> Message | None:
        """What a peer's bytes say, None if that is nothing known here; signatures in larger messages are checked. Raises as `decode`."""
        return decode(data) if len(data) < LARGE else await self._in_thread(lambda: self._read_large(data))

    async def pack(self, message: Message, *, deflate: bool) -> bytes:
        """The bytes of a message; of one with many writes they are made in a thread."""
        return await self._in_thread(lambda: encode(message, deflate=deflate)) if is_large(message) else encode(message)

    def _read_large(self, data: bytes) -> Message | None:
        return decode(data, holds=Signatures(self._store.replica, self._keyring).all_hold)

    async def close(self) -> None:
        """Waits for the threads to end; what they read is short."""
        await asyncio.shield(asyncio.to_thread(self._threads.shutdown))

    async def _move_heads(self, peering: Peering, request: MoveHeads) -> Answer:
        """Checks the signatures that wait page by page, so that others write in between, before the heads move."""
        refused: list[Refusal] = []
        place: Place | None = (b"", 0) if await self._in_thread(lambda: self._are_many_pending()) else None
        while place is not None:
            page, place = await self._store.call(lambda _, after=place: peering.check(after))  # type: ignore[misc]
            refused += page
        answer = await self._store.call(lambda _: peering.answer(request))
        if answer is None:
            return None
        assert isinstance(answer, tuple)
        heads = request.heads
        return (*(each for each in refused if each.author in heads and each.seq <= heads[each.author].seq), *answer)

    def _are_many_pending(self) -> bool:
        (number,) = self._store.replica.read(lambda connection: connection.execute(_PENDING).fetchone())
        return int(number) > VERIFY_BATCH

    async def _in_thread(self, fn: Callable[[], T]) -> T:
        if self._store.is_closed:
            raise WorldError(f"{self._store.path} has been closed")
        done = await asyncio.get_running_loop().run_in_executor(self._threads, fn)
        await self._store.settle()  # nothing goes out before it is durable
        return done
