"""Where a node can be reached."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from p2pqueue.errors import ConfigError, WorldError
from p2pqueue.net import listener as listening
from p2pqueue.net.door import Door
from p2pqueue.net.listener import Bound, Listener, bind


def holding(stack: ExitStack, host: str = "127.0.0.1") -> int:
    return int(stack.enter_context(socket.create_server((host, 0))).getsockname()[1])


def released(sockets: list[socket.socket]) -> set[tuple[str, int]]:
    names = {made.getsockname()[:2] for made in sockets}
    for made in sockets:
        made.close()
    return names


def test_the_next_free_port_is_taken_where_the_usual_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        taken = holding(stack, "0.0.0.0")
        monkeypatch.setattr(listening, "DEFAULT_PORT", taken)
        ports = {port for _, port in released(bind(None))}
        assert len(ports) == 1
        assert ports != {taken}


def test_all_addresses_of_both_families_share_one_port() -> None:
    names = released(bind(":0"))
    assert len({port for _, port in names}) == 1
    assert {host for host, _ in names} <= {"0.0.0.0", "::"}


def test_a_port_that_was_named_and_is_taken_is_an_error_in_words() -> None:
    with ExitStack() as stack:
        taken = holding(stack)
        with pytest.raises(WorldError, match=rf"--listen 127.0.0.1:{taken}: the port can't be opened .*; choose another"):
            bind(f"127.0.0.1:{taken}")


@pytest.mark.parametrize("wanted", ["127.0.0.1:many", "no such host:1", "127.0.0.1:70000", ":x"])
def test_what_is_no_address_is_an_error_in_words(wanted: str) -> None:
    with pytest.raises(ConfigError, match="no address to listen at"):
        released(bind(wanted))


async def test_the_same_port_is_taken_again_after_a_pause() -> None:
    async def nobody(pipe: Any, request: web.Request) -> None:
        await pipe.close(4000)

    listener = Listener(None, on_link=nobody, door=Door())
    first = await listener.start()
    await listener.close()
    second = await listener.start()
    await listener.close()
    assert first == second
    assert isinstance(first, Bound)


async def test_routes_that_are_passed_in_are_served_beside() -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["name"])

    async def nobody(pipe: Any, request: web.Request) -> None:
        await pipe.close(4000)

    listener = Listener("127.0.0.1:0", on_link=nobody, routes=[web.get("/shards/{name}", hello)], door=Door())
    bound = await listener.start()
    try:
        async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{bound.port}/shards/abc") as response:
            assert await response.text() == "abc"
    finally:
        await listener.close()


async def test_whoever_goes_before_the_answer_makes_no_words(caplog: pytest.LogCaptureFixture) -> None:
    """A device that dials several addresses gives all of them up but one."""

    async def late(request: web.Request) -> web.Response:
        raise ConnectionResetError("Cannot write to closing transport")

    async def nobody(pipe: Any, request: web.Request) -> None:
        await pipe.close(4000)

    listener = Listener("127.0.0.1:0", on_link=nobody, routes=[web.get("/late", late)], door=Door())
    bound = await listener.start()
    try:
        async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{bound.port}/late") as response:
            assert response.status == 500
    finally:
        await listener.close()
    assert "Traceback" not in caplog.text
