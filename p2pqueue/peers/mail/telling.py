"""What does a device tell in its index of how to meet it, and when does it tell that anew?

Where it listens, whether it builds direct connections, and a random id of this start, which an offer to it has to name. An
older version ignores all of it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.net.addresses import CANDIDATES_LIMIT, Endpoint
from p2pqueue.peers.mail.format import ABOUT_LIMIT
from p2pqueue.replica.wire.fields import read_bytes, read_list, read_number

VERSION: Final = 1
START_SIZE: Final = 16  # bytes
CHANGE_EVERY: Final = 120.0  # seconds between two that tell of other addresses
REFRESH_EVERY: Final = 3 * 3600.0  # seconds after which the same is told again
TOLD_FOR: Final = 7 * 3600.0  # seconds for which it is believed: two refreshments, and some slack


@dataclass(frozen=True)
class Told:
    """How a device is met. `at` is in milliseconds UTC, by its clock."""

    at: int
    start: bytes
    endpoints: tuple[Endpoint, ...]
    direct: bool  # it builds direct connections

    def pack(self) -> bytes:
        """The bytes in the index."""
        ends = [[ipaddress.ip_address(host).packed, port] for host, port in self.endpoints]
        return wire.pack({"v": VERSION, "t": self.at, "s": self.start, "e": ends, "d": self.direct})


def read_told(data: bytes) -> Told | None:
    """What a device tells; None where it tells nothing, or in a form that this version doesn't know."""
    try:
        fields: Any = wire.unpack(data, limit=ABOUT_LIMIT, nesting=3)
        if not isinstance(fields, dict) or fields.get("v") != VERSION:
            return None
        ends = tuple(_endpoint(each) for each in read_list(fields["e"], CANDIDATES_LIMIT))
        return Told(read_number(fields["t"]), read_bytes(fields["s"], START_SIZE), ends, fields["d"] is True)
    except (MalformedMessage, KeyError, TypeError, ValueError):
        return None


def _endpoint(raw: Any) -> Endpoint:
    address, port = raw
    if not isinstance(address, bytes) or type(port) is not int or not 0 < port < 65_536:
        raise ValueError("no address")
    return str(ipaddress.ip_address(address)), port


class Telling:
    """What this device tells, from one time to the next. `start` is random."""

    def __init__(self, start: bytes) -> None:
        self.start = start
        self._told: Told | None = None
        self._told_at = 0.0

    def now(self, endpoints: Sequence[Endpoint], direct: bool, *, now: float, wall: int) -> bytes:
        """The bytes for the index; `now` in seconds, monotonic, `wall` in milliseconds UTC."""
        told = self._told
        if told is None or self._is_due(told, tuple(endpoints), direct, now - self._told_at):
            told = self._told = Told(wall, self.start, tuple(endpoints)[:CANDIDATES_LIMIT], direct)
            self._told_at = now
        return told.pack()

    def _is_due(self, told: Told, endpoints: tuple[Endpoint, ...], direct: bool, age: float) -> bool:
        changed = (told.endpoints, told.direct) != (endpoints[:CANDIDATES_LIMIT], direct)
        return age >= REFRESH_EVERY or (changed and (age >= CHANGE_EVERY or not told.endpoints))
