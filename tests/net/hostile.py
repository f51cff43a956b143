"""A device of the space that went bad: `python -m tests.net.hostile HOME HOST [--direct]`.

It has a good certificate, and sends what no device would: sizes that are no sizes, nesting without end, messages that
never end, floods and junk, all well sealed. With `--direct` over WebRTC, else over the link. Prints a line of JSON for
each attack: what it was, and what became of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import struct
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import aiohttp
import msgpack

from p2pqueue.errors import P2PQueueError
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity, load
from p2pqueue.identity.members import Members
from p2pqueue.net import opening
from p2pqueue.net.addresses import AddressBook
from p2pqueue.net.framing import NUMBERS, TOPICS, Topic, split
from p2pqueue.net.greeting import Desk, Greeted, dial
from p2pqueue.net.handshake import INSTANCE_SIZE, Credentials
from p2pqueue.net.hello import PROTOCOLS, Hello
from p2pqueue.net.mesh import Mesh, NetOptions
from p2pqueue.net.notes import TICKET_SIZE, About, Ping
from p2pqueue.net.pipe import Pipe
from p2pqueue.net.twins import Twins
from p2pqueue.net.webrtc.bulk import BulkChannel
from p2pqueue.net.webrtc.channel import ControlChannel

PORT = 7433
MORE = 0x80
WHOLE = 65_000  # bytes of a frame that is as large as may be
SENDING = 20.0  # seconds for one attack
QUIET = 0.15  # seconds for the other side to end it


def bombs() -> Iterator[tuple[str, bytes]]:
    """Messages that claim, nest or hide what they may not."""
    for name, head in (("array", b"\xdd"), ("map", b"\xdf"), ("binary", b"\xc6"), ("text", b"\xdb"), ("extension", b"\xc9")):
        yield f"{name} of 2^32-1", head + b"\xff\xff\xff\xff" + b"\x01" * 100
    yield "10,000 levels of arrays", b"\x91" * 10_000 + b"\x01"
    yield "10,000 levels of maps", b"\x81\xa1k" * 10_000 + b"\x01"
    yield "60,000 empty maps", b"\xdd" + struct.pack(">I", 60_000) + b"\x80" * 60_000
    yield "random bytes", os.urandom(50_000)
    yield "nothing", b""


def messages_of_rows() -> Iterator[tuple[str, bytes]]:
    """Messages between replicas with the right names and the wrong contents."""
    for kind in ("heads", "writes", "ack", "done", "refused", "again", "rows", "ended", "digest", "mend", "more"):
        yield f"{kind} and nothing else", msgpack.packb({"k": kind})
        yield f"{kind} with an endless list", b"\x82\xa1k" + msgpack.packb(kind) + b"\xa1h\xdd\xff\xff\xff\xff"
    nonce, author, most = os.urandom(8), os.urandom(16), 2**63 - 1
    here = [nonce, 1]
    heads = [[os.urandom(16), most, os.urandom(16)] for _ in range(1500)]
    yield "heads beyond all numbers", msgpack.packb({"k": "heads", "r": here, "y": None, "h": heads, "n": [], "m": {}})
    held = [[author, [1, 1] * 10_000]]
    yield "10,000 holes", msgpack.packb({"k": "heads", "r": here, "y": None, "h": [[author, 1, b""]], "n": held, "m": {}})
    yield "all acknowledged for ever", msgpack.packb({"k": "ack", "r": here, "i": [0, most // 2]})
    yield "done with all there could be", msgpack.packb({"k": "done", "r": here, "s": nonce, "c": most, "h": heads})
    rows = [["jobs", "x" * 60, os.urandom(16), number] for number in range(400)]
    yield "rows that never were", msgpack.packb({"k": "rows", "r": here, "w": rows})
    yield "ends that nobody asked for", msgpack.packb({"k": "ended", "r": here, "w": rows, "u": True})
    yield "digests of no table", msgpack.packb({"k": "digest", "h": heads[:500], "n": nonce, "b": {"no such table": os.urandom(1024)}})
    yield "a bucket of no table", msgpack.packb({"k": "more", "b": ["no such table", 5], "c": None})
    writes = {"k": "writes", "r": here, "s": nonce, "i": 1, "a": [], "w": []}
    yield "64 MB of zeros, deflated", msgpack.packb(writes | {"z": zlib.compress(bytes(64_000_000), 9)})
    yield (
        "200,000 maps, deflated",
        msgpack.packb(writes | {"z": zlib.compress(b"\x92\x90\xdd" + struct.pack(">I", 200_000) + b"\x80" * 200_000)}),
    )
    yield "a part of very many", msgpack.packb({"k": "part", "m": os.urandom(12), "i": 0, "n": 2**31, "b": bytes(60_000)})


def signals() -> Iterator[tuple[str, bytes]]:
    """Signals with the right names and the wrong contents."""
    for kind in ("hello", "progress", "done", "of the future"):
        yield f"{kind} of nobody", msgpack.packb({"kind": kind})
        envelope = {"kind": kind, "src": os.urandom(16), "id": os.urandom(8)}
        yield f"{kind} of lists", msgpack.packb(envelope | {name: [[1]] * 9000 for name in ("job", "tasks", "addresses", "links")})


def hellos() -> Iterator[bytes]:
    """Devices that never were, each with a thousand tasks."""
    tasks = [os.urandom(15).hex() for _ in range(1000)]
    for number in range(1500):
        yield msgpack.packb(
            {"kind": "hello", "src": os.urandom(16), "id": os.urandom(8), "label": str(number), "tasks": tasks, "score": 2**62}
            | {"slots": 2**62, "free": 2**62}
        )


def attacks() -> Iterator[tuple[str, Iterable[bytes]]]:
    """Frames by the attack that they make up."""
    more: dict[Topic, list[tuple[str, bytes]]] = {"rows": list(messages_of_rows()), "signal": list(signals())}
    for topic in TOPICS:
        for name, message in [*bombs(), *more.get(topic, [])]:
            yield f"{topic}: {name}", list(split(topic, message))
        yield f"{topic}: a message without end", [bytes([NUMBERS[topic] | MORE]) + bytes(WHOLE)] * 20
        flood = msgpack.packb({"k": "?", "kind": "?", "src": os.urandom(16), "id": os.urandom(8), "x": bytes(30_000)})
        yield f"{topic}: a flood", list(split(topic, flood)) * 300
    parts = (msgpack.packb({"k": "part", "m": os.urandom(12), "i": 0, "n": 4, "b": bytes(60_000)}) for _ in range(200))
    yield "rows: parts of messages that never come", (frame for part in parts for frame in split("rows", part))
    yield "signal: devices that never were", (frame for hello in hellos() for frame in split("signal", hello))
    yield "net: questions without end", [next(split("net", Ping(number).pack())) for number in range(3000)]
    yield "an unknown topic", [b"\x55" + bytes(1000)]
    yield "a long message of an unknown topic", [b"\xd5" + bytes(1000)] * 3
    yield "an empty frame", [b""]


def credentials(identity: Identity) -> Credentials:
    return Credentials(
        identity.space_id, identity.root_public, identity.device_id, os.urandom(INSTANCE_SIZE), identity.chain, identity.sign
    )  # fmt: skip


async def by_link(identity: Identity, host: str) -> None:
    """Each attack over a link of its own."""
    async with opening.session() as client:
        for name, frames in attacks():
            outcome = "went on"
            try:
                async with linked(client, identity, host) as (pipe, greeted):
                    outcome = await attacked(pipe, greeted, frames)
            except (P2PQueueError, OSError, TimeoutError) as error:
                outcome = f"not let in: {error}"
            tell(name, outcome)


@contextlib.asynccontextmanager
async def linked(client: aiohttp.ClientSession, identity: Identity, host: str) -> AsyncIterator[tuple[Pipe, Greeted]]:
    """A link that was greeted as it should be."""
    mine = credentials(identity)
    about = About(identity.label, 0, bytes(TICKET_SIZE), frozenset())
    twins = Twins(identity, mine.instance, holder=lambda proven: None, on_clone=None)
    desk = Desk(Hello(*PROTOCOLS, "0"), lambda: mine, Members(identity).admit, lambda: about, lambda device, change: None, twins)
    pipe = await opened(client, host)
    try:
        greeted = await dial(pipe, desk)
        await pipe.send(greeted.sealer.seal(next(split("net", greeted.mine.pack()))))
        yield pipe, greeted
    finally:
        await pipe.close(4000)


async def opened(client: aiohttp.ClientSession, host: str) -> Pipe:
    """A connection; a busy machine is late at times."""
    for _ in range(10):
        with contextlib.suppress(TimeoutError):
            return await opening.open_pipe(client, host, PORT)
    raise TimeoutError("it lets nobody in")


async def attacked(pipe: Pipe, greeted: Greeted, frames: Iterable[bytes]) -> str:
    """Sends, then listens for a moment; says what became of it."""
    try:
        async with asyncio.timeout(SENDING):
            for frame in frames:
                await pipe.send(greeted.sealer.seal(frame))
        async with asyncio.timeout(QUIET):
            while True:
                await pipe.receive()
    except TimeoutError:
        return "went on"
    except (P2PQueueError, OSError):
        return "ended"


async def directly(identity: Identity, host: str) -> None:
    """The same over WebRTC, each time from a fresh start: what was dropped is offered anew after ever longer waits."""
    for name, frames in itertools.islice(attacks(), 0, None, 4):
        tell(name, await over_webrtc(identity, host, bulk=False, frames=frames))
    for name, frame in bulk_attacks():
        tell(f"bulk: {name}", await over_webrtc(identity, host, bulk=True, frames=[frame] * 100))


async def over_webrtc(identity: Identity, host: str, *, bulk: bool, frames: Iterable[bytes]) -> str:
    mesh = Mesh(
        identity=identity, admit=Members(identity).admit, known=dict, options=NetOptions(peers=(f"{host}:{PORT}",), discovery=False),
        book=AddressBook(), on_up=lambda _peer: None, on_down=lambda _peer, _why: None,
        on_message=lambda _peer, _topic, _message: None, on_bulk=lambda _peer, _channel: None,
    )  # fmt: skip
    await mesh.start()
    try:
        return await poured(mesh, bulk=bulk, frames=frames)
    finally:
        await mesh.close()


async def poured(mesh: Mesh, *, bulk: bool, frames: Iterable[bytes]) -> str:
    """Waits for a direct connection and sends frames over it, past everything that a channel minds."""
    try:
        async with asyncio.timeout(SENDING):
            channel = await open_channel(mesh, bulk=bulk)
            for frame in frames:
                await channel._connection.drained(WHOLE)
                channel._connection.send(frame)
            await channel._connection.drained(0)
            await asyncio.sleep(0.05)
            return "went on" if channel.open else "ended"
    except TimeoutError:
        return "too slow"
    except P2PQueueError:
        return "ended"


async def open_channel(mesh: Mesh, *, bulk: bool) -> ControlChannel | BulkChannel:
    while True:
        for peer in mesh.peers.values():
            if peer.direct is not None and (control := peer.direct.control) is not None:
                return await peer.bulk() if bulk else control
        await asyncio.sleep(0.02)


def bulk_attacks() -> Iterator[tuple[str, bytes]]:
    """Frames of the exchange of shards, behind the byte that a bulk channel begins them with."""
    yield "a frame of nothing", b"\x00"
    yield "a frame of no kind", b"\x09" + bytes(100)
    yield "totals that are none", b"\x01" + b"\xff" * 100
    yield "pieces that nobody asked for", b"\x00" + struct.pack(">BI", 3, 7) + bytes(60_000)
    yield "a shard of 4 GiB", b"\x00" + struct.pack(">BII", 2, 7, 2**32 - 1)
    yield "questions for shards that never were", b"\x00" + struct.pack(">BI32sI", 1, 7, bytes(32), 2**32 - 1)
    yield "half a question", b"\x00" + struct.pack(">BI", 1, 7)


def tell(name: str, outcome: str) -> None:
    print(json.dumps({"attack": name, "outcome": outcome}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("host")
    parser.add_argument("--direct", action="store_true")
    arguments = parser.parse_args()
    attack = directly if arguments.direct else by_link
    asyncio.run(attack(load(Home(arguments.home)), arguments.host))


if __name__ == "__main__":
    main()
