"""Which addresses was a device reached at, or may it be reached at, and which come first?

What was good is kept in a local table, as plain rows; what was only seen or told lasts as long as the node runs.
Pure: the time is an argument.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Endpoint = tuple[str, int]  # host, port
Row = tuple[str, str, int, int]  # device, host, port, the milliseconds since 1970 at which it was last good

DEFAULT_PORT = 7433
CANDIDATES_LIMIT = 8  # addresses of one device: the last of them starts 1.75 s after the first
SOURCES_LIMIT = 4  # of one device: a device that restarts is seen under a new name beside the old one
FORGOTTEN_AFTER_MS = 86_400_000  # a day of being good elsewhere: then an old address isn't tried any more
_HOST_LIMIT = 253  # characters of the longest name there is


def endpoint(text: str, *, default_port: int) -> Endpoint:
    """Reads `HOST:PORT`, `HOST`, `[IPV6]:PORT` or a bare IPv6 address. Raises `ValueError` in words."""
    host, port = text.strip(), ""
    if host.startswith("["):
        host, closed, port = host[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise ValueError(f"{text!r} is no address; write HOST:PORT, or [IPV6]:PORT")
        port = port[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    number = default_port if not port else int(port) if port.isascii() and port.isdecimal() else 0
    if not is_endpoint(host, number):
        raise ValueError(f"{text!r} is no address; write HOST:PORT, with a port from 1 to 65535")
    return host, number


def listening_at(text: str, *, default_port: int) -> Endpoint:
    """Reads where to listen: as `endpoint`, but port 0 is any that is free, and an empty host every address.

    All addresses of one family are `0.0.0.0` or `[::]`. Raises `ValueError` in words.
    """
    host, colon, port = text.strip().rpartition(":")
    if colon and port.isascii() and port.isdecimal() and int(port) < 65_536:
        if host in ("", "0.0.0.0", "[::]"):
            return host.strip("[]"), int(port)
        if int(port) == 0 and (":" not in host or host.startswith("[")):
            return endpoint(host, default_port=default_port)[0], 0
    return endpoint(text, default_port=default_port)


def is_endpoint(host: str, port: int) -> bool:
    """Says whether this can be dialled at all; a peer may have told anything."""
    if not 0 < port < 65_536 or not 0 < len(host) <= _HOST_LIMIT:
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.isascii() and all(part.replace("-", "a").replace("_", "a").isalnum() for part in host.removesuffix(".").split("."))
    return not (address.is_multicast or address.is_unspecified)


@dataclass
class _Known:
    good: dict[Endpoint, int] = field(default_factory=dict)
    sighted: dict[str, tuple[Endpoint, ...]] = field(default_factory=dict)  # by source, the newest last
    hinted: tuple[Endpoint, ...] = ()  # by what it wrote somewhere a while ago


class AddressBook:
    """The addresses of every device.

    :param rows: what `dump` gave before. What can't be an address is left out.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._devices: dict[str, _Known] = {}
        for device, host, port, good_at in rows:
            if is_endpoint(host, port):
                self._devices.setdefault(device, _Known()).good[host, port] = good_at
        for known in self._devices.values():
            _tidy(known)

    def dump(self) -> list[Row]:
        """What was good, as plain rows in a lasting order."""
        return sorted((device, *where, at) for device, known in self._devices.items() for where, at in known.good.items())

    def note_good(self, device: str, host: str, port: int, now_ms: int) -> None:
        """A link to the device came about there."""
        if not is_endpoint(host, port):
            return
        known = self._devices.setdefault(device, _Known())
        later = max((at for where, at in known.good.items() if where != (host, port)), default=0) + 1
        known.good[host, port] = max(now_ms, later)  # a clock that was set back makes nothing older than it is
        _tidy(known)

    def note_sighting(self, device: str, addresses: Sequence[Endpoint], *, source: str) -> None:
        """The device was seen, or said to be, there; replaces what the same source told before."""
        known = self._devices.setdefault(device, _Known())
        known.sighted.pop(source, None)
        known.sighted[source] = tuple(dict.fromkeys(where for where in addresses if is_endpoint(*where)))[:CANDIDATES_LIMIT]
        while len(known.sighted) > SOURCES_LIMIT:
            del known.sighted[next(iter(known.sighted))]

    def note_hint(self, device: str, addresses: Sequence[Endpoint]) -> None:
        """The device once wrote that it is there; replaces what it wrote before. Tried behind all others."""
        kept = tuple(dict.fromkeys(where for where in addresses if is_endpoint(*where)))[:CANDIDATES_LIMIT]
        if kept or device in self._devices:
            self._devices.setdefault(device, _Known()).hinted = kept

    def drop_sighting(self, device: str, *, source: str) -> None:
        """What the source told holds no more."""
        if device in self._devices:
            self._devices[device].sighted.pop(source, None)

    def forget(self, device: str, host: str, port: int) -> None:
        """Somebody else answered there."""
        known = self._devices.get(device, _Known())
        known.good.pop((host, port), None)
        for source, addresses in known.sighted.items():
            known.sighted[source] = tuple(where for where in addresses if where != (host, port))
        known.hinted = tuple(where for where in known.hinted if where != (host, port))

    def candidates(self, device: str) -> tuple[Endpoint, ...]:
        """Where to dial the device, the most likely first: what is seen now, what was good last, what it wrote somewhere."""
        known = self._devices.get(device, _Known())
        seen = [where for addresses in reversed(known.sighted.values()) for where in sorted(addresses, key=lambda w: -known.good.get(w, 0))]
        good = sorted(known.good, key=lambda where: -known.good[where])
        return tuple(dict.fromkeys([*seen, *good, *known.hinted]))[:CANDIDATES_LIMIT]


def _tidy(known: _Known) -> None:
    newest = max(known.good.values(), default=0)
    kept = sorted(known.good.items(), key=lambda item: -item[1])[:CANDIDATES_LIMIT]
    known.good = {where: at for where, at in kept if newest - at < FORGOTTEN_AFTER_MS}
