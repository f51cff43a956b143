"""Which chunks of a file are the same, so that each is fetched once and written wherever it belongs? Pure.

A disk image full of zeros is one chunk, thousands of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from p2pqueue.payload.manifest import Chunk

MOST: Final = 200_000  # chunks of a file, beyond which nothing is compared: it would take more memory than it is worth


class Content(Protocol):
    """What is fetched: chunks by their numbers."""

    @property
    def algorithm(self) -> int: ...  # noqa: D102
    @property
    def chunk_count(self) -> int: ...  # noqa: D102
    @property
    def chunk_size(self) -> int: ...  # noqa: D102
    def chunk(self, number: int) -> Chunk: ...  # noqa: D102


def twins_of(content: Content, here: bytes) -> tuple[Mapping[int, Sequence[int]], bytes]:
    """By the first chunk that is not here, the others like it that are not; and `here` with those others left out of the fetch."""
    if content.chunk_count > MOST:
        return {}, here
    firsts: dict[bytes, int] = {}
    twins: dict[int, list[int]] = {}
    left_out = bytearray(here)
    for number in range(content.chunk_count):
        if left_out[number >> 3] & (1 << (number & 7)):
            continue
        first = firsts.setdefault(content.chunk(number).address, number)
        if first != number:
            twins.setdefault(first, []).append(number)
            left_out[number >> 3] |= 1 << (number & 7)
    return twins, bytes(left_out)


def verified_of(content: Content, here: bytes) -> int:
    """How many bytes of the content are here."""
    if not any(here):
        return 0
    return sum(content.chunk(number).size for number in range(content.chunk_count) if here[number >> 3] & (1 << (number & 7)))
