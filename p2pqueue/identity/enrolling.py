"""What does a device write about the members of its space?

Functions for a transaction of the replica; what they write spreads like any row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from p2pqueue.identity.members import FORGOTTEN
from p2pqueue.identity.pairing import Newcomer

_MS_SIZE = 8  # bytes of a time in milliseconds


class Hand(Protocol):
    """What can write a register: the replica's `Writer`."""

    @property
    def now(self) -> int: ...  # noqa: D102
    def put(self, table: str, key: str, register: str, values: Mapping[str, Any], /) -> Any: ...  # noqa: D102


def enrol(writer: Hand, newcomer: Newcomer) -> None:
    """Writes the certificate of a device that was let in, and its label."""
    certificate = {
        "key": newcomer.public_key,
        "role": newcomer.role,
        "issuer": newcomer.issuer,
        "certificate": newcomer.certificate,
    }
    writer.put("devices", newcomer.device_id, "cert", certificate)
    rename(writer, newcomer.device_id, newcomer.label)


def rename(writer: Hand, device_id: str, label: str) -> None:
    """Gives a device another name for people."""
    writer.put("devices", device_id, "about", {"label": label})


def forget(writer: Hand, device_id: str) -> None:
    """Leaves a device out of all lists that won't come back; when something is heard of it, it stands there again."""
    writer.put("space", f"{FORGOTTEN}{device_id}", "setting", {"value": writer.now.to_bytes(_MS_SIZE, "big")})
