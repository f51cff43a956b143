"""How do messages get from one device to another in the simulator? Late, twice, in another order, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from p2pqueue.errors import MalformedMessage
from p2pqueue.replica.syncing.effects import DropEnded, Effect, Merge, MoveHeads, Observe, Recheck, Report, Request, Send
from p2pqueue.replica.syncing.messages import RowId
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.syncing.sync import Session
from p2pqueue.replica.wire.codec import decode, encode
from tests.simulation.device import Device
from tests.simulation.frames import Frames

if TYPE_CHECKING:
    from tests.simulation.world import World

_WRITING = (Merge, MoveHeads, Observe, Recheck)


@dataclass(frozen=True)
class Weather:
    """What the network and the machines do to messages and effects. Rates are from 0 to 1, delays in seconds."""

    loss: float = 0.0
    twice: float = 0.0
    shuffled: float = 0.0  # of messages that take up to `slow` longer than others, and so overtake one another
    delay: float = 0.01
    slow: float = 0.5
    late: bool = False  # what an ended session sent still arrives, in the next one
    lazy: float = 0.0  # seconds up to which a replica takes to answer
    page: int = 200  # writes in a message
    relays: bool = True


@dataclass
class Link:
    """Two devices that may see one another."""

    world: World
    ends: tuple[Device, Device]
    up: bool = False
    deaf: set[str] = field(default_factory=set)  # names of devices that hear nothing through this link
    endpoints: tuple[Endpoint, Endpoint] | None = None
    _clear_at: dict[str, float] = field(default_factory=dict)

    def open(self) -> None:
        """Both sides begin a session, if both are there."""
        self.close()
        self.up = True
        self.deaf.clear()
        if all(device.is_up for device in self.ends):
            first, second = self.ends
            self.endpoints = (Endpoint(self, first, second), Endpoint(self, second, first))
            for endpoint in self.endpoints:
                self.world.schedule.after(self.world.random.random() * 0.05, endpoint.start)

    def close(self) -> None:
        """Both sides notice the end."""
        self.up = False
        for endpoint in self.endpoints or ():
            endpoint.end()
        self.endpoints = None

    def mend(self) -> None:
        """What the net does by itself: a side without a session dials again."""
        if self.up and (self.endpoints is None or any(endpoint.over for endpoint in self.endpoints)):
            self.open()

    def carry(self, sender: Device, frame: bytes) -> None:
        """Takes a frame to the other side, as the weather is."""
        world = self.world
        weather, rng = world.weather, world.random
        receiver = self.ends[1] if sender is self.ends[0] else self.ends[0]
        for _ in range(2 if rng.random() < weather.twice else 1):
            if rng.random() < weather.loss or receiver.name in self.deaf or not self.up:
                world.sometimes("a message was lost")
                continue
            moment = world.schedule.now + weather.delay * (0.5 + rng.random())
            if rng.random() < weather.shuffled:
                moment += weather.slow * rng.random()
                world.sometimes("messages changed places")
            else:
                moment = self._clear_at[receiver.name] = max(moment, self._clear_at.get(receiver.name, 0.0))
            world.schedule.at(moment, self._delivery(receiver, frame, self.endpoints))

    def _delivery(self, receiver: Device, frame: bytes, sent_in: object) -> Callable[[], None]:
        def deliver() -> None:
            if self.endpoints is None or (self.endpoints is not sent_in and not self.world.weather.late):
                return
            if self.endpoints is not sent_in:
                self.world.sometimes("a message of an ended session arrived")
            for endpoint in self.endpoints:
                if endpoint.device is receiver and not endpoint.over:
                    endpoint.hear(frame)

        return deliver


class Endpoint:
    """One side of one session."""

    def __init__(self, link: Link, device: Device, peer: Device) -> None:
        self.link, self.device, self.peer = link, device, peer
        self.world = link.world
        self.over = False
        assert device.replica is not None
        rng = random.Random(f"{self.world.seed} {device.name} {peer.name} {self.world.schedule.now}")
        weather = self.world.weather
        self.session = Session(
            rng.randbytes(8),
            jitter=rng.random,
            now=self.world.schedule.now,
            relays=device.name not in self.world.workers,
            peer_relays=peer.name not in self.world.workers,
            max_writes=weather.page,
            digest_every=self.world.digest_every,
        )
        self.peering = Peering(device.replica, peer.key.device_id, peer_relays=peer.name not in self.world.workers)
        self.frames = Frames()
        self._tick_at = float("inf")
        device.endpoints.append(self)

    def start(self) -> None:
        if not self.over:
            self._do(self.session.start(self.world.schedule.now))

    def end(self) -> None:
        """This side has noticed that the link is down."""
        if not self.over:
            self.over = True
            self.device.endpoints.remove(self)

    vanish = end

    def hear(self, frame: bytes) -> None:
        try:
            data = self.frames.join(frame)
            message = None if data is None else decode(data)
        except MalformedMessage:
            assert self.world.weather.late, "a message of ours could not be read"
            return
        if message is not None:
            self._do(self.session.received(message, self.world.schedule.now))

    def committed(self, *, local: bool) -> None:
        if not self.over:
            self._do(self.session.committed(self.world.schedule.now, local=local))

    def dropped(self, rows: tuple[RowId, ...]) -> None:
        if not self.over:
            self._do(self.session.dropped(rows, self.world.schedule.now))

    def _do(self, effects: list[Effect]) -> None:
        queue = list(effects)
        while queue and not self.over:
            effect = queue.pop(0)
            if isinstance(effect, Report):
                self.world.report(self.device, effect)
            elif isinstance(effect, Send):
                if self._crashes(before=True):
                    return
                if self.world.loses(self.device, self.peer, effect.message):
                    continue
                for frame in self.frames.split(encode(effect.message)):
                    self.link.carry(self.device, frame)
                self._crashes(before=False)
            elif self.world.weather.lazy:
                self._do_later(effect)
            else:
                queue += self._answer(effect)
        self._plan_tick()

    def _do_later(self, request: Request) -> None:
        def act() -> None:
            if not self.over:
                self._do(self._answer(request))

        self.world.schedule.after(self.world.weather.lazy * self.world.random.random(), act)

    def _answer(self, request: Request) -> list[Effect]:
        if self._crashes(before=True):
            return []
        answer = self.world.watch(self.device, request, lambda: self.peering.answer(request))
        if self._crashes(before=False):
            return []
        for endpoint in [other for other in self.device.endpoints if other is not self]:
            if isinstance(request, DropEnded):
                endpoint.dropped(request.rows)
            elif isinstance(request, _WRITING):
                endpoint.committed(local=False)
        return [] if self.over else self.session.answered(request, answer, self.world.schedule.now)

    def _crashes(self, *, before: bool) -> bool:
        device = self.device
        if device.crash_in is None or device.crash_before != before:
            return False
        device.crash_in -= 1
        if device.crash_in > 0:
            return False
        self.world.crash(device)
        return True

    def _plan_tick(self) -> None:
        if self.over:
            return
        due = self.session.due
        if due < self._tick_at:
            self._tick_at = max(due, self.world.schedule.now + 0.001)
            self.world.schedule.at(self._tick_at, self._tick)

    def _tick(self) -> None:
        if self.over or self.world.schedule.now < self._tick_at:
            return
        self._tick_at = float("inf")
        self._do(self.session.tick(self.world.schedule.now))
