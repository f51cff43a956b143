"""How does a shard that came become its chunk, checked, without being copied about?"""

from __future__ import annotations

import threading

from p2pqueue.errors import BadShard, MalformedMessage
from p2pqueue.payload.manifest import Chunk
from p2pqueue.payload.memory import pages
from p2pqueue.payload.seal import address_of, open_into


class Opener:
    """Opens shards that one algorithm sealed. For any thread."""

    def __init__(self, algorithm: int) -> None:
        self._algorithm = algorithm
        self._kept = threading.local()

    def open(self, chunk: Chunk, shard: memoryview | bytes) -> memoryview:
        """The plaintext of a chunk; it holds until this thread opens the next one.

        Raises `BadShard` for another shard than was asked for, `MalformedMessage` where the manifest itself is wrong.
        """
        if address_of(shard) != chunk.address:
            raise BadShard(f"what came for shard {chunk.address.hex()} is another one")
        plain = self._room(shard, chunk.plain_size)
        try:
            opened = open_into(self._algorithm, chunk.key, shard, plain)
        except BadShard as error:
            raise MalformedMessage(str(error)) from error
        if opened != chunk.plain_size:
            raise MalformedMessage(f"shard {chunk.address.hex()} has another length than its manifest says")
        return plain

    def _room(self, shard: memoryview | bytes, size: int) -> memoryview:
        """Where a shard is opened: in its own place, if that may be written, which is still in the processor's cache."""
        if isinstance(shard, memoryview) and not shard.readonly and len(shard) >= size:
            return shard[:size]
        kept: memoryview | None = getattr(self._kept, "buffer", None)
        if kept is None or len(kept) < size:
            kept = self._kept.buffer = pages(size)
        return kept[:size]
