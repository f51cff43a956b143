"""Do datagrams and multicast really pass, here and now?

For `doctor`: each try sends something and waits until the same has come back, at most for a second.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ipaddress import IPv4Interface
from typing import Final

from p2pqueue.net.announcement import SERVICE
from p2pqueue.net.interfaces import Interface

WAIT: Final = 1.0  # seconds for what was sent to come back
MDNS_PORT: Final = 5353
_GROUP_4: Final = "224.0.0.251"
_GROUP_6: Final = "ff02::fb"
_DATAGRAM: Final = bytes(1200)  # as large as those of WebRTC
_LISTEN_ON: Final = 0.3  # seconds for others to answer, once the own question was heard


class NotHeard(OSError):
    """What was sent did not come back."""


def connect(host: str, port: int) -> None:
    """Opens a TCP connection and closes it again. Raises `OSError`."""
    socket.create_connection((host, port), timeout=WAIT).close()


def pass_datagram(host: str) -> None:
    """Sends a datagram from one socket at an address of this machine to another. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as one, closing(socket.socket(family, socket.SOCK_DGRAM)) as other:
        for each in (one, other):
            each.bind((host, 0))
            each.settimeout(WAIT)
        one.sendto(_DATAGRAM, other.getsockname())
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            try:
                if other.recv(len(_DATAGRAM) + 1) == _DATAGRAM:
                    return
            except TimeoutError:
                break
        raise NotHeard("no datagram arrives")


def ask_around(interface: Interface) -> int:
    """Asks by mDNS for devices on one interface, hears itself, and counts the other hosts that answer. Raises `OSError`."""
    question = _question()
    with _group(interface) as (member, group):
        member.sendto(question, group)
        heard_self, others = False, set()
        deadline = time.monotonic() + WAIT
        while (left := deadline - time.monotonic()) > 0:
            member.settimeout(left)
            try:
                packet, source = member.recvfrom(9000)
            except TimeoutError:
                break
            own = ipaddress.ip_address(source[0].partition("%")[0]) in {address.ip for address in interface.addresses}
            if packet == question:
                heard_self, deadline = True, min(deadline, time.monotonic() + _LISTEN_ON)
            elif not own:
                others.add(source[0])
    if not heard_self:
        raise NotHeard("nothing that is sent to the group is heard")
    return len(others)


@contextmanager
def _group(interface: Interface) -> Iterator[tuple[socket.socket, tuple[str, int] | tuple[str, int, int, int]]]:
    """A member of the group of mDNS on an interface, and where to send to."""
    four = next((address for address in interface.addresses if isinstance(address, IPv4Interface)), None)
    with closing(socket.socket(socket.AF_INET if four else socket.AF_INET6, socket.SOCK_DGRAM)) as member:
        member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        member.bind(("", MDNS_PORT))
        if four is not None:
            here = four.ip.packed
            member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(_GROUP_4) + here)
            member.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
            member.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            member.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
            yield member, (_GROUP_4, MDNS_PORT)
            return
        index = struct.pack("@I", interface.index)
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, _GROUP_6) + index)
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        yield member, (_GROUP_6, MDNS_PORT, 0, interface.index)


def _question() -> bytes:
    """Who is there? As RFC 6762 has it, but for an id by which this question is told from all others."""
    name = b"".join(bytes([len(part)]) + part.encode() for part in SERVICE.rstrip(".").split(".")) + b"\0"
    return struct.pack("!HHHHHH", secrets.randbits(16), 0, 1, 0, 0, 0) + name + struct.pack("!HH", 12, 1)
