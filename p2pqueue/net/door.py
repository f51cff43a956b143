"""Who may come in before it is known who it is?

A stranger costs little: few unknown connections at a time, fewer from one address, a few seconds for each, and an
address that fails again and again has to wait. Connections that are refused are cut before HTTP is spoken.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

MOST_UNKNOWN = 64  # connections at a time
MOST_FROM_ONE = 16  # of them from one address: a machine may run several nodes
REQUEST_WAIT = 5.0  # seconds from a connection to its whole first request
IDLE_WAIT = 60.0  # seconds from the end of a known device's request to the whole next one on the same connection
FAILURES = 20  # that an address may make at once
FORGIVEN_AFTER = 1.0  # seconds that pay for one of them
_ADDRESSES_LIMIT = 1024  # remembered at a time


class Door:
    """Counts and times the connections that nobody has vouched for yet."""

    def __init__(self, *, request_wait: float = REQUEST_WAIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._request_wait = request_wait
        self._clock = clock
        self._unknown: dict[Any, str] = {}  # transport → address
        self._deadlines: dict[Any, asyncio.TimerHandle] = {}
        self._failed: dict[str, tuple[float, float]] = {}  # address → (failures not yet forgiven, when that was so)

    def knock(self, transport: Any) -> bool:
        """Says whether a fresh connection may go on; it has to make its request in time."""
        address = address_of(transport)[0]
        self._sweep()
        if not (self._has_room(address) and self._failures(address) < FAILURES):
            return False
        self._unknown[transport] = address
        self._expect(transport, self._request_wait)
        return True

    def arrived(self, transport: Any) -> None:
        """A whole request has come on this connection."""
        if (deadline := self._deadlines.pop(transport, None)) is not None:
            deadline.cancel()

    def vouched(self, transport: Any) -> None:
        """It is known who is at the other end."""
        self.arrived(transport)
        self._unknown.pop(transport, None)

    def answered(self, transport: Any) -> None:
        """A request has been answered, and another may come on the same connection."""
        if transport is not None and not transport.is_closing():
            self._expect(transport, self._request_wait if transport in self._unknown else IDLE_WAIT)

    def failed(self, transport: Any, *, weight: float = 1.0) -> None:
        """Whoever is there could not be linked. That is counted for its address."""
        self.vouched(transport)
        address = address_of(transport)[0]
        if len(self._failed) >= _ADDRESSES_LIMIT:
            self._failed = {known: entry for known in self._failed if (entry := (self._failures(known), self._clock()))[0] > 0}
        if len(self._failed) < _ADDRESSES_LIMIT or address in self._failed:
            self._failed[address] = (min(self._failures(address) + weight, FAILURES), self._clock())

    def close(self) -> None:
        """Cuts whoever is still unknown."""
        for transport in list(self._unknown):
            self.vouched(transport)
            transport.abort()

    def _has_room(self, address: str) -> bool:
        return len(self._unknown) < MOST_UNKNOWN and Counter(self._unknown.values())[address] < MOST_FROM_ONE

    def _failures(self, address: str) -> float:
        count, then = self._failed.get(address, (0.0, 0.0))
        return max(0.0, count - (self._clock() - then) / FORGIVEN_AFTER)

    def _expect(self, transport: Any, within: float) -> None:
        self.arrived(transport)
        self._deadlines[transport] = asyncio.get_running_loop().call_later(within, self._late, transport)

    def _late(self, transport: Any) -> None:
        self._deadlines.pop(transport, None)
        self._unknown.pop(transport, None)
        transport.abort()

    def _sweep(self) -> None:
        for transport in [transport for transport in self._unknown if transport.is_closing()]:
            self.vouched(transport)


class Knocking(asyncio.Protocol):
    """The first protocol of an accepted connection: hands it to HTTP if the door lets it in."""

    def __init__(self, door: Door, make: Callable[[], asyncio.Protocol]) -> None:
        self._door = door
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Decides, and is never heard of again."""
        assert isinstance(transport, asyncio.Transport)
        if not self._door.knock(transport):
            transport.abort()
            return
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


def address_of(transport: Any) -> tuple[str, int]:
    """Who is at the other end."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else ("", 0)
