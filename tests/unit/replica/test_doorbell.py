"""The local socket carries rings, answers and streams, and stands whatever it is sent."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.errors import MalformedMessage, MisuseError, NodeNotRunning, NoSuchJob, WorldError
from p2pqueue.replica.door import doorbell
from p2pqueue.replica.door.doorbell import DoorbellClient, DoorbellServer, ring
from p2pqueue.replica.door.local_socket import FRAME_LIMIT, connect, frame

Fields = dict[str, Any]


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="p2pq-") as folder:
        yield Path(folder) / "node.sock"


class Node:
    """A node that counts what it hears."""

    def __init__(self, path: Path) -> None:
        self.rings = 0
        self.rung = asyncio.Event()
        self.ended: list[str] = []
        self.server = DoorbellServer(
            path,
            on_ring=self._ring,
            requests={"status": self._status, "missing": self._missing, "broken": self._broken, "big": self._big},
            streams={"count": self._count, "broken": self._broken_stream},
        )

    def _ring(self) -> None:
        self.rings += 1
        self.rung.set()

    async def _status(self, fields: Fields) -> Fields:
        return {"asked": fields}

    async def _missing(self, fields: Fields) -> Fields:
        raise NoSuchJob("no job has the id 'x'")

    async def _broken(self, fields: Fields) -> Fields:
        raise ZeroDivisionError

    async def _big(self, fields: Fields) -> Fields:
        return {"big": b"x" * FRAME_LIMIT}

    async def _count(self, fields: Fields) -> AsyncIterator[Fields]:
        try:
            for number in range(fields["to"]):
                yield {"n": number}
            if fields.get("forever"):
                await asyncio.Event().wait()
        finally:
            self.ended.append("count")

    async def _broken_stream(self, fields: Fields) -> AsyncIterator[Fields]:
        yield {"n": 0}
        raise NoSuchJob("gone")


@pytest.fixture
async def node(path: Path) -> AsyncIterator[Node]:
    made = Node(path)
    await made.server.start()
    yield made
    await made.server.close()


async def heard(node: Node) -> None:
    async with asyncio.timeout(5):
        await node.rung.wait()
    node.rung.clear()


async def test_rings_of_this_process_are_heard_without_a_socket(node: Node, path: Path) -> None:
    for _ in range(3):
        ring(path)
        await heard(node)
    assert node.rings == 3
    assert not node.server._handlers


RING = """import pathlib, sys
from p2pqueue.replica.door.doorbell import ring
[ring(pathlib.Path(sys.argv[1])) for _ in range(3)]
sys.stdin.read()
"""


async def test_another_process_keeps_its_connection_for_the_next_ring(node: Node, path: Path) -> None:
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", RING, str(path), stdin=asyncio.subprocess.PIPE)
    while node.rings < 3:
        await heard(node)
    assert len(node.server._handlers) == 1
    await other.communicate(b"")
    assert other.returncode == 0


def test_a_ring_without_a_node_is_silent(path: Path) -> None:
    ring(path)
    ring(path.with_name("x" * 200))


async def test_a_ring_finds_a_node_that_was_started_again(path: Path) -> None:
    for _ in range(2):
        node = Node(path)
        await node.server.start()
        ring(path)
        ring(path)
        await heard(node)
        await node.server.close()
    ring(path)


async def test_a_request_is_answered(node: Node, path: Path) -> None:
    answer = await asyncio.to_thread(DoorbellClient(path).request, "status", job="x", data=b"\x00")
    assert answer == {"asked": {"job": "x", "data": b"\x00"}}


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("missing", NoSuchJob, "no job has the id 'x'"),
        ("broken", WorldError, "ZeroDivisionError"),
        ("big", MalformedMessage, "262144"),
        ("unheard of", MisuseError, "doesn't answer"),
    ],
)
async def test_what_goes_wrong_at_the_node_is_raised_at_the_client(
    node: Node, path: Path, kind: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await asyncio.to_thread(DoorbellClient(path).request, kind)
    assert await asyncio.to_thread(DoorbellClient(path).request, "status") == {"asked": {}}


async def test_a_stream_gives_its_events_and_ends(node: Node, path: Path) -> None:
    events = await asyncio.to_thread(lambda: list(DoorbellClient(path).stream("count", to=3)))
    assert [event["n"] for event in events] == [0, 1, 2]


async def test_a_stream_that_fails_raises_after_its_events(node: Node, path: Path) -> None:
    stream = DoorbellClient(path).stream("broken")
    assert await asyncio.to_thread(next, stream) == {"n": 0}
    with pytest.raises(NoSuchJob, match="gone"):
        await asyncio.to_thread(next, stream)


async def test_closing_the_client_ends_its_streams_here_and_at_the_node(node: Node, path: Path) -> None:
    client = DoorbellClient(path)
    got = threading.Event()

    def listen() -> int:
        count = 0
        for _ in client.stream("count", to=1, forever=True):
            count += 1
            got.set()
        return count

    listening = asyncio.ensure_future(asyncio.to_thread(listen))
    await asyncio.to_thread(got.wait, 5)
    client.close()
    async with asyncio.timeout(5):
        assert await listening == 1
        while node.server._handlers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert node.ended == ["count"]


async def test_closing_the_node_ends_streams_and_takes_the_socket_away(path: Path) -> None:
    node = Node(path)
    await node.server.start()
    stream = DoorbellClient(path).stream("count", to=1, forever=True)
    assert await asyncio.to_thread(next, stream) == {"n": 0}
    await node.server.close()
    assert await asyncio.to_thread(list, stream) == []
    assert not path.exists()
    with pytest.raises(NodeNotRunning):
        DoorbellClient(path).request("status")


async def test_a_socket_left_by_a_killed_node_is_no_node(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with pytest.raises(NodeNotRunning):
        DoorbellClient(path).request("status")
    node = Node(path)
    await node.server.start()
    assert await asyncio.to_thread(DoorbellClient(path).request, "status") == {"asked": {}}
    await node.server.close()


@pytest.mark.parametrize("umask", [0o000, 0o022])
async def test_the_socket_is_private(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        node = Node(path)
        await node.server.start()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await node.server.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x00",
        struct.pack(">I", 0xFFFFFFFF) + b"x" * 100,
        struct.pack(">I", FRAME_LIMIT + 1),
        struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        struct.pack(">I", 1) + b"\x01",
        struct.pack(">I", 5) + b"\xdf\xff\xff\xff\xff",
        struct.pack(">I", 10) + b"\x91" * 10,
        frame({"kind": "request"}),
        frame({"kind": "request", "name": ["status"], "fields": 7}),
        frame({"kind": "stream", "name": None}),
        frame({"kind": 7}),
        frame({}),
        frame({"kind": "ring", "more": "than is known"}),
    ],
)
async def test_whatever_is_sent_the_node_goes_on(node: Node, path: Path, sent: bytes) -> None:
    with connect(path, timeout=5) as odd:
        odd.sendall(sent)
        odd.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(5):
            while await asyncio.to_thread(odd.recv, 1 << 16):
                pass
    assert await asyncio.to_thread(DoorbellClient(path).request, "status") == {"asked": {}}


async def test_another_user_is_turned_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.replica.door.server.is_own_user", lambda _: False)
    node = Node(path)
    await node.server.start()
    with pytest.raises(NodeNotRunning):
        await asyncio.to_thread(DoorbellClient(path).request, "status")
    assert node.rings == 0
    await node.server.close()


async def test_without_unix_sockets_a_token_is_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.replica.door.local_socket.HAS_UNIX", False)
    node = Node(path)
    await node.server.start()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert await asyncio.to_thread(DoorbellClient(path).request, "status") == {"asked": {}}
    port, token = path.read_text().split()
    path.write_text(f"{port} {'00' * (len(token) // 2)}")
    with pytest.raises(NodeNotRunning):
        await asyncio.to_thread(DoorbellClient(path).request, "status")
    await node.server.close()


def test_the_clients_side_loads_no_event_loop() -> None:
    assert "asyncio" not in vars(doorbell)
