"""Origins and buckets on loopback, for tests."""

from __future__ import annotations

import contextlib
import logging
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from p2pqueue.payload.origins.client import OriginClient, parse_origin
from p2pqueue.payload.origins.folder import Folder
from p2pqueue.payload.origins.keeping import Keeping
from p2pqueue.payload.origins.objects import ObjectStore
from p2pqueue.payload.origins.origin import Origin

TOKEN = "t0ken"
BUCKET = "bucket"
Clients = Callable[[str], OriginClient]


async def keeping_in(folder: Path, *, quota: int = 10_000_000) -> Keeping:
    return await Keeping.open(Folder(folder), quota=quota, state=folder / "read.json")


@contextlib.asynccontextmanager
async def serving(keeping: Keeping, *, open_reading: bool = False, signs: bool = False) -> AsyncIterator[Clients]:
    """Gives what makes a client by its token."""
    async with answering(Origin(keeping, token=TOKEN, open_reading=open_reading, signs=signs).app) as base:
        async with aiohttp.ClientSession() as session:
            yield lambda token: OriginClient(parse_origin(base.replace("//", f"//{token}@")), lambda: session)


@contextlib.asynccontextmanager
async def answering(app: web.Application) -> AsyncIterator[str]:
    """Serves an application; gives its URL."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """A server that speaks S3, with an empty bucket; gives its URL."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
        yield url
    finally:
        server.stop()


def environment_of(endpoint: str) -> dict[str, str]:
    """The variables by which a bucket of such a server is reached."""
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


async def names_in(store: ObjectStore) -> list[str]:
    return sorted([each.name for each in await store.listed("shards/")] + [each.name for each in await store.listed("mail/")])
