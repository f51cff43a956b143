"""What is the short text that stands for a file, and what does it hold?

A *capability* is the address and the key of the first shard of a manifest, and the length of its plaintext. Whoever
holds it can read the file; whoever doesn't can't. As text it is `p2pq1-` and 112 letters and digits in lower case,
the last of which check the others, so that a mistyped one is told from one that nobody has. Pure.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3

from p2pqueue.errors import MalformedMessage
from p2pqueue.payload.format import ADDRESS_SIZE, KEY_SIZE, PREFIX, ROOT_LIMIT

PACKED_SIZE: Final = 1 + ADDRESS_SIZE + KEY_SIZE + 3

_CHECK_SIZE: Final = 2


@dataclass(frozen=True)
class Capability:
    """The right to read one file or folder. Its shown form leaves the key out."""

    algorithm: int
    address: bytes
    key: bytes = field(repr=False)
    size: int  # of the first shard's plaintext, in bytes

    def pack(self) -> bytes:
        """The 68 bytes that stand for it inside another manifest."""
        return bytes([self.algorithm]) + self.address + self.key + self.size.to_bytes(3, "big")

    @property
    def text(self) -> str:
        """The text that people and job rows carry."""
        packed = self.pack()
        return PREFIX + base64.b32encode(packed + _check(packed)).decode("ascii").lower()


def unpack_capability(packed: bytes) -> Capability:
    """The capability of these 68 bytes. Raises `MalformedMessage`."""
    if len(packed) != PACKED_SIZE:
        raise MalformedMessage(f"A manifest's address, key and size are {PACKED_SIZE} bytes, not {len(packed)}")
    address, key = packed[1 : 1 + ADDRESS_SIZE], packed[1 + ADDRESS_SIZE : 1 + ADDRESS_SIZE + KEY_SIZE]
    size = int.from_bytes(packed[-3:], "big")
    if not 0 < size <= ROOT_LIMIT:
        raise MalformedMessage(f"A manifest claims a first part of {size} bytes; at most {ROOT_LIMIT} are accepted")
    return Capability(packed[0], address, key, size)


def parse_capability(text: str) -> Capability:
    """The capability that a text stands for. Raises `MalformedMessage`, without repeating the text."""
    cleaned = text.strip().lower()
    if not cleaned.startswith(PREFIX):
        raise MalformedMessage(f"This is no manifest: one begins with {PREFIX}")
    try:
        decoded = base64.b32decode(cleaned[len(PREFIX) :].upper().encode("ascii"))
    except (binascii.Error, UnicodeEncodeError):
        decoded = b""
    packed, check = decoded[:-_CHECK_SIZE], decoded[-_CHECK_SIZE:]
    if len(decoded) != PACKED_SIZE + _CHECK_SIZE or check != _check(packed):
        raise MalformedMessage("This manifest was cut short or mistyped; copy the whole of it again")
    return unpack_capability(packed)


def _check(packed: bytes) -> bytes:
    return blake3(b"p2pq1 text" + packed).digest(_CHECK_SIZE)
