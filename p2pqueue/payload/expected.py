"""How many bytes will the transfers of this process still write?

Room for them is spoken for when they begin, so that several at once pass neither the quota nor the reserve of the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Claim:
    """The room of one transfer. `left` tells how much of it is not taken yet."""

    def __init__(self, size: int) -> None:
        self.left: Callable[[], int] = lambda: size


class Expected:
    """The claims of all running transfers of a shelf. For any thread."""

    def __init__(self) -> None:
        self.turn = threading.Lock()  # of whoever looks whether there is room and then claims it
        self._claims: list[Claim] = []

    def total(self) -> int:
        """Bytes that are spoken for and not written yet."""
        return sum(max(0, claim.left()) for claim in tuple(self._claims))

    def claim(self, size: int) -> Claim:
        """Speaks for that many bytes, until it is given up."""
        claim = Claim(size)
        self._claims.append(claim)
        return claim

    def give_up(self, claim: Claim) -> None:
        """The transfer has ended: what it wrote counts by itself."""
        self._claims.remove(claim)
