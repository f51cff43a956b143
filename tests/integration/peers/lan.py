"""Devices with homes, keys and stores of their own, and the pipes between them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p2pqueue.errors import PeerGone
from p2pqueue.home import Home
from p2pqueue.identity import keys
from p2pqueue.identity.keys import Identity
from p2pqueue.identity.roles import relays
from p2pqueue.jobs.opening import open_store
from p2pqueue.peers.linked import Topic
from p2pqueue.peers.replication import Replication
from p2pqueue.replica.store import Store
from p2pqueue.replica.syncing.comparing import digests
from p2pqueue.replica.syncing.effects import Report
from p2pqueue.replica.syncing.messages import Message
from p2pqueue.replica.wire.codec import decode
from p2pqueue.replica.write import Head
from p2pqueue.replica.writer import Put, Writer

SPEC = ("default", "echo", b"\x81\xa1x\x01", *(None,) * 11, "owner", "device", 1, b"\x80")
QUEUED = ("queued", 0, 0, *(None,) * 8)
LIMIT = 40.0  # seconds within which whatever must come has come, on the busiest machine


@dataclass
class Weather:
    """What a pipe does to messages. Rates from 0 to 1, seconds."""

    loss: float = 0.0
    twice: float = 0.0
    delay: float = 0.0
    shuffle: float = 0.0  # seconds up to which a message takes longer than others
    room: int = 256 * 1024  # bytes that may be under way in one direction


class End:
    """One side of a pipe: the linked device at the other end, as this side sees it."""

    def __init__(self, owner: Device, other: Device, weather: Weather, role: str) -> None:
        self.device_id, self.role = other.identity.device_id, role
        self.owner, self.other = owner, other
        self.weather = weather
        self.random = random.Random(f"{owner.name}{other.name}")
        self.twin: End
        self.cut = False
        self.sent: list[Message] = []
        self.under_way = 0
        self.most_under_way = 0
        self._room = asyncio.Event()
        self._room.set()

    async def send(self, topic: Topic, message: bytes) -> None:
        while self.under_way > self.weather.room and not self.cut:
            self._room.clear()
            await self._room.wait()
        if self.cut:
            raise PeerGone("the pipe was cut")
        self.send_soon(topic, message)

    def send_soon(self, topic: Topic, message: bytes) -> bool:
        weather, chance = self.weather, self.random.random
        said = decode(message)
        if said is not None:
            self.sent.append(said)
        for _ in range(2 if chance() < weather.twice else 1):
            if chance() < weather.loss:
                continue
            self.under_way += len(message)
            self.most_under_way = max(self.most_under_way, self.under_way)
            asyncio.get_running_loop().call_later(weather.delay + weather.shuffle * chance(), self._arrive, message)
        return True

    def _arrive(self, message: bytes) -> None:
        self.under_way -= len(message)
        self._room.set()
        if not self.cut:
            self.other.replication.received(self.twin, message)

    def end(self) -> None:
        self.cut = True
        self._room.set()
        self.owner.replication.down(self)


class Device:
    """A device that runs."""

    def __init__(self, name: str, home: Home, identity: Identity, store: Store, *, role: str = "owner") -> None:
        self.name, self.home, self.identity, self.store, self.role = name, home, identity, store, role
        self.reports: list[Report] = []
        self.dropped: list[str] = []
        self.ends: list[End] = []
        self.replication = Replication(
            store,
            device_id=identity.device_id,
            relays=relays(role),
            may_relay=relays,
            drop=self._drop,
            on_report=lambda peer, report: self.reports.append(report),
        )

    def _drop(self, peer: Any, words: str) -> None:
        self.dropped.append(words)
        peer.end()
        peer.twin.end()

    async def make(self, count: int = 1, *, title: str = "title") -> list[str]:
        """New jobs with three registers each."""
        return await self.store.write(lambda writer: make_jobs(writer, count, title))

    async def edit(self, jobs: list[str], title: str) -> None:
        """Another title for each, and a state that a worker would write."""
        await self.store.write(lambda writer: edit_jobs(writer, jobs, title))

    async def titles(self) -> dict[str, str]:
        return dict(await self.store.read(lambda connection: connection.execute("SELECT id, title FROM jobs").fetchall()))

    async def heads(self) -> dict[bytes, Head]:
        return await self.store.call(lambda replica: replica.heads())

    async def digests(self) -> dict[str, bytes]:
        return await self.store.read(lambda connection: digests(connection, self.store.replica.shapes))

    async def wait(self, holds: Callable[[], Any], *, limit: float = LIMIT) -> None:
        """Waits until something holds that is looked at again and again."""
        async with asyncio.timeout(limit):
            while True:
                found = holds()
                if await found if asyncio.iscoroutine(found) else found:
                    return
                await asyncio.sleep(0.01)

    async def wait_for_jobs(self, *jobs: str) -> None:
        """Waits until these jobs are committed here."""

        async def here() -> bool:
            return (await self.titles()).keys() >= set(jobs)

        await self.wait(here)


class Lan:
    """Devices of one space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices: dict[str, Device] = {}
        self.running: dict[str, AsyncExitStack] = {}
        self._first: Identity | None = None

    async def device(self, name: str, *, role: str = "owner", copied_from: str | None = None) -> Device:
        """Starts a device: a new one, one whose home is here already, or one with a copy of another's home."""
        home = Home(self.folder / name)
        if copied_from is not None:
            shutil.copytree(self.folder / copied_from, home.path)
        if home.identity_file.exists():
            identity = keys.load(home)
        elif self._first is None:
            identity = self._first = keys.create(home, space_name="test", label=name)
        else:
            identity = keys.restore(home, keys.export_space(self._first), name)
        stack = AsyncExitStack()
        store = await open_store(home, identity)
        stack.push_async_callback(store.close)
        device = self.devices[name] = Device(name, home, identity, store, role=role)
        task = asyncio.get_running_loop().create_task(device.replication.run())
        stack.push_async_callback(_ended, task)
        self.running[name] = stack
        return device

    async def stop(self, name: str) -> None:
        """Stops a device; its home stays."""
        device = self.devices.pop(name)
        for end in list(device.ends):
            self.cut(end)
        await self.running.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self.devices):
            await self.stop(name)

    def link(self, one: Device, two: Device, weather: Weather | None = None) -> End:
        """Joins two devices by a pipe; gives the first one's end."""
        weather = weather or Weather()
        here, there = End(one, two, weather, two.role), End(two, one, weather, one.role)
        here.twin, there.twin = there, here
        for end in (here, there):
            end.owner.ends.append(end)
            end.owner.replication.up(end)
        return here

    def cut(self, end: End) -> None:
        """Cuts a pipe: what is under way is lost."""
        for each in (end, end.twin):
            each.end()
            if each in each.owner.ends:
                each.owner.ends.remove(each)

    async def wait_until_equal(self, *devices: Device, digests: bool = True, limit: float = LIMIT) -> None:
        """Waits until these devices count the same; then their digests must be equal too."""
        first = devices[0]

        async def equal() -> bool:
            heads = [await device.heads() for device in devices]
            return all(each == heads[0] for each in heads)

        await first.wait(equal, limit=limit)
        if digests:
            found = [await device.digests() for device in devices]
            assert all(each == found[0] for each in found)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is not None:
        raise task.exception()  # type: ignore[misc]


@asynccontextmanager
async def lan_in(folder: Path) -> AsyncIterator[Lan]:
    lan = Lan(folder)
    try:
        yield lan
    finally:
        await lan.close()


def make_jobs(writer: Writer, count: int, title: str) -> list[str]:
    made = [writer.new_id() for _ in range(count)]
    writer.put_many(
        "jobs", [put for job in made for put in (Put(job, "spec", SPEC), Put(job, "tune", (title, 1)), Put(job, "state", QUEUED))]
    )
    return made


def edit_jobs(writer: Writer, jobs: list[str], title: str) -> None:
    running = ("running", 1, 1, title, title, writer.now, *(None,) * 5)
    writer.put_many("jobs", [Put(job, "tune", (title, 2)) for job in jobs])
    writer.put_many("jobs", [Put(job, "state", running, None, 1, 1) for job in jobs])
