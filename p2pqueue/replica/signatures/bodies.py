"""Which bytes does a signed write stand for?

The canonical MessagePack of (table, key, register, stamp, number, values). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.write import Write

BODY_LIMIT = 1 << 20  # bytes
_BUFFER = 1024  # bytes a packer starts with


def body_of(table: str, key: str, register: str, stamp: tuple[int, int, int, int, bytes], seq: int, values: Sequence[Any]) -> bytes:
    """The bytes that are signed. Values are scalars, so that plain packing is canonical already."""
    packed: bytes = new_packer().pack((table, key, register, stamp, seq, values))
    return packed


def new_packer() -> msgpack.Packer:
    """Packs signed bodies; for one thread at a time."""
    return msgpack.Packer(buf_size=_BUFFER)


def write_from_body(body: bytes, signature: bytes) -> Write:
    """The write that a signed body stands for; its signature is not checked here. Raises `MalformedMessage`."""
    match wire.unpack(body, limit=BODY_LIMIT):
        case [str(table), str(key), str(register), [generation, rank, claim, hlc, bytes(author)], int(seq), [*values]]:
            stamp = Stamp(generation, rank, claim, hlc, author)
            return Write(table, key, register, stamp, seq, tuple(values), body, signature)
        case _:
            raise MalformedMessage("a signed body is [table, key, register, stamp, number, values]")
