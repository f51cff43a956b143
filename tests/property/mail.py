"""Replicas that write to one another by a mailbox, in a store that is late, forgets and repeats as it is told to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from p2pqueue.identity.members import Member
from p2pqueue.identity.roles import relays
from p2pqueue.jobs.tables import TABLES
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.payload.origins.objects import Listed
from p2pqueue.peers.mail.format import MailKeys
from p2pqueue.peers.mail.inbox import Inbox
from p2pqueue.peers.mail.outbox import Outbox
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.syncing.comparing import digests
from p2pqueue.replica.syncing.effects import Answer, Report, Request, Send
from p2pqueue.replica.syncing.messages import Message
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.syncing.sync import Session
from p2pqueue.replica.wire.codec import decode, encode
from tests.simulation.device import EPOCH_MS, Key

SPACE_KEY = b"k" * 32


@dataclass
class Place:
    """A store of mail.

    What it lists of an outbox is of so many changes ago as `late` says; of each outbox so many of the next readings as
    `lost` says find nothing; and so many of the next requests as `fails` says come to nothing.
    """

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    history: list[dict[str, tuple[bytes, int]]] = field(default_factory=lambda: [{}])
    late: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    fails: int = 0
    puts: int = 0
    reads: int = 0

    async def list_mail(self, space: str) -> list[Listed]:
        self._may_fail()
        found: dict[str, tuple[bytes, int]] = {}
        for tag in {name.split("/")[1] for shown in self.history for name in shown}:
            shown = self.history[max(0, len(self.history) - 1 - self.late.get(tag, 0))]
            found.update((name, each) for name, each in shown.items() if name.split("/")[1] == tag)
        return [Listed(name, len(body), str(mark), 0.0) for name, (body, mark) in found.items() if name.startswith(space)]

    async def get_mail(self, name: str, *, limit: int) -> bytes | None:
        self._may_fail()
        self.reads += 1
        tag = name.split("/")[1]
        if self.lost.get(tag):
            self.lost[tag] -= 1
            return None
        if name in self.objects:
            assert len(self.objects[name][0]) <= limit
        return self.objects[name][0] if name in self.objects else None

    async def put_mail(self, name: str, body: bytes) -> None:
        self._may_fail()
        self.puts += 1
        self.objects[name] = (body, self.puts)
        self.history.append(dict(self.objects))

    async def delete_mail(self, name: str) -> None:
        self._may_fail()
        self.objects.pop(name, None)
        self.history.append(dict(self.objects))

    def _may_fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise SourceFailed("the store is away")


class Hand:
    """Carries out requests at once."""

    async def answer(self, peering: Peering, request: Request) -> Answer:
        return peering.answer(request)

    async def read(self, data: bytes) -> Message | None:
        return decode(data)

    async def pack(self, message: Message, *, deflate: bool) -> bytes:
        return encode(message, deflate=deflate)


@dataclass
class Signer:
    key: Key

    @property
    def chain(self) -> tuple[bytes, ...]:
        return (self.key.label.encode(),)

    def sign(self, body: bytes) -> bytes:
        return self.key.sign(body)


class Correspondent:
    """A device that meets the others by mail alone."""

    def __init__(self, name: str, image: bytes | None, world: World) -> None:
        self.world, self.key = world, Key(name)
        self.starts = 0
        self._begin(image)

    def _begin(self, image: bytes | None) -> None:
        """The device starts, with that disk."""
        self.starts += 1
        world, place, role = self.world, self.world.place, self.world.roles[self.key.label]
        self.replica = Replica.open(
            ":memory:", tables=TABLES, identity=self.key, machine=self.key.label, wall=world.wall, image=image,
            random=random.Random(f"{self.key.label} {self.starts}").randbytes,
        )  # fmt: skip
        self.random = random.Random(f"mail {self.key.label} {self.starts}")
        keys = MailKeys(SPACE_KEY, self.random.randbytes)
        self.inbox = Inbox(keys, self.key.device_id, world.admit, place, Hand(), self._peering, self._authors_of, lambda: world.now)
        self.outbox = Outbox(
            keys, Signer(self.key), world.member(self.key.label), relays(role), place, Hand(), self._peering(self.key.device_id, True),
            self._authors_of, lambda: world.now, world.wall, self.random.randbytes,
        )  # fmt: skip
        self.has_looked = False

    def _peering(self, device_id: str, peer_relays: bool) -> Peering:
        return Peering(self.replica, device_id, peer_relays=peer_relays)

    async def _authors_of(self, device_id: str) -> set[bytes]:
        rows = self.replica.read(lambda c: c.execute("SELECT author FROM authors WHERE device = ?", (device_id,)).fetchall())
        return {bytes.fromhex(author) for (author,) in rows}

    def look(self) -> None:
        """Reads what the others wrote, as far as the store lets it."""
        try:
            asyncio.run(self._look())
        except SourceFailed:
            pass

    async def _look(self) -> None:
        listed = await self.world.place.list_mail(self.inbox.keys.space)
        await self.inbox.look(listed)
        self.outbox.listed(listed, self.inbox.seen.get(self.outbox.tag))
        await self.inbox.take()
        self.has_looked = True

    def post(self, *, acknowledge: bool = True) -> bool:
        """Writes what others may lack; says whether there was anything."""
        if not self.has_looked:
            return False
        known = [Key(name).device_id for name in self.world.roles if name != self.key.label]
        try:
            posted = asyncio.run(
                self.outbox.post(self.inbox.seen, known=known, refused=self.inbox.refused, acknowledge=acknowledge)
            )  # fmt: skip
        except SourceFailed:
            return True
        if posted and self.outbox.index is not None:
            self.inbox.posted(self.outbox.tag, self.outbox.name, self.outbox.member, self.outbox.index)
        return posted

    def restart(self, image: bytes | None = None) -> None:
        """The device starts again, from its disk or from a copy of it."""
        disk = self.replica.image() if image is None else image
        self.replica.close()
        self._begin(disk)

    def restart_outbox(self) -> None:
        """Forgets what it has put there, so that all is written again."""
        self.outbox.index, self.outbox.name = None, ""
        self.inbox.seen.pop(self.outbox.tag, None)

    def write(self, choice: int) -> None:
        """Makes a job, or changes one."""

        def fn(writer: Any) -> None:
            key = f"job {choice}"
            if choice < 3 or writer.connection.execute("SELECT 1 FROM jobs WHERE id = ?", (key,)).fetchone() is None:
                writer.put("jobs", key, "spec", {"queue": "q", "task": "t", "created_at": writer.now})
            for _ in range(choice):
                writer.put("jobs", key, "tune", {"title": f"{self.key.label} {writer.hlc}"})

        self.replica.write(fn)

    def load(self, size: int) -> None:
        """Writes so much at once that it isn't soon written again with what follows."""

        def fn(writer: Any) -> None:
            for number in range(size):
                writer.put("jobs", f"load {number}", "tune", {"title": self.random.randbytes(40).hex()})

        self.replica.write(fn)

    def state(self) -> Any:
        """What must be equal on all devices that have read all mail."""
        connection = self.replica.connection
        changes = connection.execute(
            "SELECT tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature FROM changes ORDER BY tbl, key, register"
        ).fetchall()
        jobs = connection.execute("SELECT id, title, status FROM jobs ORDER BY id").fetchall()
        return changes, jobs, self.replica.read(lambda connection: digests(connection, self.replica.shapes))


