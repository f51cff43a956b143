"""What do two devices tell each other before they connect directly?

One small map each way, carried and authenticated by their link: how to be reached (ICE), by which
certificate to be known (DTLS) and at which port (SCTP). It replaces SDP. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage

SIGNAL_LIMIT = 2048  # bytes: 16 IPv6 candidates and the longest names that ICE allows fit
CANDIDATES_LIMIT = 16  # a peer that names more makes us knock at strangers' doors
SCTP_PORT = 5000  # what every WebRTC stack uses

_UFRAG = re.compile(r"[A-Za-z0-9+/]{4,256}", re.ASCII)
_PASSWORD = re.compile(r"[A-Za-z0-9+/]{22,256}", re.ASCII)
_FINGERPRINT = 32  # bytes of SHA-256
_NESTING = 3  # the map, the list of candidates, one candidate

Candidate = tuple[str, int]  # an address in its canonical text and a UDP port


@dataclass(frozen=True)
class RtcSignal:
    """One side's offer; `candidates` are the best first, `fingerprint` is the certificate's SHA-256."""

    ufrag: str
    password: str
    candidates: tuple[Candidate, ...]
    fingerprint: bytes
    sctp_port: int = SCTP_PORT

    def pack(self) -> bytes:
        """The bytes that the link carries."""
        candidates = [[ipaddress.ip_address(host).packed, port] for host, port in self.candidates]
        return wire.pack({"u": self.ufrag, "p": self.password, "c": candidates, "f": self.fingerprint, "s": self.sctp_port})

    @classmethod
    def unpack(cls, data: bytes) -> RtcSignal:
        """The signal that these bytes stand for; raises `MalformedMessage`. Fields it doesn't know are let be."""
        fields = wire.unpack(data, limit=SIGNAL_LIMIT, nesting=_NESTING)
        if not isinstance(fields, dict):
            raise MalformedMessage("a signal is a map")
        fingerprint = fields.get("f")
        if not isinstance(fingerprint, bytes) or len(fingerprint) != _FINGERPRINT:
            raise MalformedMessage("a signal without a SHA-256 fingerprint")
        return cls(
            ufrag=_text(fields.get("u"), _UFRAG),
            password=_text(fields.get("p"), _PASSWORD),
            candidates=_candidates(fields.get("c")),
            fingerprint=fingerprint,
            sctp_port=_port(fields.get("s")),
        )


def _text(value: Any, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise MalformedMessage("a signal whose name or password ICE doesn't allow")
    return value


def _port(value: Any) -> int:
    if type(value) is not int or not 0 < value < 65536:
        raise MalformedMessage("a signal with a port that is none")
    return value


def _candidates(value: Any) -> tuple[Candidate, ...]:
    if not isinstance(value, list) or len(value) > CANDIDATES_LIMIT:
        raise MalformedMessage(f"a signal needs a list of at most {CANDIDATES_LIMIT} candidates")
    return tuple(map(_candidate, value))


def _candidate(value: Any) -> Candidate:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedMessage("a candidate is an address and a port")
    address, port = value
    if not isinstance(address, bytes) or len(address) not in (4, 16):
        raise MalformedMessage("a candidate whose address is neither IPv4 nor IPv6")
    return str(ipaddress.ip_address(address)), _port(port)
