"""What do the two ends of a link tell one another about the link itself?

Small MessagePack maps on the topic `net`. Kinds and keys that this version doesn't know are ignored. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.net.handshake import INSTANCE_SIZE

NOTE_LIMIT = 16 * 1024  # bytes: a WebRTC signal with all its candidates has room
LABEL_LIMIT = 64  # characters of a device's label
TICKET_SIZE = 32  # bytes
_SIGNATURE_SIZE = 64  # bytes


@dataclass(frozen=True)
class Ping:
    """A question whether the other side is there."""

    number: int

    def pack(self) -> bytes:
        """The message."""
        return wire.pack({"kind": "ping", "n": self.number})


@dataclass(frozen=True)
class Pong:
    """The answer, with the wall clock of the side that gives it."""

    number: int
    wall: float

    def pack(self) -> bytes:
        """The message."""
        return wire.pack({"kind": "pong", "n": self.number, "wall": self.wall})


@dataclass(frozen=True)
class Bye:
    """The other side leaves on purpose, and says why."""

    reason: str

    def pack(self) -> bytes:
        """The message."""
        return wire.pack({"kind": "bye", "reason": self.reason})


@dataclass(frozen=True)
class Twin:
    """One of two running devices with one key says to the other that it is there; see `net.twins`."""

    instance: bytes  # who says it
    other: bytes  # to whom
    proof: bytes  # its signature; empty where a third device only tells that it is there

    @property
    def fields(self) -> dict[str, Any]:
        """Its parts by their names."""
        return {"instance": self.instance, "other": self.other, "proof": self.proof}

    def pack(self) -> bytes:
        """The message."""
        return wire.pack({"kind": "twin", **self.fields})


@dataclass(frozen=True)
class About:
    """What a device says of itself once it is known who it is."""

    label: str
    port: int  # where it listens; 0 where nobody can reach it
    ticket: bytes  # what the reader of this shows to fetch shards by HTTP
    lanes: frozenset[str]  # how it exchanges payloads: webrtc, http, origin
    twin: Twin | None = None  # whose place the reader of this doesn't get: no link comes of it

    def pack(self) -> bytes:
        """The message."""
        said = {"kind": "about", "label": self.label, "port": self.port, "ticket": self.ticket, "lanes": sorted(self.lanes)}
        return wire.pack(said if self.twin is None else {**said, "twin": self.twin.fields})


@dataclass(frozen=True)
class Signalling:
    """A step of building a WebRTC connection. `body` and `signature` are looked at where it is built."""

    body: bytes
    signature: bytes

    def pack(self) -> bytes:
        """The message."""
        return wire.pack({"kind": "rtc", "body": self.body, "signature": self.signature})


Note = Ping | Pong | Bye | About | Signalling | Twin


def read_note(message: bytes) -> Note | None:
    """What a message on `net` says; None for a kind of a later version. Raises `MalformedMessage`."""
    match wire.unpack(message, limit=NOTE_LIMIT, nesting=4):
        case {"kind": "ping", "n": int(number)}:
            return Ping(number)
        case {"kind": "pong", "n": int(number), "wall": float(wall)} if math.isfinite(wall):
            return Pong(number, wall)
        case {"kind": "bye", "reason": str(reason)}:
            return Bye(shown(reason, 200))
        case {"kind": "about", **fields}:
            return _about(fields)
        case {"kind": "rtc", "body": bytes(body), "signature": bytes(signature)} if len(signature) == _SIGNATURE_SIZE:
            return Signalling(body, signature)
        case {"kind": "twin", **fields}:
            return _twin(fields)
        case {"kind": str(kind), **_rest} if kind not in ("ping", "pong", "bye", "about", "rtc", "twin"):
            return None
        case _:
            raise MalformedMessage("a note of the link that can't be read")


def shown(text: str, limit: int = LABEL_LIMIT) -> str:
    """A peer's text as it may be shown: printable, on one line, not too long."""
    return "".join(character if character.isprintable() else " " for character in text[: 4 * limit]).strip()[:limit]


def _about(fields: dict[Any, Any]) -> About:
    match fields:
        case {"label": str(label), "port": int(port), "ticket": bytes(ticket), "lanes": list(lanes)} if (
            0 <= port < 65536 and len(ticket) == TICKET_SIZE and len(lanes) <= 16
        ):
            twin = fields.get("twin")
            known = frozenset(lane for lane in lanes if isinstance(lane, str) and len(lane) <= 16)
            return About(shown(label), port, ticket, known, None if twin is None else _twin(twin))
        case _:
            raise MalformedMessage("what a device says of itself can't be read")


def _twin(fields: Any) -> Twin:
    match fields:
        case {"instance": bytes(instance), "other": bytes(other), "proof": bytes(proof)}:
            if len(instance) == len(other) == INSTANCE_SIZE and len(proof) in (0, _SIGNATURE_SIZE):
                return Twin(instance, other, proof)
    raise MalformedMessage("what one of two devices with one key says can't be read")
