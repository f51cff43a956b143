"""At which of its addresses is a device offered, which of a peer's are tried, and what does the way between bear? Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Interface, IPv6Interface
from typing import Protocol

from p2pqueue.net.webrtc.signal import CANDIDATES_LIMIT, Candidate

LOOPBACK = "127.0.0.1"
ETHERNET = 1500  # bytes that a packet may have on any ordinary network


class Addressed(Protocol):
    """An interface, as far as candidates care."""

    @property
    def addresses(self) -> Sequence[IPv4Interface | IPv6Interface]:
        """Its addresses with their subnets."""


def own_addresses(interfaces: Iterable[Addressed], *, loopback: bool, towards: str | None = None) -> list[str]:
    """The addresses to be offered, the best first.

    `towards` is where the link reaches the peer: addresses in its subnet come first. Loopback ones are offered
    when asked, one even where no interface names any.
    """
    found = [address for interface in interfaces for address in interface.addresses if _offered(address, loopback=loopback)]
    if loopback and not any(address.ip.is_loopback for address in found):
        found.append(ipaddress.IPv4Interface(f"{LOOPBACK}/8"))
    peer = None if towards is None else _parsed(towards)
    found.sort(key=lambda address: (peer is None or peer not in address.network, address.ip.is_loopback, address.version))
    return list(dict.fromkeys(str(address.ip) for address in found))[:CANDIDATES_LIMIT]


def worth_trying(candidates: Iterable[Candidate], interfaces: Iterable[Addressed], *, loopback: bool) -> list[Candidate]:
    """A peer's candidates that can be tried, those in a subnet of ours first; their own order decides otherwise."""
    networks = [address.network for interface in interfaces for address in interface.addresses]
    found = []
    for host, port in dict.fromkeys(candidates):
        ip = _parsed(host)
        if ip is None or ip.is_multicast or ip.is_unspecified or (ip.is_loopback and not loopback) or _without_scope(ip):
            continue
        found.append((not any(ip in network for network in networks), (host, port)))
    return [candidate for _, candidate in sorted(found, key=lambda entry: entry[0])][:CANDIDATES_LIMIT]


def is_roomy(ours: str, theirs: str, interfaces: Iterable[Addressed]) -> bool:
    """Says whether no router stands between two addresses, and their network takes packets of 1,500 bytes."""
    ends = _parsed(ours), _parsed(theirs)
    if all(end is not None and end.is_loopback for end in ends):
        return True
    return any(
        all(end in address.network for end in ends) and getattr(interface, "mtu", 0) >= ETHERNET
        for interface in interfaces
        for address in interface.addresses
    )


def _offered(address: IPv4Interface | IPv6Interface, *, loopback: bool) -> bool:
    ip = address.ip
    return not (ip.is_multicast or ip.is_unspecified or _without_scope(ip)) and (loopback or not ip.is_loopback)


def _without_scope(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    # aioice keeps no scope, without which a link-local IPv6 address leads nowhere.
    return ip.version == 6 and ip.is_link_local


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
