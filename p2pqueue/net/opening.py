"""How does this device open a connection to another one's listener?"""

from __future__ import annotations

import asyncio
import functools
import ipaddress

import aiohttp

from p2pqueue.net.pipe import CLOSE_WAIT, Pipe
from p2pqueue.wire import FRAME_LIMIT

CONNECT_WAIT = 1.5  # seconds for TCP and the upgrade to WebSocket: on a LAN it takes 2 ms


def session() -> aiohttp.ClientSession:
    """What connections are opened with; to be closed. No proxy of the environment, no cookies, no kept connections."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True, use_dns_cache=False, happy_eyeballs_delay=None)
    return aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)


async def open_pipe(client: aiohttp.ClientSession, host: str, port: int) -> Pipe:
    """A WebSocket to that device. Raises `OSError`, `aiohttp.ClientError` or `TimeoutError`."""
    async with asyncio.timeout(CONNECT_WAIT):
        ws = await client.ws_connect(
            f"http://{bracketed(host)}:{port}/link",
            compress=0,
            max_msg_size=FRAME_LIMIT + 1024,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_WAIT),
        )
    return Pipe(ws, (host, port))


@functools.lru_cache(1024)  # asked for each shard that goes out
def bracketed(host: str) -> str:
    """The host as it stands in a URL."""
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
