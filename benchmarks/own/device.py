"""What is a device in the benchmarks of replication? A process with a home, told what to do by lines of its input.

    python -m benchmarks.own.device HOME

Each line is a JSON list, a command and its arguments; each is answered by one line. The link between two devices
is a plain TCP connection on loopback that carries messages as they are.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from p2pqueue.errors import WorldError
from p2pqueue.home import Home
from p2pqueue.identity.keys import load
from p2pqueue.jobs import ledger
from p2pqueue.jobs.ledger import NewJob
from p2pqueue.jobs.opening import open_store
from p2pqueue.peers.linked import Topic
from p2pqueue.peers.replication import Replication
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Put, Writer

BATCH = 1_000  # jobs in a transaction
LOOK_EVERY = 0.02  # seconds between two looks at the database, for what is timed to the end
BUFFER = 256 * 1024  # bytes that wait to be sent, as on the control channel
JOB = NewJob("echo", b"\x81\xa1x\x01", title="title", priority=1, owner="owner")
QUEUED = ("queued", 0, 0, *(None,) * 8)


class StreamPeer:
    """A linked device at the other end of a TCP connection."""

    role = "owner"

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.device_id = ""
        self._reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(BUFFER)

    async def send(self, topic: Topic, message: bytes) -> None:
        """Sends a message once there is room."""
        if self._writer.is_closing():
            raise WorldError("the connection is closed")
        self._writer.write(len(message).to_bytes(4, "big") + message)
        await self._writer.drain()

    def send_soon(self, topic: Topic, message: bytes) -> bool:
        """Sends a message at once."""
        self._writer.write(len(message).to_bytes(4, "big") + message)
        return True

    async def greet(self, device_id: str) -> None:
        """Tells who is there, and hears who is at the other end."""
        await self.send("net", device_id.encode())
        self.device_id = (await self.receive()).decode()

    async def receive(self) -> bytes:
        """The next message."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    def close(self) -> None:
        """Ends the connection."""
        self._writer.close()


