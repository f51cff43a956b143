"""What may a node be told of its networking, and what does it tell of where it listens?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetOptions:
    """What a node may be told of its networking."""

    listen: str | None = None  # HOST:PORT; None: every address, 7433 or the next free port
    peers: tuple[str, ...] = ()  # HOST:PORT of devices to dial, whoever they turn out to be
    discovery: bool = True
    interfaces: tuple[str, ...] = ()  # names or addresses; none: those that the rule chooses
    lanes: frozenset[str] = frozenset({"webrtc", "http", "origin"})
    rtc: bool = True


@dataclass(frozen=True)
class Listening:
    """Where a node listens, and under which addresses of its interfaces others may dial it."""

    host: str
    port: int
    addresses: tuple[str, ...]
