"""What will happen in the run of a seed? Everything is decided beforehand, so that a run can be repeated and cut down."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.simulation.network import Weather

STORM = 7.0  # seconds in which things happen
DEVICES = "ABCDE"


@dataclass(frozen=True)
class Event:
    """Something that happens at a moment: a kind, the device it happens to, and a number from 0 to 1 to choose by."""

    at: float
    kind: str
    device: int
    pick: float

    def __str__(self) -> str:
        return f"{self.at:7.3f} {DEVICES[self.device]} {self.kind} {self.pick:.3f}"


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    seed: int
    devices: int
    topology: str
    weather: Weather
    skews: tuple[int, ...]  # milliseconds by which each device's clock is off
    events: tuple[Event, ...]
    workers: tuple[int, ...] = ()  # devices whose role may not relay

    def without(self, dropped: set[int]) -> Plan:
        """The same run without some events."""
        return replace(self, events=tuple(event for index, event in enumerate(self.events) if index not in dropped))

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.devices} devices, {self.topology}, skews {self.skews} ms, workers {self.workers}\n{self.weather}\n"
        return head + "\n".join(map(str, self.events))


WORK = {
    "enqueue": 10, "unique": 8, "tune": 10, "claim": 14, "beat": 8, "checkpoint": 3, "succeed": 8, "fail": 4, "cancel": 4,
    "requeue": 3, "retry": 4, "hold": 3, "resume": 3, "delete": 4, "input": 3, "burst": 2, "prune": 3, "nothing": 1,
}  # fmt: skip
FAULTS = {
    "cut": 12, "join": 10, "deaf": 4, "crash": 8, "start": 8, "jump": 4, "copy": 7, "restore": 4, "roll back": 4, "clone": 1,
    "reset": 1, "dead": 1, "heal": 4, "digest": 1,
}  # fmt: skip
LOSSES = ("restore", "roll back", "clone", "reset", "dead")
JUMPS = (0, -60_000, 540_000, 10_800_000, -86_400_000, 2 * 86_400_000, 12 * 365 * 86_400_000, 80 * 365 * 86_400_000)  # … 2038, 2106


def plan(seed: int) -> Plan:
    """The run of a seed."""
    rng = random.Random(seed)
    count = rng.choice((3, 3, 3, 3, 4, 5))
    calm = rng.random() < 0.25
    weather = Weather(
        loss=0.0 if calm else rng.choice((0.0, 0.02, 0.15)),
        twice=0.0 if calm else rng.choice((0.0, 0.1)),
        shuffled=0.0 if calm else rng.choice((0.0, 0.0, 0.2)),
        delay=rng.choice((0.002, 0.02, 0.2)),
        late=rng.random() < 0.2,
        lazy=rng.choice((0.0, 0.0, 0.05)),
        page=rng.choice((1, 3, 20, 200)),
    )
    skews = tuple(rng.choice((0, 0, rng.randrange(-5000, 5000), rng.choice(JUMPS))) for _ in range(count))
    works, faults = rng.randrange(25, 70), 0 if calm and rng.random() < 0.3 else rng.randrange(5, 30)
    topology = rng.choice(("mesh", "mesh", "chain", "star", "ring"))
    workers = tuple(index for index in range(1, count) if rng.random() < 0.2) if topology == "mesh" else ()
    left_out = "prune" if workers or rng.random() < 0.5 else "retry"
    work = {kind: weight for kind, weight in WORK.items() if kind != left_out}
    # What a lost author left half sent, and one that may not relay got whole, is never counted by the others.
    kinds = {kind: weight for kind, weight in FAULTS.items() if not workers or kind not in LOSSES}
    events = [_event(rng, work, count) for _ in range(works)] + [_event(rng, kinds, count) for _ in range(faults)]
    return Plan(seed, count, topology, weather, skews, tuple(sorted(events, key=lambda event: event.at)), workers)


def _event(rng: random.Random, kinds: dict[str, int], count: int) -> Event:
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    return Event(rng.random() * STORM, kind, rng.randrange(count), rng.random())
