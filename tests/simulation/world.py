"""How does a plan unfold? Devices, links and faults in virtual time, with the invariants checked on the way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, pairwise

from p2pqueue.jobs.tables import TABLES
from p2pqueue.replica.retention import prune
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.effects import Answer, DropEnded, Report, Request
from p2pqueue.replica.syncing.messages import Message
from p2pqueue.replica.system import SYSTEM_TABLES
from tests.simulation.device import Device
from tests.simulation.invariants import (
    Dropped,
    Register,
    Violation,
    check_equal,
    check_monotone,
    covers,
    going_rows,
    heads_of,
    is_dropped,
    loose_of,
    registers,
)
from tests.simulation.network import Link
from tests.simulation.plan import DEVICES, JUMPS, STORM, Event, Plan
from tests.simulation.schedule import Schedule
from tests.simulation.workload import OPERATIONS, Work

CALM = 60.0  # seconds within which all replicas must be equal once the faults have stopped
CALM_FORKED = 240.0  # the same where a copy was brought back without anybody noticing: digests find what it hid
DAY_MS = 86_400_000
CREATING = {table.name: table.creating.name for table in (*TABLES, *SYSTEM_TABLES)}
_UNSEEN = ("roll back", "clone")


class World:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seed = plan.seed
        self.weather = plan.weather
        self.random = random.Random(f"weather {plan.seed}")
        self.schedule = Schedule()
        self.met: Counter[str] = Counter()
        self.reports: list[tuple[str, Report]] = []
        self.prunes = any(event.kind == "prune" for event in plan.events)
        self.forkish = any(event.kind in _UNSEEN for event in plan.events)
        self.digest_every = 8.0 if self.forkish else 240.0
        self.workers = {DEVICES[index] for index in plan.workers}
        self.devices = [self._device(index) for index in range(plan.devices)]
        self.links = [Link(self, ends) for ends in self._pairs()]
        self.dropped: Dropped = {}
        # Registers whose row had not come yet: a relay passes them on before it has checked the row's signature.
        self.dropped_rowless: Dropped = {}
        self.acknowledged: dict[Register, list[Stamp]] = {}
        self.latent: set[bytes] = set()  # authors under which two databases may be writing
        self.loses: Callable[[Device, Device, Message], bool] = lambda sender, receiver, message: False

    def run(self) -> None:
        """The storm, the calm, and the days after."""
        for device, skew in zip(self.devices, self.plan.skews, strict=True):
            device.offset_ms = skew
            device.start()
        for link in self.links:
            link.open()
        for event in self.plan.events:
            self.schedule.at(event.at, self._happening(event))
        moment = 0.0
        while moment < STORM:
            moment += 1.0
            self.schedule.run(moment)
            self._mend()
            self.check()
        self.calm()
        self.age()

    # --- the storm ---

    def _happening(self, event: Event) -> Callable[[], None]:
        def happen() -> None:
            device = self.devices[event.device]
            if event.kind in OPERATIONS:
                self.work(device, event.kind, event.pick)
            else:
                getattr(self, "_" + event.kind.replace(" ", "_"))(device, event.pick)

        return happen

    def work(self, device: Device, kind: str, pick: float) -> None:
        """A local transaction; what it wrote is acknowledged when it returns."""
        if kind == "retry" and self.prunes:  # what ended so long ago that it may have been dropped is enqueued anew
            kind = "enqueue"
        if device.is_up:
            for *register, stamp in device.write(lambda writer: _run(writer, kind, pick)):
                self.acknowledged.setdefault((register[0], register[1], register[2]), []).append(stamp)

    def _nothing(self, device: Device, pick: float) -> None:
        pass

    def _prune(self, device: Device, pick: float) -> None:
        if device.is_up:
            self.prune(device, int(pick * 8000))

    def prune(self, device: Device, retention_ms: int) -> None:
        """Retention at this moment."""
        before = registers(device)
        for table in TABLES:
            if not device.is_up:
                break  # it crashed while it told its peers
            device.write(lambda writer, table=table: prune(writer, table.name, retention_ms, writer.now))  # type: ignore[misc]
        self._note_dropped(device, before)

    def _cut(self, device: Device, pick: float) -> None:
        link = self._link(device, pick)
        if link.up:
            link.close()
            self.sometimes("a link was cut")

    def _join(self, device: Device, pick: float) -> None:
        self._link(device, pick).open()

    def _heal(self, device: Device, pick: float) -> None:
        for link in self._links_of(device):
            link.open()

    def _deaf(self, device: Device, pick: float) -> None:
        link = self._link(device, pick)
        link.deaf.add(device.name)
        self.sometimes("a link carried one way only")

    def _crash(self, device: Device, pick: float) -> None:
        if device.is_up:
            device.crash_in, device.crash_before = int(pick * 40) + 1, pick * 1000 % 2 < 1

    def crash(self, device: Device) -> None:
        """Power off, now."""
        device.stop()
        self.sometimes("a device crashed before an effect" if device.crash_before else "a device crashed behind an effect")

    def _start(self, device: Device, pick: float) -> None:
        if not device.is_up and not device.gone:
            device.start()
            self.sometimes("a device started again")

    def _jump(self, device: Device, pick: float) -> None:
        device.offset_ms = JUMPS[int(pick * len(JUMPS))]
        self.sometimes("a clock jumped")
        if device.wall() > 4_102_444_800_000:
            self.sometimes("a clock stood beyond 2100")

    def _copy(self, device: Device, pick: float) -> None:
        if device.replica is not None:
            device.copies.append(device.replica.image())

    def _restore(self, device: Device, pick: float) -> None:
        """An old copy is put back, and seen at open."""
        if device.copies:
            device.machine += 1
            self._replace(device, device.copies[int(pick * len(device.copies))])
            self.sometimes("an old copy was restored")

    def _roll_back(self, device: Device, pick: float) -> None:
        """An old copy is put back under the feet of the system: the file and the machine are the same."""
        if device.copies and not device.gone:
            self._replace(device, device.copies[int(pick * len(device.copies))])
            if device.replica is not None:
                self.latent.add(device.replica.author)
            self.sometimes("a disk was rolled back unseen")

    def _clone(self, device: Device, pick: float) -> None:
        """A copy starts on a second machine that calls itself the first."""
        if device.replica is None or len(self.devices) > self.plan.devices:
            return
        twin = Device(device.name + "'", lambda: self.schedule.now, self.seed)
        twin.offset_ms, twin.image, twin.machine = device.offset_ms, device.replica.image(), device.machine
        twin.start()
        self.latent.add(device.replica.author)
        self.devices.append(twin)
        others = [other for other in self.devices if other is not twin and other is not device]
        self.links += [Link(self, (twin, other)) for other in others]
        self.sometimes("a database was cloned")

    def _reset(self, device: Device, pick: float) -> None:
        """The disk dies; the device goes on with its key and an empty one."""
        if not device.gone:
            self._replace(device, None)
            self.sometimes("a disk died, its device went on")

    def _dead(self, device: Device, pick: float) -> None:
        """The disk dies, and the device with it."""
        if sum(not each.gone for each in self.devices) > 2:
            device.stop()
            device.image, device.gone = None, True
            self._forget_lost()
            self.sometimes("a device died with its disk")

    def _digest(self, device: Device, pick: float) -> None:
        self.digest_every = 8.0

    def _replace(self, device: Device, image: bytes | None) -> None:
        if device.gone:
            return
        device.stop()
        device.image = image
        device.seen = {}
        self._forget_lost()
        device.start()

    def _forget_lost(self) -> None:
        """What no disk holds any more may be lost."""
        disks = [registers(device) for device in self.devices]
        for register, stamps in self.acknowledged.items():
            kept = [stamp for stamp in stamps if any(covers(disk, register, stamp, CREATING) for disk in disks)]
            self.acknowledged[register] = kept

    # --- watching ---

    def watch(self, device: Device, request: Request, act: Callable[[], Answer]) -> Answer:
        """Carries a request out and notes what it dropped."""
        if not isinstance(request, DropEnded):
            return act()
        before = registers(device)
        answer = act()
        self._note_dropped(device, before)
        self.sometimes("a row was dropped since it had ended elsewhere")
        return answer

    def report(self, device: Device, report: Report) -> None:
        self.reports.append((device.name, report))
        self.sometimes(f"reported: {report.kind}")

    def sometimes(self, marker: str) -> None:
        """Counts that something was really met."""
        self.met[marker] += 1

    def _note_dropped(self, device: Device, before: dict[Register, Stamp]) -> None:
        left = {(table, key) for table, key, _ in registers(device)}
        for (table, key, _), stamp in before.items():
            if (table, key) in left:
                continue
            self.dropped[table, key] = max(stamp.life, self.dropped.get((table, key), -1))
            if (table, key, CREATING[table]) not in before:
                self.dropped_rowless[table, key] = self.dropped[table, key]
            self.sometimes("a row was dropped")

    # --- checks ---

    def check(self) -> None:
        """What must hold at every moment."""
        up = [device for device in self.devices if device.is_up]
        for device in up:
            check_monotone(device, self.dropped, CREATING)
        self._settle_latent()
        if self.latent:
            return
        states = {device.name: (heads_of(device), loose_of(device, self.dropped)) for device in up}
        for one, two in combinations(up, 2):
            if states[one.name] == states[two.name]:
                check_equal(one, two, self.dropped, rows_only=self.forkish, ended_too=not self.forkish)
                self.sometimes("equal heads")

    def _settle_latent(self) -> None:
        """A forked author is settled once nobody writes under it; what it hid is found by digests."""
        if self.latent and self.schedule.now > STORM + CALM:
            self.latent.clear()

    def _alive(self) -> list[Device]:
        return [device for device in self.devices if not device.gone]

    # --- the calm ---

    def calm(self) -> None:
        """The faults stop: within a bound everybody holds the same, and nothing acknowledged is missing."""
        self._clear_up()
        bound = STORM + (CALM_FORKED if self.forkish else CALM)
        while not self._is_settled():
            if self.schedule.now >= bound:
                self._complain()
            self.schedule.run(self.schedule.now + 1.0)
            self._mend()
        self.latent.clear()
        self.check()
        self.settled_after = self.schedule.now - STORM
        self._check_acknowledged()

    def _clear_up(self) -> None:
        if any(device.gone for device in self.devices):  # what it linked is linked otherwise
            linked = [set(map(id, link.ends)) for link in self.links]
            missing = [pair for pair in combinations(self._alive(), 2) if set(map(id, pair)) not in linked]
            self.links += [Link(self, pair) for pair in missing]
        self.weather = replace(self.weather, loss=0.0, twice=0.0, shuffled=0.0)
        for device in self._alive():
            device.crash_in = None
            if not device.is_up:
                device.start()
        for link in self.links:
            if not any(device.gone for device in link.ends):
                link.open()

    def _is_settled(self) -> bool:
        devices = self._alive()
        states = [(heads_of(device), loose_of(device, self.dropped)) for device in devices]
        if any(each != states[0] for each in states):
            return False
        if self.forkish:
            try:
                for device in devices[1:]:
                    check_equal(devices[0], device, self.dropped, rows_only=self.forkish, ended_too=not self.forkish)
            except Violation:
                return False
        return True

    def _complain(self) -> None:
        devices = self._alive()
        for device in devices[1:]:
            if heads_of(device) == heads_of(devices[0]):
                check_equal(devices[0], device, self.dropped, rows_only=self.forkish, ended_too=not self.forkish)
        lines = [f"{device.name}: heads {_words(heads_of(device))}, loose {_words(loose_of(device, self.dropped))}" for device in devices]
        raise Violation("not equal long after the faults stopped:\n" + "\n".join(lines))

    def _check_acknowledged(self) -> None:
        disks = [(device.name, registers(device)) for device in self._alive()]
        born = {register for _, disk in disks for register in disk}
        # A write that a fork hid is found by digests, which leave out the rows that ended.
        going = set().union(*(going_rows(device) for device in self._alive())) if self.forkish else {register[:2] for register in born}
        for register, stamps in self.acknowledged.items():
            if register[:2] not in going or (register[0], register[1], CREATING[register[0]]) not in born:
                continue  # a row whose creating write went with a disk is none
            for stamp in stamps:
                for name, disk in disks:
                    if not covers(disk, register, stamp, CREATING) and not is_dropped(self.dropped, register, stamp):
                        raise Violation(f"{name} lacks an acknowledged write: {register} {stamp}, it has {disk.get(register)}")

    def age(self) -> None:
        """Days pass: what ended goes everywhere, nothing that goes on does, and no zombie stays."""
        for device in self._alive():
            self.prune(device, DAY_MS)  # notes the ends that lie in the future by this clock
            device.offset_ms += 2 * DAY_MS
        for device in self._alive()[1:]:
            self.prune(device, DAY_MS)
        for link in self.links:
            if not any(device.gone for device in link.ends):
                link.open()
        self.schedule.run(self.schedule.now + 4.0)
        self.prune(self._alive()[0], DAY_MS)
        devices = self._alive()
        for device in devices:
            check_monotone(device, self.dropped, CREATING)
        # Of rows that a forked author made nothing is inferred: one that ended elsewhere may stay.
        dropped = self.dropped if any(report.kind == "fork" for _, report in self.reports) else self.dropped_rowless
        for device in devices[1:]:
            check_equal(devices[0], device, dropped, rows_only=True, ended_too=not self.forkish)

    # --- links ---

    def _pairs(self) -> Iterator[tuple[Device, Device]]:
        devices, topology = self.devices, self.plan.topology
        if topology == "none":
            return
        if topology == "mesh":
            yield from combinations(devices, 2)
        elif topology == "star":
            yield from ((devices[0], other) for other in devices[1:])
        else:
            yield from pairwise(devices)
            if topology == "ring" and len(devices) > 2:
                yield devices[-1], devices[0]

    def _device(self, index: int) -> Device:
        return Device(DEVICES[index], lambda: self.schedule.now, self.seed)

    def _links_of(self, device: Device) -> list[Link]:
        return [link for link in self.links if device in link.ends and not any(end.gone for end in link.ends)]

    def _link(self, device: Device, pick: float) -> Link:
        links = self._links_of(device) or self.links
        return links[int(pick * len(links))]

    def _mend(self) -> None:
        for link in self.links:
            if not any(device.gone for device in link.ends):
                link.mend()


def _run(writer: object, kind: str, pick: float) -> list[tuple[str, str, str, Stamp]]:
    work = Work(writer)  # type: ignore[arg-type]
    OPERATIONS[kind](work, pick)
    return work.wrote


def _words(numbers: Mapping[bytes, object]) -> str:
    return " ".join(f"{author.hex()[:6]}:{seq}" for author, seq in sorted(numbers.items()))
