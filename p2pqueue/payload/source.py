"""Where else can a shard come from? What a fetch asks of each place: a peer over one of its lanes, or an origin.

This room knows no network; whoever does hands sources in.
"""

from __future__ import annotations

from typing import Literal, Protocol

Lane = Literal["webrtc", "http", "link", "origin"]


class ShardMissing(Exception):
    """This source doesn't have the shard; others may. Its text says why, where the source once had it."""


class SourceFailed(Exception):
    """This source can't be reached now, in words."""


class Source(Protocol):
    """One place that may have shards. It is asked by several tasks at once, `parallel` at most."""

    @property
    def name(self) -> str:
        """What it is called in words and counts: a device's id, or an origin's address."""

    @property
    def lane(self) -> Lane:
        """The way that its bytes come now."""

    @property
    def parallel(self) -> int:
        """How many shards may be asked of it at the same time."""

    @property
    def is_last_resort(self) -> bool:
        """Says whether it is asked only when nothing nearer delivers: an origin."""

    async def shard(self, address: bytes, size: int) -> bytes:
        """The shard of that address, of at most `size` bytes, unchecked. Raises `ShardMissing` and `SourceFailed`."""
