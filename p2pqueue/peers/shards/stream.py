"""How do shards go over one connection of the listener, one after the other?

The side that fetches opens it by HTTP, `GET /shards` with `Upgrade: p2pqueue-shards/1` and its ticket, and is answered
`101`. From then on it sends asks, as many ahead as it likes, and gets an answer to each in their order::

    ask      address (32 bytes), size at most (4)
    answer   kind (1), length (4), and so many bytes: the shard, or words

That saves what HTTP costs around each shard: parsing, and the way into the event loop and back on both sides. Pure.
"""

from __future__ import annotations

import struct
from typing import Final

from p2pqueue.payload.format import ADDRESS_SIZE

PROTOCOL: Final = "p2pqueue-shards/1"
PATH: Final = "/shards"

ASK: Final = struct.Struct(f">{ADDRESS_SIZE}sI")
ANSWER: Final = struct.Struct(">BI")
SHARD, MISSING, FAILED = 1, 2, 3
WORDS: Final = 1000  # bytes of words at most
QUIET_AFTER: Final = 15.0  # seconds without an ask after which the side that serves closes it
REUSED_WITHIN: Final = 10.0  # seconds in which the side that fetches uses it again: less, so that it isn't closed under its hands


def answer_head(kind: int, size: int) -> bytes:
    """What precedes the bytes of an answer."""
    return ANSWER.pack(kind, size)


def words_of(text: str) -> bytes:
    """Words as they are sent."""
    return text.encode()[:WORDS]


def read_words(data: bytes | memoryview) -> str:
    """Words that were sent."""
    return bytes(data[:WORDS]).decode(errors="replace").strip()
