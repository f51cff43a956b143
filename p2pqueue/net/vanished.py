"""Has a device died, or is it only out of reach?

One whose connection ended without a word, and whose machine then says that nobody listens at the address where it did,
has died: a cut cable gives silence, a goodbye gives its reason. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from p2pqueue.net.addresses import Endpoint


class Vanished:
    """Devices that went without a word, and where they listened until then; `on_dead` is told who has died, once."""

    def __init__(self, on_dead: Callable[[str], object] | None) -> None:
        self._on_dead = on_dead
        self._at: dict[Endpoint, str] = {}

    def went(self, device: str, address: Endpoint) -> None:
        """A device's connection ended without a word; port 0 stands for one that didn't listen."""
        if address[1]:
            self._at[address] = device

    def is_back(self, device: str) -> None:
        """It is linked again."""
        self._at = {address: each for address, each in self._at.items() if each != device}

    def refused(self, address: Endpoint) -> None:
        """Nobody listens at that address."""
        dead = self._at.pop(address, None)
        if dead is not None and self._on_dead is not None:
            self._on_dead(dead)