class World:
    """Some devices, their roles by name, and the store."""

    def __init__(self, images: Sequence[bytes | None], roles: dict[str, str]) -> None:
        self.now = 0.0
        self.roles = roles
        self.place = Place()
        self.devices = [Correspondent(name, image, self) for name, image in zip(roles, images, strict=True)]

    def wall(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def member(self, name: str) -> Member:
        key = Key(name)
        return Member(key.device_id, name, self.roles[name], key.public_key)

    def admit(self, chain: list[bytes]) -> Member:
        return self.member(chain[0].decode())

    def meet(self, one: int, other: int) -> None:
        """Two devices are linked until neither has anything to say."""
        sides = [self.devices[one], self.devices[other]]
        can = [relays(self.roles[each.key.label]) for each in sides]
        peerings = [Peering(sides[side].replica, sides[1 - side].key.device_id, peer_relays=can[1 - side]) for side in (0, 1)]
        sessions = [
            Session(bytes([side]) * 8, jitter=random.Random(1).random, now=self.now, relays=can[side], peer_relays=can[1 - side])
            for side in (0, 1)
        ]
        flying: list[tuple[int, bytes]] = []

        def do(side: int, effects: list[Any]) -> None:
            queue = list(effects)
            while queue:
                effect = queue.pop(0)
                if isinstance(effect, Send):
                    flying.append((1 - side, encode(effect.message)))
                elif not isinstance(effect, Report):
                    queue += sessions[side].answered(effect, peerings[side].answer(effect), self.now)

        for side in (0, 1):
            do(side, sessions[side].start(self.now))
        for _ in range(20):
            while flying:
                side, data = flying.pop(0)
                message = decode(data)
                assert message is not None
                do(side, sessions[side].received(message, self.now))
            self.now += 0.5
            for side in (0, 1):
                do(side, sessions[side].tick(self.now))

    def settle(self, *, rounds: int = 12) -> None:
        """From here on the store does what it should, and each device comes by from time to time."""
        self.place.late, self.place.lost, self.place.fails = {}, {}, 0
        for _ in range(rounds):
            for device in self.devices:
                self.now += 700.0
                device.look()
                device.post()

    def close(self) -> None:
        for device in self.devices:
            device.replica.close()


def images_of(names: Sequence[str]) -> list[bytes]:
    """The disks of new devices."""
    found = []
    for name in names:
        wall: Callable[[], int] = lambda: EPOCH_MS - 1000  # noqa: E731
        rng = random.Random(name)
        with Replica.open(":memory:", tables=TABLES, identity=Key(name), machine=name, random=rng.randbytes, wall=wall) as replica:
            found.append(replica.image())
    return found
