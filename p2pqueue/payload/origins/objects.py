"""What does an origin need of the place where its objects lie?

Objects have names like paths and bodies of at most a shard's size. A folder (`folder`) and a bucket (`bucket`) offer
the same, so that an origin stands before either, and a node may use a bucket without any origin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, Protocol

SHARDS: Final = "shards/"  # begins the names of shards
MAIL: Final = "mail/"  # begins the names of what lies in mailboxes
ADDRESS: Final = re.compile(r"[0-9a-f]{64}")
MAIL_NAME: Final = re.compile(r"[0-9a-f]{32}/[0-9a-f]{32}/[0-9a-z-]{1,64}")  # space, device, object
MAILBOX: Final = re.compile(r"[0-9a-f]{32}")
MOST_LISTED: Final = 10_000  # objects of a mailbox that are looked at; more is a flood


class StoreFailed(Exception):
    """The place can't be reached or refuses, in words."""


class StoreFull(Exception):
    """The place has no room left, in words."""


@dataclass(frozen=True)
class Listed:
    """An object as a list shows it. `mark` changes whenever its content does; `modified` is in seconds since 1970."""

    name: str
    size: int
    mark: str
    modified: float


class ObjectStore(Protocol):
    """A place of objects. Everything raises `StoreFailed`."""

    @property
    def shown(self) -> str:
        """Where it is, in words without secrets."""

    async def get(self, name: str, *, limit: int) -> bytes | None:
        """A body of at most `limit` bytes, None where there is none. Raises `StoreFailed` for a larger one too."""

    async def view(self, name: str, *, limit: int) -> memoryview | None:
        """As `get`, of bytes that are not copied where that can be spared."""

    async def size(self, name: str) -> int | None:
        """How many bytes a body has, None where there is none."""

    async def put(self, name: str, body: bytes | memoryview) -> None:
        """Keeps a body, in place of an earlier one; durable when it returns. Raises `StoreFull`."""

    async def delete(self, name: str) -> None:
        """Removes an object, if it is there."""

    async def listed(self, prefix: str, *, most: int | None = None) -> list[Listed]:
        """The objects whose names begin so; `most` of them at most."""

    async def url(self, method: Literal["GET", "PUT"], name: str) -> str | None:
        """A URL by which anybody may do that for a few minutes; None where the place can't sign."""
