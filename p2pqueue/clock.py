"""What time does a replica stamp its writes with?

A hybrid logical clock (Kulkarni and others, "Logical Physical Clocks", 2014): 48 bits of wall milliseconds
and a 16-bit counter that carries into them, in one integer. Pure: the wall time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable

COUNTER_BITS = 16
LATEST_READ_MS = 4_102_444_800_000  # 2100-01-01: wall time beyond is never read into the clock
LATEST_STAMP = 7_258_118_400_000 << COUNTER_BITS  # 2200-01-01: a stamp beyond is malformed

Wall = Callable[[], int]  # gives milliseconds since 1970, UTC


def tick(last: int, wall_ms: int) -> int:
    """The next value of the clock after `last`: above it, and at the wall time where that is later."""
    wall = wall_ms << COUNTER_BITS if 0 <= wall_ms <= LATEST_READ_MS else 0
    return max(last + 1, wall)


def is_wellformed(hlc: int) -> bool:
    """Says whether a clock value of a peer lies in the range that a stamp may have."""
    return 0 < hlc <= LATEST_STAMP


def wall_ms(hlc: int) -> int:
    """The wall time, in milliseconds since 1970 UTC, that a clock value (or a negated one) carries."""
    return abs(hlc) >> COUNTER_BITS
