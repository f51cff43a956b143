"""What do an inbox and an outbox need: of the origin where the mailbox is, and of the replica on this device?"""

from __future__ import annotations

from typing import Protocol

from p2pqueue.payload.origins.objects import Listed
from p2pqueue.replica.syncing.effects import Answer, Request
from p2pqueue.replica.syncing.messages import Message
from p2pqueue.replica.syncing.peering import Peering


class MailPlace(Protocol):
    """What is needed of an origin. Everything raises `SourceFailed`."""

    async def list_mail(self, space: str) -> list[Listed]: ...  # noqa: D102
    async def get_mail(self, name: str, *, limit: int) -> bytes | None: ...  # noqa: D102
    async def put_mail(self, name: str, body: bytes) -> None: ...  # noqa: D102
    async def delete_mail(self, name: str) -> None: ...  # noqa: D102


class Hand(Protocol):
    """How the replica is reached: `peers.disk.Disk`."""

    async def answer(self, peering: Peering, request: Request) -> Answer: ...  # noqa: D102
    async def read(self, data: bytes) -> Message | None: ...  # noqa: D102
    async def pack(self, message: Message, *, deflate: bool) -> bytes: ...  # noqa: D102
