"""How are packets lost on purpose, below DTLS, for stock and tuned transports alike?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any


def lose(path: Any, ice: Any, share: float) -> None:
    """Drops this share of the datagrams that an end sends, STUN aside; the same ones in every run."""
    chance = random.Random(7)
    send, together = path.send, path.send_together

    async def lossy(data: bytes) -> None:
        if chance.random() >= share:
            await send(data)

    def lossy_together(block: memoryview, lengths: Sequence[int]) -> None:
        kept, at = bytearray(), 0
        left = []
        for length in lengths:
            if chance.random() >= share:
                kept += block[at : at + length]
                left.append(length)
            at += length
        together(memoryview(kept), left)

    ice._send, path.send_together = lossy, lossy_together
