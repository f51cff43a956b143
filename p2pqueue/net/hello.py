"""What do two devices say first, whatever versions they run?

The first frame of each side of `/link`, in clear. Its form is frozen for ever, so that a device that is refused can be
named in words: magic, lowest and highest protocol version (two bytes each), the length of the product version and
its text. What follows is ignored: room for later versions. Pure.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from p2pqueue.errors import LinkRefused, MalformedMessage

PROTOCOLS = (1, 1)  # the lowest and the highest that this version speaks
MAGIC = b"p2pqueue\0"
HELLO_LIMIT = 512  # bytes
VERSION_LIMIT = 64  # bytes of the product version's text

_FIXED = struct.Struct(">9sHHB")


@dataclass(frozen=True)
class Hello:
    """Which protocol versions a device speaks, and which product it runs."""

    lowest: int
    highest: int
    product: str

    def pack(self) -> bytes:
        """The bytes of the first frame."""
        text = self.product.encode()[:VERSION_LIMIT]
        return _FIXED.pack(MAGIC, self.lowest, self.highest, len(text)) + text

    @property
    def range(self) -> str:
        """The protocol versions as they are shown: `1` or `1–2`."""
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}–{self.highest}"


def read_hello(frame: bytes) -> Hello:
    """What the other side's first frame says. Raises `MalformedMessage` where it is none of ours."""
    if not _FIXED.size <= len(frame) <= HELLO_LIMIT or not frame.startswith(MAGIC):
        raise MalformedMessage("the first frame is no hello of p2pqueue")
    _, lowest, highest, length = _FIXED.unpack_from(frame)
    text = frame[_FIXED.size : _FIXED.size + length]
    if lowest > highest or length > VERSION_LIMIT or len(text) < length:
        raise MalformedMessage("the hello contradicts itself")
    shown = "".join(character if character.isprintable() else "?" for character in text.decode(errors="replace"))
    return Hello(lowest, highest, shown)


def agree(mine: Hello, theirs: Hello) -> int:
    """The protocol version to go on with: the highest that both speak. Raises `LinkRefused` in words."""
    version = min(mine.highest, theirs.highest)
    if version >= max(mine.lowest, theirs.lowest):
        return version
    older = "that device" if theirs.highest < mine.lowest else "this device"
    raise LinkRefused(
        f"that device speaks protocol {theirs.range} (p2pqueue {theirs.product}), this one {mine.range} "
        f"(p2pqueue {mine.product}): upgrade {older}"
    )
