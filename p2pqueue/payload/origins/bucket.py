"""How are objects kept in a bucket, of S3 or what speaks like it, of Google or of Azure?

By obstore, which is imported when a bucket is used. Credentials come from the environment, by the names that the
makers' own tools know (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME` …).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from p2pqueue.errors import ConfigError
from p2pqueue.payload.origins.objects import Listed, StoreFailed

SCHEMES: Final = {"s3": "AWS_…", "gs": "GOOGLE_…", "az": "AZURE_…", "memory": ""}  # and the variables that its credentials have
TIMEOUT: Final = 60.0  # seconds for one object
SIGNED_FOR: Final = timedelta(minutes=15)  # that a URL holds: longer than any shard takes
_CLIENT: Final = {"allow_http": True, "connect_timeout": "5s", "timeout": f"{TIMEOUT:.0f}s"}  # HTTP only where the endpoint says so
_RETRIES: Final = 2  # by obstore itself; whoever asks tries again later
_WORDS: Final = 300  # characters of what obstore says that are passed on
_FORM: Final = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"


def is_bucket(url: str) -> bool:
    """Says whether a URL names a bucket."""
    return urlsplit(url.strip()).scheme in SCHEMES


class Bucket:
    """Objects of a bucket, those whose names begin with its prefix. Raises `ConfigError` for a URL that names none."""

    def __init__(self, url: str) -> None:
        url = url.strip().rstrip("/")
        parts = urlsplit(url)
        self._scheme = parts.scheme
        if parts.scheme not in SCHEMES or "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"a bucket is named as {_FORM}; its keys come from the environment")
        if parts.scheme != "memory" and not parts.netloc:
            raise ConfigError(f"the name of the bucket is missing; it is written {_FORM}")
        import obstore
        import obstore.store as stores
        from obstore.exceptions import BaseError

        self._obstore: Any = obstore
        self._errors = (BaseError, OSError, ValueError, TimeoutError)
        self.shown = url
        try:
            if parts.scheme == "memory":
                self._store: Any = stores.MemoryStore()
            else:
                opener: Any = stores.from_url
                self._store = opener(url, client_options=_CLIENT, retry_config={"max_retries": _RETRIES})
        except (BaseError, ValueError) as error:
            raise ConfigError(
                f"{url} can't be used: {_plain(error)}; see the variables {SCHEMES[parts.scheme]} of the environment"
            ) from error

    async def check(self) -> None:
        """Asks it for something. Raises `StoreFailed`, in words, where it can't be used."""
        await self.listed("", most=1)

    async def get(self, name: str, *, limit: int) -> bytes | None:
        """As `ObjectStore.get`."""
        body = await self.view(name, limit=limit)
        return None if body is None else bytes(body)

    async def view(self, name: str, *, limit: int) -> memoryview | None:
        """As `ObjectStore.view`."""
        async with self._worded():
            try:
                answer = await self._obstore.get_async(self._store, name)
            except FileNotFoundError as error:
                self._no_bucket(error)
                return None
            if answer.meta["size"] > limit:
                raise StoreFailed(f"{self.shown} has {answer.meta['size']} bytes where {limit} at most were to be")
            return memoryview(await answer.bytes_async())

    async def size(self, name: str) -> int | None:
        """As `ObjectStore.size`."""
        async with self._worded():
            try:
                return int((await self._obstore.head_async(self._store, name))["size"])
            except FileNotFoundError as error:
                self._no_bucket(error)
                return None

    async def put(self, name: str, body: bytes | memoryview) -> None:
        """As `ObjectStore.put`."""
        if self._scheme == "memory":
            body = bytes(body)  # that store would keep the caller's own memory
        async with self._worded():
            await self._obstore.put_async(self._store, name, body, use_multipart=False)

    async def delete(self, name: str) -> None:
        """As `ObjectStore.delete`."""
        async with self._worded():
            try:
                await self._obstore.delete_async(self._store, name)
            except FileNotFoundError as error:
                self._no_bucket(error)

    async def listed(self, prefix: str, *, most: int | None = None) -> list[Listed]:
        """As `ObjectStore.listed`."""
        found: list[Listed] = []
        async with self._worded():
            async for page in self._obstore.list(self._store, prefix=prefix or None):
                for each in page:
                    modified = each["last_modified"].timestamp()
                    found.append(Listed(each["path"], each["size"], each["e_tag"] or f"{modified}", modified))
                    if len(found) == most:
                        return found
        return found

    async def url(self, method: Literal["GET", "PUT"], name: str) -> str | None:
        """As `ObjectStore.url`."""
        if self._scheme == "memory":
            return None
        async with self._worded():
            return str(await self._obstore.sign_async(self._store, method, name, SIGNED_FOR))

    def _no_bucket(self, error: FileNotFoundError) -> None:
        """What is missing may be the bucket itself."""
        if re.search("NoSuchBucket|ContainerNotFound|bucket does not exist", str(error)):
            raise error

    @asynccontextmanager
    async def _worded(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(TIMEOUT):
                yield
        except self._errors as error:
            raise StoreFailed(f"the bucket {self.shown} {self._reason(error)}") from error

    def _reason(self, error: BaseException) -> str:
        text = str(error)
        keys = f"see the variables {SCHEMES[self._scheme]} of the environment"
        if isinstance(error, TimeoutError):
            return f"does not answer within {TIMEOUT:.0f} seconds"
        if re.search(
            r"169\.254\.169\.254|latest/api/token|latest/meta-data|metadata\.google|MissingAccount|Account must be specified", text
        ):
            return f"has no credentials: {keys}"
        if re.search("NoSuchBucket|ContainerNotFound|bucket does not exist", text):
            return "is not there: make it, or mend its name"
        if re.search("RequestTimeTooSkewed|[Dd]ate header too old|used too early", text):
            return "does not answer: the clock of this device is wrong"
        if isinstance(error, PermissionError) or re.search(r"\b40[13]\b|InvalidAccessKey|SignatureDoesNotMatch|AccessDenied", text):
            code = re.search(r"<Code>(\w{1,60})</Code>", text)
            return f"refuses these credentials ({code[1] if code else 'access denied'}): {keys}"
        if "error sending request" in text:
            return "can't be reached: see whether this device is connected, and the endpoint"
        return f"answers: {_plain(error)}"


def _plain(error: BaseException) -> str:
    """What obstore says, without its inner workings, and without what a signature may hold."""
    first = str(error).partition("\n\nDebug source")[0]
    return re.sub(r"\?\S+", "?…", " ".join(first.split()))[:_WORDS]
