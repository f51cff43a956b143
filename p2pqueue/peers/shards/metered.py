"""Does the way to another device, to an origin or to a bucket lead over an interface whose bytes cost money?

The system is asked which of its own addresses it would send from; nothing is sent for that. A name is looked up first,
in a thread; until it is known where it leads, it counts as metered.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from p2pqueue.net.interfaces import choose, current
from p2pqueue.payload.limit import Limits

KEPT_FOR: Final = 5.0  # seconds that an answer holds: routes change
_PORT: Final = 9  # any will do

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class _Known:
    until: float
    answer: bool


class Metered:
    """The ways to other places (`payload.origins.ways.Ways`); `interfaces` names those that cost money, by names or addresses."""

    def __init__(self, interfaces: Sequence[str], limits: Limits | None = None) -> None:
        self._wanted = interfaces
        self._limits = limits or Limits()
        self._known: dict[str, _Known] = {}
        self._asked: set[str] = set()  # names that are looked up just now
        self._lock = threading.Lock()

    def leads(self, url: str | None) -> bool:
        """Says whether the way to a URL, or any of the ways that a connection might take, does so. Never waits."""
        host = urlsplit(url).hostname if url and self._wanted else None  # asked for each shard that goes out
        if host is None:
            return False
        now = time.monotonic()
        known = self._known.get(host)
        if known is None or now >= known.until:
            if (address := _as_address(host)) is not None:
                self._note(host, [address])
            else:
                self._look_up(host)
        known = self._known.get(host)
        return known is None or known.answer

    def refuses(self, url: str) -> str | None:
        """Why no file may take the way to a URL now."""
        return self._limits.forbids("", metered=self.leads(url))

    def _look_up(self, name: str) -> None:
        with self._lock:
            if name in self._asked:
                return
            self._asked.add(name)
        threading.Thread(target=self._resolve, args=(name,), name="p2pqueue-metered", daemon=True).start()

    def _resolve(self, name: str) -> None:
        try:
            found = {str(answer[4][0]) for answer in socket.getaddrinfo(name, _PORT, type=socket.SOCK_DGRAM)}
        except (OSError, UnicodeError):
            found = set()  # then no connection is made either, and its failure says more
        self._note(name, [address for each in found if (address := _as_address(each)) is not None])
        with self._lock:
            self._asked.discard(name)

    def _note(self, host: str, addresses: Sequence[Address]) -> None:
        own = {address for each in addresses if (address := _own_address(each)) is not None}
        self._known[host] = _Known(time.monotonic() + KEPT_FOR, bool(own & _addresses_of(self._wanted)))


def _addresses_of(wanted: Sequence[str]) -> set[Address]:
    interfaces = current()
    names = {interface.name for interface in choose(interfaces, wanted)}
    return {address.ip for interface in interfaces if interface.name in names for address in interface.addresses}


def _as_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _own_address(there: Address) -> Address | None:
    """The address that this device would send from to another one; None where no way leads there."""
    try:
        with socket.socket(socket.AF_INET if there.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect((str(there), _PORT))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
    except OSError:
        return None
