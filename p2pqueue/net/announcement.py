"""What does a device tell the LAN of itself, and what is read out of what others tell?

A stranger learns that p2pqueue runs somewhere, which protocols it speaks, and, while an invitation is open, the
nameplate of its code; neither the space nor the device: the tag is a keyed hash over an id that is random per start.
No I/O here: the records of mDNS come in and go out as plain values.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from p2pqueue.net.addresses import CANDIDATES_LIMIT, Endpoint
from p2pqueue.net.interfaces import Interface, is_local

SERVICE = "_p2pqueue._tcp.local."
ID_LENGTH = 16  # bytes, random per start
LIFETIME = 120  # seconds, as RFC 6762 (10) has it for what depends on a host being there
Tag = Callable[[bytes], bytes]  # an instance id → its keyed hash

_ANNOUNCED_LIMIT = 16  # addresses: a host may have hundreds, a packet has 1,500 bytes
_NAMEPLATE_LIMIT = 16  # characters
_VALUE_LIMIT = 128  # bytes of one value that is looked at


@dataclass(frozen=True)
class Sighting:
    """A device that mDNS shows. Everything in it is a claim until a link proves it.

    `instance` names it until it stops. `addresses` come with those of our own subnets first. `ours` says that its tag
    was made with the key of our space. `protocol` is the lowest and the highest version that it speaks.
    """

    instance: str
    addresses: tuple[Endpoint, ...]
    ours: bool
    protocol: tuple[int, int]
    nameplate: str | None


@dataclass(frozen=True)
class Announcement:
    """What a device tells the LAN: under `name`, the TXT record `text` and where it listens.

    `lifetime` is for how many seconds others may take it as true without asking again.
    """

    name: str
    text: bytes
    addresses: tuple[str, ...]
    port: int
    lifetime: int


def announce(
    name: str,
    *,
    number: bytes,
    tag: Tag,
    protocol: tuple[int, int],
    nameplate: str | None,
    port: int,
    interfaces: Iterable[Interface],
    serial: int = 0,
    lifetime: int = LIFETIME,
) -> Announcement:
    """The announcement of a device under a random name and a random id (`number`).

    `serial` differs with every change: a reader who still keeps an older record with the same content takes a record
    that came back for one that never went.
    """
    entries = [b"v=%d-%d" % protocol, b"id=" + number.hex().encode(), b"tag=" + tag(number).hex().encode(), b"n=%d" % serial]
    if nameplate is not None:
        entries.append(b"np=" + nameplate.encode()[:_NAMEPLATE_LIMIT])
    addresses = dict.fromkeys(str(address.ip) for interface in interfaces for address in interface.addresses)
    return Announcement(
        name, b"".join(bytes([len(entry)]) + entry for entry in entries), tuple(addresses)[:_ANNOUNCED_LIMIT], port, lifetime
    )


def entries(text: bytes) -> dict[bytes, bytes | None]:
    """The keys and values of a TXT record; of a key that stands there twice, the first."""
    found: dict[bytes, bytes | None] = {}
    while text:
        key, equals, value = text[1 : 1 + text[0]].partition(b"=")
        found.setdefault(key, value if equals else None)
        text = text[1 + text[0] :]
    return found


def instance_id(told: Mapping[bytes, bytes | None]) -> bytes:
    """The id in a TXT record; empty where there is none."""
    return _unhex(told.get(b"id"))


def read(
    instance: str,
    told: Mapping[bytes, bytes | None],
    *,
    addresses: Iterable[str],
    port: int,
    tag: Tag | None,
    interfaces: Iterable[Interface],
) -> Sighting | None:
    """A sighting from the records of an instance; `None` where they make no sense or lead nowhere from here."""
    protocol = _protocol(told.get(b"v"))
    interfaces = tuple(interfaces)
    reachable = _reachable(addresses, interfaces)
    if protocol is None or not reachable or not 0 < port < 65_536:
        return None
    number = instance_id(told)
    ours = tag is not None and len(number) == ID_LENGTH and hmac.compare_digest(tag(number), _unhex(told.get(b"tag")))
    ends = tuple((host, port) for host in reachable[:CANDIDATES_LIMIT])
    return Sighting(instance, ends, ours, protocol, _nameplate(told.get(b"np")))


def _reachable(addresses: Iterable[str], interfaces: tuple[Interface, ...]) -> list[str]:
    on_loopback = any(interface.kind == "loopback" for interface in interfaces)
    found = []
    for text in addresses:
        address = ipaddress.ip_address(text)
        if not (address.is_unspecified or address.is_multicast or address.is_link_local or (address.is_loopback and not on_loopback)):
            found.append(str(address))
    return sorted(dict.fromkeys(found), key=lambda host: not is_local(host, interfaces))


def _protocol(value: bytes | None) -> tuple[int, int] | None:
    lowest, dash, highest = (value or b"")[:_VALUE_LIMIT].partition(b"-")
    if not (dash and lowest.isdigit() and highest.isdigit()) or len(lowest) > 9 or len(highest) > 9:
        return None
    return (int(lowest), int(highest)) if int(lowest) <= int(highest) else None


def _nameplate(value: bytes | None) -> str | None:
    text = (value or b"")[:_NAMEPLATE_LIMIT].decode("ascii", "ignore")
    return text if text.isalnum() else None


def _unhex(value: bytes | None) -> bytes:
    try:
        return bytes.fromhex((value or b"")[:_VALUE_LIMIT].decode("ascii"))
    except ValueError:
        return b""
