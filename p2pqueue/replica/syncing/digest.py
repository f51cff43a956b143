"""Do two replicas with equal heads hold the same rows? Compared by buckets of keys. Pure.

A bucket's digest is the sum of the hashes of its entries, so that it can be taken in any order. An entry is a
register of a row that has not ended: its stamp, and the hash of its bytes as they were received.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgpack

from p2pqueue.replica.spans import Spans
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.messages import BUCKETS, HASH_BYTES

_MODULUS = 1 << (8 * HASH_BYTES)


def bucket_of(table: str, key: str) -> int:
    """The bucket that a row falls into."""
    return blake2b(f"{table}\0{key}".encode("utf-8", "surrogatepass"), digest_size=1).digest()[0] % BUCKETS


def content_hash(content: bytes) -> bytes:
    """The hash of a write's bytes: of its body as received, or of its values as they would be packed."""
    return blake2b(content, digest_size=16).digest()


def entry_hash(table: str, key: str, register: str, stamp: Stamp, content: bytes) -> int:
    """The share of one register in the digest of its bucket; `content` is its `content_hash`."""
    packed: bytes = msgpack.packb([table, key, register, list(stamp), content], use_bin_type=True)
    return int.from_bytes(blake2b(packed, digest_size=HASH_BYTES).digest(), "big")


def mark_of(table: str, key: str, register: str, stamp: Stamp) -> int:
    """Tells two writes under one author and number apart, nearly always."""
    return entry_hash(table, key, register, stamp, b"") & 0xFFFF_FFFF


class Digests:
    """The digests of one table's buckets, while they are being taken."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._sums = [0] * BUCKETS

    def add(self, key: str, register: str, stamp: Stamp, content: bytes) -> None:
        """Counts one register in; `content` is its bytes."""
        bucket = bucket_of(self._table, key)
        self._sums[bucket] = (self._sums[bucket] + entry_hash(self._table, key, register, stamp, content_hash(content))) % _MODULUS

    def packed(self) -> bytes:
        """All of them, in order."""
        return b"".join(value.to_bytes(HASH_BYTES, "big") for value in self._sums)


def held_hash(held: Mapping[bytes, Spans]) -> bytes:
    """A hash of the numbers held above heads."""
    entries = [[author, [list(span) for span in spans]] for author, spans in sorted(held.items()) if spans]
    packed: bytes = msgpack.packb(entries, use_bin_type=True)
    return blake2b(packed, digest_size=HASH_BYTES).digest()


def differing(ours: bytes, theirs: bytes) -> list[int]:
    """The buckets whose digests differ."""
    return [
        bucket
        for bucket in range(BUCKETS)
        if ours[bucket * HASH_BYTES : (bucket + 1) * HASH_BYTES] != theirs[bucket * HASH_BYTES : (bucket + 1) * HASH_BYTES]
    ]
