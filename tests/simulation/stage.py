"""How is a trace told step by step? Devices by name, links opened and closed by hand, and messages lost by choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from p2pqueue.replica.replica import Replica, Writer
from p2pqueue.replica.syncing.messages import Message
from tests.simulation.device import Device
from tests.simulation.invariants import check_equal, heads_of
from tests.simulation.network import Link, Weather
from tests.simulation.plan import Plan
from tests.simulation.world import World

LONG_ENOUGH = 8.0  # seconds of a session: two heads and what follows


class Stage:
    """A world without a plan."""

    def __init__(self, names: str, *, workers: Iterable[str] = (), digest_every: float = 240.0, **weather: Any) -> None:
        self.world = World(Plan(0, len(names), "none", Weather(**weather), (0,) * len(names), ()))
        self.world.workers = set(workers)
        self.world.digest_every = digest_every
        self.world.devices = [Device(name, lambda: self.world.schedule.now, 0) for name in names]
        for device in self.world.devices:
            device.start()

    def __getitem__(self, name: str) -> Device:
        return next(device for device in self.world.devices if device.name == name)

    def replica(self, name: str) -> Replica:
        replica = self[name].replica
        assert replica is not None
        return replica

    def write(self, name: str, fn: Callable[[Writer], Any]) -> Any:
        """A local transaction of a device."""
        return self[name].write(fn)

    def link(self, one: str, two: str) -> Link:
        """Opens a link that stays open."""
        link = Link(self.world, (self[one], self[two]))
        self.world.links.append(link)
        link.open()
        return link

    def run(self, seconds: float = LONG_ENOUGH) -> None:
        """Lets time pass."""
        self.world.schedule.run(self.world.schedule.now + seconds)

    def sync(self, one: str, two: str, seconds: float = LONG_ENOUGH) -> None:
        """A session from its beginning to its end."""
        link = self.link(one, two)
        self.run(seconds)
        link.close()

    def losing(self, loses: Callable[[Device, Device, Message], bool]) -> None:
        """From now on these messages are lost."""
        self.world.loses = loses

    def losing_nothing(self) -> None:
        self.world.loses = lambda sender, receiver, message: False

    def destroy(self, name: str) -> None:
        """The disk dies, and the device with it."""
        device = self[name]
        device.stop()
        device.image, device.gone = None, True

    def put_back(self, name: str, image: bytes, *, seen: bool) -> None:
        """An old copy of the disk is put back; `seen` if the device notices when it opens it."""
        device = self[name]
        device.stop()
        device.image = image
        device.machine += seen
        device.start()

    def job(self, name: str, key: str) -> dict[str, Any] | None:
        """The row of a job as a device shows it."""
        cursor = self.replica(name).connection.execute("SELECT * FROM jobs WHERE id = ?", (key,))
        row = cursor.fetchone()
        return None if row is None else dict(zip([column[0] for column in cursor.description], row, strict=True))

    def title(self, name: str, key: str) -> Any:
        row = self.job(name, key)
        return None if row is None else row["title"]

    def head(self, name: str, author: bytes) -> int:
        return heads_of(self[name]).get(author, 0)

    def are_equal(self, *names: str) -> bool:
        """Says whether heads and tables of these devices are equal; raises `Violation` if heads are and tables aren't."""
        first, *others = (self[name] for name in names)
        for other in others:
            if heads_of(first) != heads_of(other):
                return False
            check_equal(first, other, self.world.dropped)
        return True


def enqueue(key: str, title: str = "", **spec: Any) -> Callable[[Writer], None]:
    """Enqueues a job under a key."""

    def fn(writer: Writer) -> None:
        writer.put("jobs", key, "spec", {"queue": "q", "task": "t", "args": b"\x80", "created_at": writer.now, **spec})
        if title:
            writer.put("jobs", key, "tune", {"title": title})

    return fn


def tune(key: str, title: str) -> Callable[[Writer], None]:
    """Sets the title of a job."""

    def fn(writer: Writer) -> None:
        writer.put("jobs", key, "tune", {"title": title})

    return fn


def end(key: str, status: str = "succeeded", rank: int = 2) -> Callable[[Writer], None]:
    """Ends a job, in the life that it is in."""

    def fn(writer: Writer) -> None:
        generation = writer.life("jobs", key) << 16
        values = {"status": status, "finished_at": writer.now}
        writer.put("jobs", key, "state", values, generation=generation, rank=rank, earliest=True)

    return fn


def again(key: str) -> Callable[[Writer], None]:
    """Enqueues a key anew whose job has ended: the next life."""

    def fn(writer: Writer) -> None:
        generation = (writer.life("jobs", key) + 1) << 16
        writer.put("jobs", key, "spec", {"queue": "q", "task": "t", "args": b"\x80", "created_at": writer.now}, generation=generation)

    return fn
