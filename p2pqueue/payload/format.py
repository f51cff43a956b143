"""Which numbers make up the format of shards and manifests? They never change within version 1. Pure."""

from __future__ import annotations

from typing import Final

VERSION: Final = 1
PREFIX: Final = "p2pq1-"  # of a capability as text

AEGIS_256: Final = 1
XCHACHA20_POLY1305: Final = 2
TAG_SIZES: Final = {AEGIS_256: 32, XCHACHA20_POLY1305: 16}  # bytes that a shard is longer than its chunk
KEY_SIZE: Final = 32
ADDRESS_SIZE: Final = 32
REFERENCE_SIZE: Final = ADDRESS_SIZE + KEY_SIZE

MIB: Final = 1024**2
LARGEST_CHUNK: Final = 8 * MIB
LARGEST_SHARD: Final = LARGEST_CHUNK + max(TAG_SIZES.values())
LARGEST_FILE: Final = 16 * 1024**4  # 16 TiB: two million chunks
CHUNK_SIZES: Final = ((1024 * MIB, MIB), (2048 * MIB, 2 * MIB), (4096 * MIB, 4 * MIB), (LARGEST_FILE, LARGEST_CHUNK))

ROOT_LIMIT: Final = 256 * 1024  # bytes of plaintext in a manifest's first shard: small, since unpacked it may grow 64-fold
PART_SIZE: Final = ROOT_LIMIT // REFERENCE_SIZE * REFERENCE_SIZE  # bytes of references in one further shard
INLINE_REFERENCES: Final = ROOT_LIMIT - 16 * 1024  # bytes of references that fit into the first, beside the longest names
