"""How does a node reach an origin: what does its URL say, and how are shards and mail put there and got back?

The URL that an origin prints is `http://TOKEN@HOST:PORT`; the token is taken out of it before anything is shown.
"""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import aiohttp
from yarl import URL

from p2pqueue.errors import ConfigError, told
from p2pqueue.payload.fetching.http_line import Place
from p2pqueue.payload.fetching.lines import Lines
from p2pqueue.payload.fetching.source import Lane, ShardMissing, SourceFailed, Work
from p2pqueue.payload.origins.line import OriginLine
from p2pqueue.payload.origins.objects import MAIL_NAME, MOST_LISTED, Listed
from p2pqueue.payload.origins.ways import UNMETERED, Ways

T = TypeVar("T")
PARALLEL: Final = 4
TIMEOUT: Final = 60.0  # seconds for one shard
_URL: Final = "an origin's URL is http://TOKEN@HOST:PORT, as `p2pqueue origin` prints it, or that of a bucket, as s3://BUCKET/PREFIX"
_WORDS: Final = 200  # characters of an origin's own words that are passed on
_LIST_LIMIT: Final = 256 * MOST_LISTED  # bytes of a list
_AZURE: Final = {"x-ms-blob-type": "BlockBlob"}  # what Azure wants to be told of an upload; a signature leaves it open
_SAS: Final = {"sv", "sr", "sig"}  # what a URL that Azure's keys signed has, whatever host it names


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


