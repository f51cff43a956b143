"""What does a node ask of an origin, whether it is one of ours or a bare bucket?

Shards, as of any source, and to put and delete them; and mailboxes: objects by the names of `MAIL_NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from p2pqueue.payload.fetching.source import Source
from p2pqueue.payload.origins.bucket import Bucket, is_bucket
from p2pqueue.payload.origins.endpoints import first_server
from p2pqueue.payload.origins.objects import Listed
from p2pqueue.payload.origins.ways import UNMETERED, Ways

if TYPE_CHECKING:
    import aiohttp


class AnyOrigin(Source, Protocol):
    """A place of shards and mailboxes. Everything raises `SourceFailed`."""

    @property
    def metered(self) -> bool:
        """Says whether bytes cost money on the way there."""

    async def has(self, address: bytes) -> bool:
        """Says whether a shard is there."""

    async def put(self, address: bytes, body: bytes | memoryview) -> None:
        """Puts a shard there. Nobody holds its memory any more when this returns."""

    async def delete(self, address: bytes) -> None:
        """Removes a shard, if it is there."""

    async def list_mail(self, space: str) -> list[Listed]:
        """What lies in the mailboxes of a space, by names without the `mail/` before them."""

    async def get_mail(self, name: str, *, limit: int) -> bytes | None:
        """One object of a mailbox, None where it isn't there."""

    async def put_mail(self, name: str, body: bytes) -> None:
        """Puts an object into a mailbox, in place of an earlier one."""

    async def delete_mail(self, name: str) -> None:
        """Removes an object from a mailbox, if it is there."""


def open_origin(
    url: str, session: Callable[[], aiohttp.ClientSession], on_bytes: Callable[[int], object] = lambda size: None, ways: Ways = UNMETERED
) -> AnyOrigin:  # fmt: skip
    """The origin or the bucket that a URL names; `ways` tells which ways to it are metered. Raises `ConfigError`."""
    if is_bucket(url):
        from p2pqueue.payload.origins.bucket_client import BucketClient

        bucket, server = Bucket(url), first_server(urlsplit(url.strip()).scheme)
        return BucketClient(bucket, on_bytes, is_metered=lambda: server is not None and ways.leads(server))
    from p2pqueue.payload.origins.client import OriginClient, parse_origin

    return OriginClient(parse_origin(url), session, on_bytes, ways)


def shown_origin(url: str) -> str:
    """Where an origin is, without its token."""
    if is_bucket(url):
        return url.strip()
    from p2pqueue.payload.origins.client import parse_origin

    return parse_origin(url).base


def check_origin(url: str) -> None:
    """Raises `ConfigError` for a URL that names neither an origin nor a bucket."""
    if is_bucket(url):
        Bucket(url)
        return
    from p2pqueue.payload.origins.client import parse_origin

    parse_origin(url)
