"""Where a node runs, it is asked: for a code, and for what it knows of linked devices."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from p2pqueue.home import Home
from p2pqueue.identity.keys import load
from p2pqueue.identity.members import Refusal
from p2pqueue.jobs.opening import open_store
from p2pqueue.net import trying
from p2pqueue.net.addresses import AddressBook
from p2pqueue.net.mesh import Mesh, NetOptions
from p2pqueue.nodelock import NodeLock
from p2pqueue.peers.inviting import addresses_of
from p2pqueue.peers.pairing import Invitations
from p2pqueue.replica.door.server import DoorbellServer, Fields
from tests.integration.cli.conftest import PATIENCE, CommandLine


@asynccontextmanager
async def node(home: Home, *, peers: dict[str, Any]) -> AsyncIterator[None]:
    """The part of a node that pairs: its lock, its local socket and its listener."""
    identity = load(home)
    async with AsyncExitStack() as stack:
        stack.enter_context(NodeLock(home.node_lock_file))
        store = await open_store(home, identity)
        stack.push_async_callback(store.close)
        where: list[str] = []
        invitations = Invitations(identity=identity, write=store.write, addresses=lambda: where)
        mesh = Mesh(
            identity=identity, admit=lambda _chain: Refusal("nobody"), known=dict, options=NetOptions("127.0.0.1:0", discovery=False),
            book=AddressBook(), on_up=print, on_down=print, on_message=print, pairing=invitations.serve,
        )  # fmt: skip
        where += addresses_of(await mesh.start())
        stack.push_async_callback(mesh.close)

        async def devices(_fields: Fields) -> Fields:
            return {"peers": peers}

        server = DoorbellServer(
            home.socket_path, on_ring=lambda: None, requests={"devices": devices}, streams={"invite": invitations.asked}
        )
        await server.start()
        stack.push_async_callback(server.close)
        yield


@pytest.fixture
def home(p2p: CommandLine) -> Home:
    return Home(p2p.home)


async def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    return process.returncode, out, err


async def test_the_running_node_makes_the_code_and_lets_the_device_in(p2p: CommandLine, home: Home) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    async with node(home, peers={}):
        inviting = p2p.start("invite", "--json", "--role", "viewer", "--interface", "lo")
        assert inviting.stdout is not None
        shown = json.loads(await asyncio.to_thread(inviting.stdout.readline))
        wrong = p2p.start("invite", "--json")
        assert (await finished(wrong))[0] == 1  # one at a time
        joining = other.start("join", shown["code"], "--peer", shown["addresses"][0], "--json")
        code, out, err = await finished(joining)
        assert (code, json.loads(out)["role"]) == (0, "viewer"), err
        code, out, err = await finished(inviting)
        assert (code, json.loads(out)["joined"]["role"]) == (0, "viewer")
        assert "--listen and --interface count without one" in err


async def test_a_node_that_stops_takes_its_code_with_it(p2p: CommandLine, home: Home) -> None:
    async with node(home, peers={}):
        inviting = p2p.start("invite", "--json")
        assert inviting.stdout is not None
        await asyncio.to_thread(inviting.stdout.readline)
    code, _, err = await finished(inviting)
    assert code == 4
    assert "the code with it" in err


async def test_a_code_of_the_node_expires_too(p2p: CommandLine, home: Home) -> None:
    async with node(home, peers={}):
        assert (await finished(p2p.start("invite", "--ttl", "0.1")))[0] == 6


async def test_the_list_tells_what_the_node_knows(p2p: CommandLine, home: Home) -> None:
    (own,) = p2p("devices", "--json").json["devices"]
    with_link = {"path": "webrtc", "rtt": 0.0012, "clock_offset": -1.5, "since": 3.0, "address": ["10.0.0.7", 7433], "version": "0.1.0"}
    async with node(home, peers={own["id"]: with_link}):
        _, out, _ = await finished(p2p.start("devices", "--json"))
        (shown,) = json.loads(out)["devices"]
        assert (shown["online"], shown["path"], shown["rtt"], shown["clock_offset"]) == (True, "webrtc", 0.0012, -1.5)
        assert (shown["address"], shown["version"]) == ("10.0.0.7:7433", "0.1.0")
        _, out, _ = await finished(p2p.start("devices"))
        assert out.splitlines()[1].split()[5:10] == ["webrtc", "1.2", "ms", "-1500", "ms"]
        code, _, err = await finished(p2p.start("identity", "renew"))
        assert (code, "another node" in err) == (5, True)


def test_two_nodes_know_one_another_after_the_pairing_and_link(p2p: CommandLine) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    net = ("--no-work", "--interface", "lo", "--no-discovery", "--listen", "127.0.0.1:0")
    with p2p.node(*net, app=None):
        inviting = p2p.start("invite", "--json")
        assert inviting.stdout is not None
        shown = json.loads(inviting.stdout.readline())
        other("join", shown["code"], "--peer", shown["addresses"][0], "--label", "laptop")
        assert inviting.communicate(timeout=PATIENCE)[0]
        with other.node(*net, app=None):  # by the address at which it was paired
            wait_until(lambda: all(online(each) == {"box": True, "laptop": True} for each in (p2p, other)))


@pytest.mark.parametrize("end", ["expired", "withdrawn"])
def test_a_node_by_itself_listens_no_longer_than_its_invitation(p2p: CommandLine, end: str) -> None:
    with p2p.node("--no-work", "--interface", "lo", "--no-discovery", app=None):
        inviting = p2p.start("invite", "--json", *(["--ttl", "1s"] if end == "expired" else []))
        assert inviting.stdout is not None
        port = int(json.loads(inviting.stdout.readline())["addresses"][0].rpartition(":")[2])
        if end == "withdrawn":
            trying.connect("127.0.0.1", port)
            inviting.terminate()
        inviting.communicate(timeout=PATIENCE)
        wait_until(lambda: p2p("status", "--json").json["node"]["network"]["online"] is False)
        with pytest.raises(ConnectionRefusedError):
            trying.connect("127.0.0.1", port)
        other = CommandLine(p2p.home.parent / "other", p2p.environment)
        again = p2p.start("invite", "--json")
        assert again.stdout is not None
        shown = json.loads(again.stdout.readline())
        other("join", shown["code"], "--peer", shown["addresses"][0], "--label", "laptop")
        assert again.communicate(timeout=PATIENCE)[0]
        assert p2p("status", "--json").json["node"]["network"]["online"] is True


def online(p2p: CommandLine) -> dict[str, bool]:
    return {each["label"]: each["online"] for each in p2p("devices", "--json").json["devices"]}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it took longer than it may"
        time.sleep(0.1)
