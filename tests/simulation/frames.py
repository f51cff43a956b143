"""How does a message that is larger than a frame travel? In parts, put together again within limits. Pure.

A frame is either a whole message or a map {"k": "part", "m": hash of the message, "i": index, "n": how many,
"b": bytes}. Parts may come twice or in any order, of at most a few messages at once; the hash keeps parts of an
earlier session from mixing in.
"""

from __future__ import annotations

from hashlib import blake2b

import msgpack

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage

PART_BYTES = wire.FRAME_LIMIT - 64  # bytes of a message in one part, the frame's map beside them
MAX_PARTS = -(-wire.MESSAGE_LIMIT // PART_BYTES)
_PART = b"\xa1k\xa4part"  # behind the header of its map
MAX_OPEN = 4  # messages that may be incomplete at once; the oldest is given up


class Frames:
    """Splits messages into frames, and joins frames to messages; one for each session."""

    def __init__(self) -> None:
        self._open: dict[bytes, dict[int, bytes]] = {}

    def split(self, data: bytes) -> list[bytes]:
        """The frames that carry a message."""
        if len(data) <= wire.FRAME_LIMIT:
            return [data]
        name = _name(data)
        parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
        return [
            msgpack.packb({"k": "part", "m": name, "i": index, "n": len(parts), "b": part}, use_bin_type=True)
            for index, part in enumerate(parts)
        ]

    def join(self, frame: bytes) -> bytes | None:
        """The message that this frame completes; None while parts are missing.

        Raises `MalformedMessage` for a frame beyond its limits.
        """
        if len(frame) > wire.FRAME_LIMIT:
            raise MalformedMessage(f"a frame of {len(frame)} bytes")
        if frame[1:8] != _PART:
            return frame
        name, index, count, part = _part(wire.unpack(frame))
        parts = self._open.setdefault(name, {})
        parts[index] = part
        if len(parts) == count:
            del self._open[name]
            message = b"".join(parts[position] for position in sorted(parts))
            if _name(message) != name:
                raise MalformedMessage("parts that don't fit together")
            return message
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        return None


def _name(message: bytes) -> bytes:
    return blake2b(message, digest_size=12).digest()


def _part(fields: object) -> tuple[bytes, int, int, bytes]:
    if not isinstance(fields, dict):
        raise MalformedMessage("a part that is no map")
    name, index, count, part = (fields.get(field) for field in ("m", "i", "n", "b"))
    if not isinstance(name, bytes) or type(index) is not int or type(count) is not int or not isinstance(part, bytes):
        raise MalformedMessage("a part without its place")
    if not 2 <= count <= MAX_PARTS or not 0 <= index < count:
        raise MalformedMessage("a part beyond its message")
    return name, index, count, part
