"""Which devices does mDNS show on the networks of this machine?

A hint for speed and nothing else: a dead port, a taken name or a network without multicast are told once, as a
warning, and tried again; the node goes on and dials the addresses that it knows.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from zeroconf.asyncio import AsyncServiceInfo

from p2pqueue.net import announcement
from p2pqueue.net.announcement import ID_LENGTH, LIFETIME, SERVICE, Announcement, Sighting, Tag
from p2pqueue.net.interfaces import InterfaceWatch
from p2pqueue.net.mdns import Responder, hosts

__all__ = ["Discovery", "Sighting", "find_nameplate"]

RETRY_EVERY = 30.0  # seconds until mDNS is tried again where it failed
SWEEP_EVERY = 10.0  # seconds between two looks for instances whose records ran out
SETTLED_AFTER = 1.5  # seconds until the old addresses of an instance that told new ones have run out
SIGHTINGS_LIMIT = 256  # instances that are remembered: a LAN may be full of them, or of lies
_ASKING_LIMIT = 64  # instances that are asked at the same time

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


def _random_name() -> str:
    return "p2pq-" + secrets.token_hex(8)


class Discovery:
    """Announces this device and reports the others.

    :param port: where this device listens.
    :param tag: the keyed hash of the space; `None` announces nothing, as a joiner that has no space yet.
    :param on_sighting: called when an instance comes, or when anything about it changed.
    :param on_lost: called with its name when it says goodbye, or when its records ran out and it doesn't answer:
        130 s after it vanished at the latest.
    :param make_name: gives a name that nobody else has.
    :param lifetime: for how many seconds others may take what is announced as true.
    """

    def __init__(
        self,
        *,
        port: int,
        tag: Tag | None,
        protocol: tuple[int, int],
        interfaces: InterfaceWatch,
        on_sighting: Callable[[Sighting], None],
        on_lost: Callable[[str], None],
        make_name: Callable[[], str] = _random_name,
        retry_every: float = RETRY_EVERY,
        lifetime: int = LIFETIME,
    ) -> None:
        self._port = port
        self._tag = tag
        self._protocol = protocol
        self._watch = interfaces
        self._on_sighting = on_sighting
        self._on_lost = on_lost
        self._make_name = make_name
        self._retry_every = retry_every
        self._lifetime = lifetime
        self._trouble: str | None = None
        self._name, self._ids = make_name(), [secrets.token_bytes(ID_LENGTH)]  # ids we had; the last is the present one
        self._nameplate: str | None = None
        self._serial = 0
        self._responder: Responder | None = None
        self._announced: Announcement | None = None
        self._seen: dict[str, Sighting] = {}
        self._asking: set[str] = set()
        self._warned: set[str] = set()
        self._stale = True  # the interfaces changed since the responder was told of them
        self._renamed = False  # what is cached under the old name is a mixture
        self._poke = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def sightings(self) -> tuple[Sighting, ...]:
        """Whom mDNS shows now."""
        return tuple(self._seen.values())

    @property
    def trouble(self) -> str | None:
        """What is in the way of finding others now, in words; `None`: nothing that shows here."""
        if self._trouble is None and not self._watch.chosen:
            wanted = self._watch.wanted
            return f"none of the interfaces {', '.join(wanted)} is up" if wanted else "no network interface is up that leads to others"
        return self._trouble

    async def start(self) -> None:
        """Begins to announce and to look, in the background; whatever is in the way is no reason not to start."""
        logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # what it warns of is told here, once and in words
        self._running = asyncio.get_running_loop().create_task(self._run(), name="p2pqueue-discovery")

    async def close(self) -> None:
        """Says goodbye and stops."""
        self._tasks = None  # nothing new is begun
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    def set_nameplate(self, nameplate: str | None) -> None:
        """Tells the LAN of an open invitation, or that it is closed."""
        self._nameplate = nameplate
        self._poke.set()

    # -- what runs ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._follow())
                tasks.create_task(self._tend())
        finally:
            self._tasks = None
            await self._shut()

    async def _follow(self) -> None:
        async for _ in self._watch.changes():
            self._stale = True
            self._poke.set()

    async def _tend(self) -> None:
        while True:
            self._poke.clear()
            try:
                await self._catch_up()
                self._sweep()
                self._recover()
            except Exception as error:  # noqa: BLE001 - whatever the network or a library does, the node lives
                await self._give_up(error)
            try:
                async with asyncio.timeout(self._retry_every if self._trouble else SWEEP_EVERY):
                    await self._poke.wait()
            except TimeoutError:
                pass

    async def _catch_up(self) -> None:
        """Makes what zeroconf does what it should do now."""
        stale, self._stale = self._stale, False
        where, wanted = hosts(self._watch.chosen), self._wanted()
        if wanted != self._announced:
            self._serial += 1
            wanted = self._wanted()
        moved = self._responder is not None and stale
        if self._responder is not None and (self._renamed or not where or (moved and not self._responder.can_move(where))):
            await self._shut(goodbye=False)
            self._renamed = False
        if not where:
            return
        if self._responder is None:
            self._responder = Responder(where, heard=self._heard)
            await self._responder.start(wanted)
        elif moved:
            await self._responder.move(where, wanted)
        elif wanted != self._announced:
            await self._responder.announce(wanted)
        self._announced = wanted

    def _wanted(self) -> Announcement | None:
        if self._tag is None:
            return None
        return announcement.announce(
            self._name,
            number=self._ids[-1],
            tag=self._tag,
            protocol=self._protocol,
            nameplate=self._nameplate,
            port=self._port,
            interfaces=self._watch.chosen,
            serial=self._serial,
            lifetime=self._lifetime,
        )

    async def _shut(self, *, goodbye: bool = True) -> None:
        responder, self._responder, self._announced = self._responder, None, None
        if responder is None:
            return
        closing = asyncio.get_running_loop().create_task(responder.close(goodbye=goodbye), name="p2pqueue-mdns-close")
        await asyncio.wait([closing])
        if not closing.cancelled() and (error := closing.exception()) is not None:
            _log.debug("mDNS was closed with an error: %r", error)

    async def _give_up(self, error: Exception) -> None:
        self._stale = True
        await self._shut(goodbye=False)
        self._trouble = _in_words(error)
        if self._trouble not in self._warned:
            self._warned.add(self._trouble)
            _log.warning("Devices nearby can't be found by themselves: %s. Known addresses and --peer HOST:PORT still work.", self._trouble)

    def _recover(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            _log.info("Devices nearby are found by themselves again.")

    # -- what is heard ------------------------------------------------------------------------------------------

    def _heard(self, name: str, here: bool) -> None:
        try:
            if here:
                self._look_at(name)
            else:
                self._lose(name)
        except Exception as error:  # noqa: BLE001 - whatever is in a packet, the others are still heard
            _log.debug("What %s announces can't be read: %r", name, error)

    def _look_at(self, name: str) -> None:
        if self._responder is None or self._tasks is None:
            return
        if name.lower() == f"{self._name}.{SERVICE}".lower():
            if any(announcement.instance_id(announcement.entries(text)) not in self._ids for text in self._responder.texts(name)):
                self._rename()
            return
        info = self._responder.recall(name)
        if info is not None:
            self._saw(name, info)
        elif name not in self._asking and len(self._asking) < _ASKING_LIMIT:
            self._asking.add(name)
            self._tasks.create_task(self._ask(name, self._responder))

    async def _ask(self, name: str, responder: Responder) -> None:
        try:
            info = await responder.ask(name)
        except Exception as error:  # noqa: BLE001 - it is closed meanwhile, or a packet was beyond all bounds
            _log.debug("%s could not be asked: %r", name, error)
            return
        finally:
            self._asking.discard(name)
        if self._responder is not responder:
            return
        if info is None:
            self._lose(name)
        else:
            self._saw(name, info)

    def _saw(self, name: str, info: AsyncServiceInfo) -> None:
        told = info.properties
        if announcement.instance_id(told) in self._ids:
            return
        sighting = announcement.read(
            name, told, addresses=info.parsed_addresses(), port=info.port or 0, tag=self._tag, interfaces=self._watch.chosen
        )
        if sighting is None or sighting == self._seen.get(name) or (name not in self._seen and not self._has_room(sighting)):
            return
        self._seen[name] = sighting
        asyncio.get_running_loop().call_later(SETTLED_AFTER, self._heard, name, True)
        _tell(self._on_sighting, sighting)

    def _has_room(self, sighting: Sighting) -> bool:
        if len(self._seen) < SIGHTINGS_LIMIT:
            return True
        stranger = next((name for name, seen in self._seen.items() if not seen.ours), None)
        if not sighting.ours or stranger is None:
            return False
        self._lose(stranger)
        return True

    def _lose(self, name: str) -> None:
        if self._seen.pop(name, None) is not None:
            _tell(self._on_lost, name)

    def _sweep(self) -> None:
        for name in list(self._seen):
            if self._responder is not None and self._responder.recall(name) is None:
                self._look_at(name)

    def _rename(self) -> None:
        taken, self._name = self._name, self._make_name()
        self._ids = [*self._ids[-8:], secrets.token_bytes(ID_LENGTH)]
        self._renamed = True
        self._poke.set()
        if "name" not in self._warned:
            self._warned.add("name")
            _log.warning("Another device announces itself as %s; this one goes on as %s.", taken, self._name)


async def find_nameplate(nameplate: str, *, protocol: tuple[int, int], interfaces: InterfaceWatch) -> AsyncIterator[Sighting]:
    """Yields those who show that nameplate, for a joiner; goes on until it is closed."""
    found: asyncio.Queue[Sighting] = asyncio.Queue()
    discovery = Discovery(
        port=0, tag=None, protocol=protocol, interfaces=interfaces, on_sighting=found.put_nowait, on_lost=lambda _name: None
    )
    await discovery.start()
    try:
        while True:
            sighting = await found.get()
            if sighting.nameplate == nameplate:
                yield sighting
    finally:
        await discovery.close()


def _tell(callback: Callable[[_T], None], value: _T) -> None:
    try:
        callback(value)
    except Exception:  # noqa: BLE001 - an owner's mistake costs one sighting, never the node
        _log.exception("What mDNS shows could not be taken in")


def _in_words(error: Exception) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return "another program holds UDP port 5353 and lets nobody share it"
    if code in (errno.EACCES, errno.EPERM):
        return "the system doesn't allow UDP port 5353"
    return str(error) or type(error).__name__