@dataclass
class OriginClient:
    """One origin, as a source of shards and a place to put them, and mail."""

    address: OriginAddress
    session: Callable[[], aiohttp.ClientSession]
    on_bytes: Callable[[int], object] = lambda size: None
    ways: Ways = UNMETERED
    lane: Lane = "origin"
    parallel: int = PARALLEL
    is_last_resort: bool = True
    _signs: bool = field(default=True, repr=False)  # until it says that it does not
    _lines: Lines = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._lines = Lines(Place(self.address.base, self.address.token, f"the origin {self.name}"), partial(OriginLine, ways=self.ways))

    @property
    def name(self) -> str:
        """Where it is, without its token."""
        return self.address.base

    @property
    def metered(self) -> bool:
        """Says whether bytes cost money on the way there."""
        return self.ways.leads(self.address.base)

    @property
    def threads(self) -> int:
        """How many connections work at once."""
        return self.parallel

    def carry(self, work: Work) -> None:
        """Fetches in the calling thread (`source.Carrying`)."""
        self._lines.carry(work, self.on_bytes)

    def rest(self) -> None:
        """Closes the connections that no thread uses now."""
        self._lines.rest()

    async def shard(self, address: bytes, size: int) -> bytes:
        """A shard of at most `size` bytes. Raises `ShardMissing` and `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> bytes | str:
            if answer.status == 307:
                return answer.headers.get("Location", "")
            if answer.status == 404:
                raise ShardMissing
            await self._expect(answer, 200)
            return await self._body(answer, size)

        body = await self._ask("GET", _shard(address), read)
        if isinstance(body, str):
            body = await self._elsewhere("GET", body, read)
        if isinstance(body, str):
            raise SourceFailed(f"the origin {self.name} sends on and on")
        self.on_bytes(len(body))
        return body

    async def has(self, address: bytes) -> bool:
        """Says whether the origin has a shard. Raises `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> bool:
            if answer.status == 404:
                return False
            await self._expect(answer, 200)
            return True

        return await self._ask("HEAD", _shard(address), read)

    async def put(self, address: bytes, body: bytes | memoryview) -> None:
        """Puts a shard there, or where it says. Raises `SourceFailed`, with the origin's words when it is full."""

        async def read(answer: aiohttp.ClientResponse) -> None:
            await self._expect(answer, 200, 201, 204)

        url = await self._place(address, len(body)) if self._signs else None
        if url is None:
            await self._ask("PUT", _shard(address), read, body)
        else:
            await self._elsewhere("PUT", url, read, body)

    async def delete(self, address: bytes) -> None:
        """Removes a shard there, if it has it. Raises `SourceFailed`."""
        await self._ask("DELETE", _shard(address), self._gone)

    # -- mail -------------------------------------------------------------------------------------------------

    async def list_mail(self, space: str) -> list[Listed]:
        """What lies in the mailboxes of a space. Raises `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> list[Listed]:
            await self._expect(answer, 200)
            return _listed(await self._body(answer, _LIST_LIMIT))

        return await self._ask("GET", f"mail/{space}", read)

    async def get_mail(self, name: str, *, limit: int) -> bytes | None:
        """One object of a mailbox. Raises `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> bytes | None:
            if answer.status == 404:
                return None
            await self._expect(answer, 200)
            return await self._body(answer, limit)

        return await self._ask("GET", f"mail/{name}", read)

    async def put_mail(self, name: str, body: bytes) -> None:
        """Puts an object into a mailbox. Raises `SourceFailed`."""

        async def read(answer: aiohttp.ClientResponse) -> None:
            await self._expect(answer, 200, 201)

        await self._ask("PUT", f"mail/{name}", read, body)

    async def delete_mail(self, name: str) -> None:
        """Removes an object from a mailbox. Raises `SourceFailed`."""
        await self._ask("DELETE", f"mail/{name}", self._gone)

    # -- inside -----------------------------------------------------------------------------------------------

    async def _place(self, address: bytes, size: int) -> str | None:
        """The URL that a shard is to be put to, None for the origin itself."""

        async def read(answer: aiohttp.ClientResponse) -> str | None:
            if answer.status == 405:  # an origin of an earlier version
                return None
            await self._expect(answer, 200)
            told = json.loads(await self._body(answer, 64 * 1024))
            return told.get("url") if isinstance(told, dict) else None

        url = await self._ask("POST", f"{_shard(address)}?size={size}", read)
        self._signs = url is not None
        return url

    async def _gone(self, answer: aiohttp.ClientResponse) -> None:
        await self._expect(answer, 204, 404)

    async def _body(self, answer: aiohttp.ClientResponse, limit: int) -> bytes:
        body = bytearray()
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > limit:
                raise SourceFailed(f"{self.name} sends more than a shard of {limit} bytes")
        return bytes(body)

    async def _ask(
        self, method: str, path: str, read: Callable[[aiohttp.ClientResponse], Awaitable[T]], body: bytes | memoryview | None = None
    ) -> T:  # fmt: skip
        headers = {} if self.address.token is None else {"Authorization": f"Bearer {self.address.token}"}
        return await self._request(method, f"{self.address.base}/{path}", headers, read, body)

    async def _elsewhere(
        self, method: str, url: str, read: Callable[[aiohttp.ClientResponse], Awaitable[T]], body: bytes | memoryview | None = None
    ) -> T:  # fmt: skip
        """As `_ask`, of the bucket that the origin named; it isn't told the origin's token."""
        host = urlsplit(url).hostname or ""
        if urlsplit(url).scheme not in ("http", "https"):
            raise SourceFailed(f"the origin {self.name} names no URL that can be used")
        if (why := self.ways.refuses(url)) is not None:
            raise SourceFailed(f"the origin {self.name} sends on to {host}: {why}")
        headers = _AZURE if method == "PUT" and parse_qs(urlsplit(url).query).keys() >= _SAS else {}
        return await self._request(method, url, headers, read, body)

    async def _request(
        self, method: str, url: str, headers: dict[str, str], read: Callable[[aiohttp.ClientResponse], Awaitable[T]],
        body: bytes | memoryview | None,
    ) -> T:  # fmt: skip
        limit = aiohttp.ClientTimeout(total=TIMEOUT)
        data = None if body is None else io.BytesIO(body)
        try:
            exact = URL(url, encoded=True)  # what is signed is sent as it stands
            async with self.session().request(method, exact, data=data, headers=headers, allow_redirects=False, timeout=limit) as answer:
                return await read(answer)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise SourceFailed(f"the origin {self.name} can't be reached: {told(error)}") from error

    async def _expect(self, answer: aiohttp.ClientResponse, *wanted: int) -> None:
        if answer.status not in wanted:
            words = (await answer.content.read(_WORDS)).decode(errors="replace").strip()
            if answer.status == 401 and not words:  # the answer to HEAD has no body
                words = "it needs its token; set `origin` to the URL that it printed"
            raise SourceFailed(f"the origin {self.name} answers {answer.status}: {words or answer.reason}")


def _shard(address: bytes) -> str:
    return f"shards/{address.hex()}"


def _listed(body: bytes) -> list[Listed]:
    """What a list says. Raises `ValueError`."""
    found = json.loads(body)
    if not isinstance(found, list) or len(found) > MOST_LISTED:
        raise ValueError("it lists what is no mailbox")
    try:
        return [Listed(str(name), int(size), str(mark), float(at)) for name, size, mark, at in found if MAIL_NAME.fullmatch(str(name))]
    except (TypeError, OverflowError) as error:
        raise ValueError("it lists what is no mailbox") from error
