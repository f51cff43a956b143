"""How does a message that is larger than a frame travel? In parts, put together again within limits. Pure.

A frame is either a whole message or a map {"k": "part", "m": number of the message, "i": index, "n": how
many, "b": bytes}. Parts may come twice or in any order; of at most a few messages at once.
"""

from __future__ import annotations

import msgpack

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage

PART_BYTES = wire.FRAME_LIMIT - 64  # bytes of a message in one part, the frame's map beside them
MAX_PARTS = -(-wire.MESSAGE_LIMIT // PART_BYTES)
MAX_OPEN = 4  # messages that may be incomplete at once; the oldest is given up


class Frames:
    """Splits messages into frames, and joins frames to messages; one for each session."""

    def __init__(self) -> None:
        self._sent = 0
        self._open: dict[int, dict[int, bytes]] = {}

    def split(self, data: bytes) -> list[bytes]:
        """The frames that carry a message."""
        if len(data) <= wire.FRAME_LIMIT:
            return [data]
        self._sent += 1
        parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
        return [
            msgpack.packb({"k": "part", "m": self._sent, "i": index, "n": len(parts), "b": part}, use_bin_type=True)
            for index, part in enumerate(parts)
        ]

    def join(self, frame: bytes) -> bytes | None:
        """The message that this frame completes; None while parts are missing.

        Raises `MalformedMessage` for a frame beyond its limits.
        """
        if len(frame) > wire.FRAME_LIMIT:
            raise MalformedMessage(f"a frame of {len(frame)} bytes")
        if b"\xa4part" not in frame[:16]:
            return frame
        number, index, count, part = _part(wire.unpack(frame))
        parts = self._open.setdefault(number, {})
        parts[index] = part
        if len(parts) == count:
            del self._open[number]
            return b"".join(parts[position] for position in sorted(parts))
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        return None


def _part(fields: object) -> tuple[int, int, int, bytes]:
    if not isinstance(fields, dict):
        raise MalformedMessage("a part that is no map")
    number, index, count, part = (fields.get(name) for name in ("m", "i", "n", "b"))
    if type(number) is not int or type(index) is not int or type(count) is not int or not isinstance(part, bytes):
        raise MalformedMessage("a part without its place")
    if not 2 <= count <= MAX_PARTS or not 0 <= index < count:
        raise MalformedMessage("a part beyond its message")
    return number, index, count, part
