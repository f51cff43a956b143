"""How does a node reach an origin: what does its URL say, and how are shards put there and got back?

The URL that an origin prints is `http://TOKEN@HOST:PORT`; the token is taken out of it before anything is shown.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp

from p2pqueue.errors import ConfigError, told
from p2pqueue.payload.source import Lane, ShardMissing, SourceFailed

T = TypeVar("T")
PARALLEL: Final = 4
TIMEOUT: Final = 60.0  # seconds for one shard
_URL: Final = "an origin's URL is http://TOKEN@HOST:PORT, as `p2pqueue origin` prints it"
_WORDS: Final = 200  # characters of an origin's own words that are passed on


@dataclass(frozen=True)
class OriginAddress:
    """Where an origin is, and the token that it asks for."""

    base: str
    token: str | None


def parse_origin(url: str) -> OriginAddress:
    """What an origin's URL says. Raises `ConfigError`."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"this is no URL of an origin: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(_URL)
    if parts.password is not None or parts.query or parts.fragment or not parts.hostname.isascii() or " " in parts.hostname:
        raise ConfigError(_URL)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    base = f"{parts.scheme}://{host}" + (f":{port}" if port else "") + parts.path.rstrip("/")
    return OriginAddress(base, parts.username or None)


@dataclass(frozen=True)
class OriginClient:
    """One origin, as a source of shards and a place to put them."""

    address: OriginAddress
    session: Callable[[], aiohttp.ClientSession]
    on_bytes: Callable[[int], object] = lambda size: None
    lane: Lane = "origin"
    parallel: int = PARALLEL
    is_last_resort: bool = True

    @property
    def name(self) -> str:
        """Where it is, without its token."""
        return self.address.base

    async def shard(self, address: bytes, size: int) -> bytes:
        """A shard of at most `size` bytes. Raises `ShardMissing` and `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> bytes:
            if answer.status == 404:
                raise ShardMissing
            await self._expect(answer, 200)
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > size:
                    raise SourceFailed(f"{self.name} sends more than a shard of {size} bytes")
            self.on_bytes(len(body))
            return bytes(body)

        return await self._ask("GET", address, read)

    async def has(self, address: bytes) -> bool:
        """Says whether the origin has a shard. Raises `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> bool:
            if answer.status == 404:
                return False
            await self._expect(answer, 200)
            return True

        return await self._ask("HEAD", address, read)

    async def put(self, address: bytes, body: bytes) -> None:
        """Puts a shard there. Raises `SourceFailed`, with the origin's words when it is full."""

        async def read(answer: aiohttp.ClientResponse) -> None:
            await self._expect(answer, 200, 201)

        await self._ask("PUT", address, read, body)

    async def delete(self, address: bytes) -> None:
        """Removes a shard there, if it has it. Raises `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> None:
            await self._expect(answer, 204, 404)

        await self._ask("DELETE", address, read)

    async def _ask(
        self, method: str, address: bytes, read: Callable[[aiohttp.ClientResponse], Awaitable[T]], body: bytes | None = None
    ) -> T:
        headers = {} if self.address.token is None else {"Authorization": f"Bearer {self.address.token}"}
        url = f"{self.address.base}/shards/{address.hex()}"
        limit = aiohttp.ClientTimeout(total=TIMEOUT)
        data = None if body is None else io.BytesIO(body)
        try:
            async with self.session().request(method, url, data=data, headers=headers, allow_redirects=False, timeout=limit) as answer:
                return await read(answer)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise SourceFailed(f"the origin {self.name} can't be reached: {told(error)}") from error

    async def _expect(self, answer: aiohttp.ClientResponse, *wanted: int) -> None:
        if answer.status not in wanted:
            words = (await answer.content.read(_WORDS)).decode(errors="replace").strip()
            if answer.status == 401 and not words:  # the answer to HEAD has no body
                words = "it needs its token; set `origin` to the URL that it printed"
            raise SourceFailed(f"the origin {self.name} answers {answer.status}: {words or answer.reason}")
