"""What must a linked device offer for rows and signals to pass to it?"""

from __future__ import annotations

from typing import Literal, Protocol

Topic = Literal["rows", "signal", "shards", "net"]


class LinkedPeer(Protocol):
    """One linked device; it lasts as long as its link. `net.peer.Peer` is one."""

    @property
    def device_id(self) -> str:
        """32 hexadecimal digits."""
        ...

    @property
    def role(self) -> str:
        """The role that its certificate and standings give it."""
        ...

    async def send(self, topic: Topic, message: bytes) -> None:
        """Sends a message of at most 256 KiB once there is room. Raises a `P2PQueueError` when the link is gone."""
        ...

    def send_soon(self, topic: Topic, message: bytes) -> bool:
        """Sends a message if there is room now; says whether there was."""
        ...