class Device:
    """A home that replicates with whom it is told to."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.identity = load(home)
        self.store: Store
        self.replication: Replication
        self._group: asyncio.TaskGroup
        self._peers: list[StreamPeer] = []

    async def run(self, commands: asyncio.StreamReader) -> None:
        """Obeys until the input ends."""
        async with AsyncExitStack() as stack:
            self.store = await open_store(self.home, self.identity)
            stack.push_async_callback(self.store.close)
            self.replication = Replication(
                self.store,
                device_id=self.identity.device_id,
                relays=True,
                may_relay=lambda role: True,
                drop=lambda peer, words: sys.exit(f"{peer.device_id}: {words}"),
            )
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self._port = server.sockets[0].getsockname()[1]
            stack.callback(server.close)
            async with asyncio.TaskGroup() as group:
                self._group = group
                running = group.create_task(self.replication.run())
                while line := await commands.readline():
                    name, *arguments = json.loads(line)
                    answer = await self._command(name)(*arguments)
                    print(json.dumps(answer), flush=True)
                await self.cut()
                running.cancel()

    def _command(self, name: str) -> Callable[..., Awaitable[Any]]:
        commands: dict[str, Callable[..., Awaitable[Any]]] = {
            "port": self.port, "join": self.join, "cut": self.cut, "make": self.make, "edit": self.edit, "equal": self.equal,
            "jobs": self.jobs, "write": self.write, "seen": self.seen, "usage": self.usage,
        }  # fmt: skip
        return commands[name]

    async def port(self) -> int:
        """Where this device listens."""
        return int(self._port)

    async def join(self, port: int) -> float:
        """Links with the device that listens there; gives the time."""
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        self._group.create_task(self._carry(StreamPeer(reader, writer)))
        return begun

    async def cut(self) -> None:
        """Ends all links."""
        for peer in self._peers:
            peer.close()

    async def make(self, count: int) -> int:
        """Makes so many jobs of three registers each."""
        for start in range(0, count, BATCH):
            await self.store.write(partial(make_jobs, count=min(BATCH, count - start)))
        return count

    async def edit(self, title: str, count: int) -> int:
        """Changes title and state of the first jobs, as a person and a worker do."""
        keys = await self.store.read(lambda connection: connection.execute("SELECT id FROM jobs ORDER BY id LIMIT ?", (count,)).fetchall())
        for start in range(0, len(keys), BATCH):
            part = [key for (key,) in keys[start : start + BATCH]]
            await self.store.write(lambda writer, part=part: edit_jobs(writer, part, title))  # type: ignore[misc]
        return len(keys)

    async def jobs(self, count: int, limit: float) -> float:
        """Waits until so many jobs are here; gives the time."""
        query = "SELECT coalesce(sum(n), 0) FROM counts WHERE tbl = 'jobs'"
        return await self._wait(lambda: self.store.read(lambda connection: connection.execute(query).fetchone()[0] >= count), limit)

    async def equal(self, limit: float) -> float:
        """Waits until both sides count the same; gives the time."""

        async def compared() -> bool:
            states = self.replication.status().values()
            return bool(states) and all(state["in_sync"] for state in states)

        return await self._wait(compared, limit)

    async def write(self, count: int, pause: float) -> dict[str, float]:
        """Makes jobs one at a time; gives when each was durable."""
        done = {}
        for _ in range(count):
            key = await self.store.write(lambda writer: make_jobs(writer, 1)[0])
            done[key] = time.monotonic()
            await asyncio.sleep(pause)
        return done

    async def seen(self, count: int, limit: float) -> dict[str, float]:
        """When the next jobs were committed here: that many."""
        found: dict[str, float] = {}
        async with asyncio.timeout(limit), self.store.subscribe() as changes:
            print("null", flush=True)
            async for rows in changes:
                moment = time.monotonic()
                for table, key in rows or ():
                    if table == "jobs":
                        found.setdefault(key, moment)
                if len(found) >= count:
                    break
        return found

    async def usage(self) -> dict[str, Any]:
        """Highest resident memory in MB, CPU seconds, and how replication stands."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"rss": used.ru_maxrss / 1024, "cpu": used.ru_utime + used.ru_stime, "status": self.replication.status()}

    async def _wait(self, holds: Callable[[], Awaitable[bool]], limit: float) -> float:
        async with asyncio.timeout(limit):
            while not await holds():  # noqa: ASYNC110  what is waited for stands in a database
                await asyncio.sleep(LOOK_EVERY)
        return time.monotonic()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._group.create_task(self._carry(StreamPeer(reader, writer)))

    async def _carry(self, peer: StreamPeer) -> None:
        self._peers.append(peer)
        try:
            await peer.greet(self.identity.device_id)
            self.replication.up(peer)
            while True:
                self.replication.received(peer, await peer.receive())
        except (OSError, asyncio.IncompleteReadError, WorldError):
            self.replication.down(peer)
        finally:
            self._peers.remove(peer)
            peer.close()


def make_jobs(writer: Writer, count: int) -> list[str]:
    """New jobs as `enqueue_many` makes them, with three registers: what they are, their title, their state."""
    made = [job.id for job in ledger.enqueue_many(writer, [JOB] * count)]
    writer.put_many("jobs", [Put(job, "state", QUEUED) for job in made])
    return made


def edit_jobs(writer: Writer, keys: list[str], title: str) -> None:
    """A title and a state for each."""
    running = ("running", 1, 1, title, title, writer.now, None, None, None, None, None)
    writer.put_many("jobs", [Put(key, "tune", (title, 2)) for key in keys])
    writer.put_many("jobs", [Put(key, "state", running, None, 1, 1) for key in keys])


async def main(home: str) -> None:
    """Reads commands until they end."""
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    await Device(Home(Path(home))).run(commands)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
