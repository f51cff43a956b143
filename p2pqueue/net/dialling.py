"""When is which device dialled next, and at which addresses?

Every known device that isn't linked is dialled for ever. So is everybody seen by mDNS and every `--peer`, until it
is known who answers there. Pure: the time is an argument (monotonic seconds), and so is what counts as local.

A *target* is whom to dial: the id of a known device, the instance name of a sighting, or the address of a `--peer`:

    idle ──due──> dialling ──linked──> linked ──lost──> idle, due at once
                      └──────failed──> idle, due after the back-off

    back-off: 0.25 s, doubled by every failure, up to
      1 s   while an address lies in a local subnet, for an hour after the last event: neither a silent cut nor its
            mending gives an event to either side
      60 s  else, or where the other side refused; 2 s where it has the key of this device
    events (`reset`, `sighted`, `lost`) begin it anew
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from p2pqueue.net.addresses import CANDIDATES_LIMIT, AddressBook, Endpoint

FIRST_DELAY = 0.25  # seconds after the first failure; doubled by every further one
LOCAL_DELAY = 1.0  # seconds, the longest wait for a device in a local subnet
LOCAL_FOR = 3600.0  # seconds after the last event for which that holds
TWIN_DELAY = 2.0  # seconds between two dials of a device with our own key: by them it shows that it is there still
LONGEST_DELAY = 60.0  # seconds, the longest wait for any other
STAGGER = 0.25  # seconds between the starts of two addresses of one device
ATTEMPT_LIMIT = 1.5  # seconds that one address has to answer
FORGOTTEN_AFTER = 30.0  # seconds after which an attempt whose end nobody told counts as failed
SIGHTINGS_LIMIT = 256  # remembered at a time: a LAN may be full of them, or of lies


class Attempt(NamedTuple):
    """Whom to dial now: `failed` or `linked` is told of its `target` afterwards; `device` is `None` where unknown."""

    device: str | None
    addresses: tuple[Endpoint, ...]
    target: str


class Named(NamedTuple):
    """An address that somebody named, where nobody is linked: how often it was tried, and in how many seconds it is again."""

    address: Endpoint
    failures: int
    again_in: float


class Start(NamedTuple):
    """One address of a race, and when it starts: seconds after the first."""

    after: float
    address: Endpoint


def race(addresses: Sequence[Endpoint]) -> tuple[Start, ...]:
    """In which order and when the addresses of one device are tried; whichever links first wins."""
    return tuple(Start(number * STAGGER, address) for number, address in enumerate(addresses))


@dataclass
class _Target:
    kind: Literal["device", "peer", "sighting"]
    device: str | None = None  # who it is, once that is known
    addresses: tuple[Endpoint, ...] = ()  # of a sighting or a `--peer`; those of a known device stand in the book
    failures: int = 0
    due: float = 0.0
    since: float = 0.0  # when the last event was
    dialling: tuple[Endpoint, ...] = ()
    until: float = 0.0  # when that attempt counts as forgotten

    def begin_anew(self, now: float) -> None:
        """An event makes it worth trying at once; an attempt under way goes on."""
        self.failures, self.due, self.since = 0, now, now


class DialSchedule:
    """Decides when to dial whom.

    :param book: where known devices may be reached; sightings of a device that was recognised are noted there.
    :param is_local: says whether a host lies in a subnet of this machine.
    """

    def __init__(self, book: AddressBook, *, is_local: Callable[[str], bool] = lambda _host: False) -> None:
        self._book = book
        self._is_local = is_local
        self._targets: dict[str, _Target] = {}
        self._linked: dict[str, Endpoint | None] = {}

    # -- events -----------------------------------------------------------------------------------------------

    def know(self, devices: Iterable[str], now: float) -> None:
        """These are all devices to be linked to; those known before and missing now are dialled no more."""
        wanted = set(devices)
        for name in [name for name, target in self._targets.items() if target.kind == "device" and name not in wanted]:
            del self._targets[name]
        for device in sorted(wanted - self._targets.keys()):
            self._targets[device] = _Target("device", device, due=now, since=now)

    def add_peer(self, host: str, port: int, now: float) -> None:
        """Somebody named an address with `--peer`: it is dialled until it turns out to be a device that is linked."""
        self._targets.setdefault(f"{host}:{port}", _Target("peer", addresses=((host, port),))).begin_anew(now)

    def sighted(self, instance: str, addresses: Sequence[Endpoint], now: float) -> None:
        """mDNS shows one of the space there; who it is shows when it is linked."""
        strangers = sum(target.kind == "sighting" for target in self._targets.values())
        if instance not in self._targets and strangers >= SIGHTINGS_LIMIT:
            return
        target = self._targets.setdefault(instance, _Target("sighting"))
        target.addresses = tuple(addresses)[:CANDIDATES_LIMIT]
        target.begin_anew(now)
        if target.device is not None:
            self._recognise(instance, target)
            self._begin_anew(target.device, now)

    def unsighted(self, instance: str) -> None:
        """mDNS shows it no more."""
        target = self._targets.pop(instance, None)
        if target is not None and target.device is not None:
            self._book.drop_sighting(target.device, source=instance)

    def told(self, device: str, now: float) -> None:
        """The book has got addresses of that device from elsewhere: a common peer, a mailbox."""
        self._begin_anew(device, now)

    def linked(self, device: str, *, target: str | None = None, at: Endpoint | None = None) -> None:
        """A link to that device is up: by an attempt at `target`, at the address `at`, or because it dialled us."""
        self._linked[device] = at or self._linked.get(device)
        found = None if target is None else self._targets.get(target)
        if target is not None and found is not None:
            found.dialling = ()
            if found.kind != "device":
                found.device = device
                self._recognise(target, found)
        if device in self._targets:
            self._targets[device].failures = 0

    def lost(self, device: str, now: float) -> None:
        """The link to that device is gone: it is dialled again at once."""
        self._linked.pop(device, None)
        self._begin_anew(device, now)
        for target in self._targets.values():
            if target.device == device:
                target.begin_anew(now)

    def failed(self, target: str, now: float, *, refused: bool = False, twin: bool = False) -> None:
        """An attempt came to nothing; `refused` where somebody answered who won't link, or who is this very node, or its `twin`."""
        found = self._targets.get(target)
        if found is None:
            return
        addresses = found.dialling or self._open_addresses(found)
        local = any(self._is_local(host) for host, _ in addresses) and now - found.since < LOCAL_FOR
        longest = TWIN_DELAY if twin else LOCAL_DELAY if local and not refused else LONGEST_DELAY
        delay = longest if refused or twin else min(FIRST_DELAY * 2.0 ** min(found.failures, 16), longest)
        meanwhile = found.dialling and found.since > found.until - FORGOTTEN_AFTER  # an event since the attempt began: try again at once
        found.failures += 1
        found.due, found.dialling = now if meanwhile else now + delay, ()

    def reset(self, now: float) -> None:
        """The interfaces changed, the machine woke, or somebody asked: all are worth trying at once."""
        for target in self._targets.values():
            target.begin_anew(now)

    # -- decisions --------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[Attempt]:
        """Whom to dial now. Each counts as being dialled until `failed` or `linked` is told of its target."""
        for name, target in self._targets.items():
            if target.dialling and target.until <= now:
                self.failed(name, target.until)
        attempts = []
        for name, target in self._targets.items():
            addresses = self._open_addresses(target)
            if target.dialling or target.due > now or self._busy.issuperset(addresses):
                continue
            target.dialling, target.until = addresses, now + FORGOTTEN_AFTER
            attempts.append(Attempt(target.device, addresses, name))
        return attempts

    def next_due(self, now: float) -> float | None:
        """When `due` has something again, if no event comes before; `None`: never."""
        times = [target.until for target in self._targets.values() if target.dialling]
        idle = [target for target in self._targets.values() if not target.dialling]
        times += [target.due for target in idle if not self._busy.issuperset(self._open_addresses(target))]
        return max(now, min(times)) if times else None

    def named(self, now: float) -> list[Named]:
        """The addresses of `--peer` where nobody is linked."""
        return [
            Named(target.addresses[0], target.failures, 0.0 if target.dialling else max(0.0, target.due - now))
            for target in self._targets.values()
            if target.kind == "peer" and target.device not in self._linked and self._linked_at.isdisjoint(target.addresses)
        ]

    @property
    def _linked_at(self) -> set[Endpoint | None]:
        return set(self._linked.values())

    @property
    def _busy(self) -> set[Endpoint]:
        """Where somebody is being dialled now; a sighting and a known device are often one and the same."""
        return {address for target in self._targets.values() for address in target.dialling}

    def _open_addresses(self, target: _Target) -> tuple[Endpoint, ...]:
        """Where to dial it; nowhere while it is linked, or dialled as the known device that it is."""
        if target.device in self._linked or (target.kind != "device" and target.device in self._targets):
            return ()
        if target.kind == "device":
            return self._book.candidates(target.device or "")
        taken = self._linked_at
        return tuple(address for address in target.addresses if address not in taken)

    def _begin_anew(self, device: str, now: float) -> None:
        if device in self._targets:
            self._targets[device].begin_anew(now)

    def _recognise(self, name: str, target: _Target) -> None:
        if target.device is not None:
            self._book.note_sighting(target.device, target.addresses, source=name)
