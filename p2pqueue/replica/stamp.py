"""Which of two writes of one register wins?

The greater stamp: the tuple (generation, rank, claim, hlc, author) compares in merge order, so that one
row-value comparison decides, in Python and in SQL alike. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from p2pqueue.clock import LATEST_STAMP

RETRY_BITS = 16  # generation = life << 16 | retry

_TYPES = (int, int, int, int, bytes)  # exactly: True compares as 1, and would be stored as something else


class Stamp(NamedTuple):
    """A stamp. `hlc` is negated where the earlier write shall win; `author` is 16 bytes."""

    generation: int
    rank: int
    claim: int
    hlc: int
    author: bytes

    @property
    def life(self) -> int:
        """How many times the row had been deleted and made again before this write."""
        return self.generation >> RETRY_BITS


def generation(life: int, retry: int = 0) -> int:
    """The generation of a life and a count of retries."""
    return life << RETRY_BITS | retry


def is_wellformed(stamp: Stamp) -> bool:
    """Says whether a peer's stamp has the types and lies within the ranges that stamps may have."""
    return (
        tuple(map(type, stamp)) == _TYPES
        and 0 <= stamp.generation < 1 << 48
        and 0 <= stamp.rank <= 3
        and 0 <= stamp.claim < 1 << 48
        and 0 < abs(stamp.hlc) <= LATEST_STAMP
        and len(stamp.author) == 16
    )
