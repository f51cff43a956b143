"""Does the way to another device lead over an interface whose bytes cost money?

The system is asked which of its own addresses it would send from; nothing is sent for that.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from p2pqueue.net.interfaces import choose, current

KEPT_FOR: Final = 5.0  # seconds that an answer holds: routes change
_PORT: Final = 9  # any will do


class Metered:
    """The ways to other devices, where `interfaces` names those that cost money, by names or addresses."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        self._wanted = interfaces
        self._known: dict[str, tuple[float, bool]] = {}

    def leads(self, base: str | None) -> bool:
        """Says whether the way to a URL does so."""
        host = urlsplit(base).hostname if base else None
        if not self._wanted or host is None:
            return False
        now = time.monotonic()
        until, answer = self._known.get(host, (0.0, False))
        if now >= until:
            answer = self._look(host)
            self._known[host] = (now + KEPT_FOR, answer)
        return answer

    def _look(self, host: str) -> bool:
        own = _own_address(host)
        chosen = choose(current(), self._wanted)
        return own is not None and any(own == address.ip for interface in chosen for address in interface.addresses)


def _own_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that this device would send from to another one; None where no way leads there, or the host is a name."""
    try:
        there = ipaddress.ip_address(host)
        with socket.socket(socket.AF_INET if there.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect((host, _PORT))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
    except (OSError, ValueError):
        return None
