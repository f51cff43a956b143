"""fake-gcs-server, which speaks as Google's storage does, on loopback.

It takes a body by the XML interface only where the URL is signed, and gives no mark of it as Google's does. Something
in front of it makes each `PUT` look signed, and adds a mark to the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import aiohttp
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from yarl import URL

from tests.integration.clouds.emulator import free_port, running

_SIGNED = "X-Goog-Algorithm"


@contextlib.contextmanager
def google(program: str, folder: Path, bucket: str) -> Iterator[dict[str, str]]:
    """Runs it with an empty bucket; gives the variables by which a node reaches it."""
    port, behind = free_port(), free_port()
    flags = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(behind), "-public-host", f"127.0.0.1:{port}"]
    with running([program, *flags, "-external-url", f"http://127.0.0.1:{port}"], behind), _in_front(port, behind):
        made = urllib.request.Request(f"http://127.0.0.1:{behind}/storage/v1/b?project=x", data=json.dumps({"name": bucket}).encode())
        urllib.request.urlopen(made).close()
        account = folder / "account.json"
        account.write_text(json.dumps(_account()))
        yield {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_BASE_URL": f"http://127.0.0.1:{port}"}


def _account() -> dict[str, str]:
    private = rsa.generate_private_key(65537, 2048)
    pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {
        "type": "service_account", "private_key": pem.decode(), "private_key_id": "key", "client_email": "node@example.invalid",
        "token_uri": "http://127.0.0.1:9/",
    }  # fmt: skip


@contextlib.contextmanager
def _in_front(port: int, behind: int) -> Iterator[None]:
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    ready = threading.Event()

    async def serve() -> None:
        async with aiohttp.ClientSession(auto_decompress=False) as session:

            async def pass_on(request: web.Request) -> web.StreamResponse:
                url = URL(f"http://127.0.0.1:{behind}{request.raw_path}", encoded=True)
                if request.method == "PUT" and _SIGNED not in request.query:
                    url = URL(f"{url}{'&' if request.query else '?'}{_SIGNED}=x", encoded=True)
                headers = {name: value for name, value in request.headers.items() if name not in ("Authorization", "Transfer-Encoding")}
                async with session.request(request.method, url, data=io.BytesIO(await request.read()), headers=headers) as answer:
                    given = {name: value for name, value in answer.headers.items() if name not in ("Transfer-Encoding", "Content-Length")}
                    body = await answer.read()
                    if request.method == "PUT":
                        given.setdefault("ETag", '"put"')
                    if request.method == "HEAD":
                        given["Content-Length"] = answer.headers.get("Content-Length", "0")
                    return web.Response(status=answer.status, headers=given, body=body)

            app = web.Application(client_max_size=1 << 24)
            app.router.add_route("*", "/{path:.*}", pass_on)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            ready.set()
            await stop.wait()
            await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()
