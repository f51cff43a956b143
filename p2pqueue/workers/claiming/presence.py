"""Which workers are there now, and what can they do?

Each device tells of itself every ten seconds, and at once when its slots fill or free; what was not heard again for
thirty is gone. Pure: what peers told and the time go in. Times are seconds, monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from p2pqueue.jobs.waiting import EXEC_TASK, Ability, Demand, lacking
from p2pqueue.workers.claiming.foretold import Foretold

TELL_EVERY = 10.0  # seconds between two presences of a device that has nothing new to tell
GONE_AFTER = 30.0  # seconds: two may be lost
GRACE_LINKED = 2.0  # seconds from the first link within which a peer has told of itself
GRACE_ALONE = 5.0  # seconds from the start after which no peer is waited for
ASLEEP = 3.0  # seconds between two looks at the clocks after which this device slept, or stood still
LOOK_AGAIN = 0.05  # seconds between two looks whether what became of jobs has been told
SCORE_PER_CORE = 30
_NAMES = 1_000  # tasks, tags or limits taken from one presence
_LONGEST = 256  # characters of a name


@dataclass(frozen=True)
class Presence:
    """What one worker tells of itself. `score` grows with its power; `free` are slots; `disk` is in bytes."""

    device_id: str
    ability: Ability
    score: int
    slots: int
    free: int
    native: bool = True
    disk: int | None = None
    version: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.ability.label

    def to_fields(self) -> dict[str, Any]:
        """The fields of the signal `hello`."""
        ability = self.ability
        able = [task for task in ability.tasks if lacking(Demand(task, frozenset(), None, True), ability) is None]
        asked = frozenset(need for needs in ability.needs_by_task.values() for need in needs)
        return {
            "label": ability.label,
            "score": self.score,
            "native": self.native,
            "tags": sorted(ability.tags | {need for need in asked if need in ability.programs}),
            "tasks": sorted(able),
            "max_input": ability.max_input,
            "max_inputs": dict(ability.max_input_by_task),
            "slots": self.slots,
            "free": self.free,
            "disk": self.disk,
            "version": self.version,
        }


def read_presence(device_id: str, fields: Mapping[str, Any]) -> Presence:
    """The presence that a `hello` tells: its tasks are those that it can run; what is odd counts as not told."""
    disk, tasks = fields.get("disk"), _names(fields.get("tasks"))
    ability = Ability(
        label=_text(fields.get("label")) or device_id[:8],
        tasks=tasks,
        tags=_names(fields.get("tags")),
        max_input=_number(fields.get("max_input")) or None,
        max_input_by_task=_limits(fields.get("max_inputs")),
        allow_exec=EXEC_TASK in tasks,
    )
    return Presence(
        device_id=device_id,
        ability=ability,
        score=_number(fields.get("score")),
        slots=_number(fields.get("slots")),
        free=_number(fields.get("free")),
        native=fields.get("native") is not False,
        disk=None if disk is None else _number(disk),
        version=_text(fields.get("version")),
    )


@dataclass
class Roster:
    """The workers that this device has heard of lately, and whether it should still wait for the first of them.

    `started` is when this worker started, or woke; `others` says whether any other device of the space is known at all;
    `hears` whether networking is on; `behind` whether no linked one has told since a time all that became of jobs.
    """

    started: float
    others: bool
    hears: bool = True
    behind: Callable[[float], bool] = lambda since: False
    turned: dict[str, float] = field(default_factory=dict)  # by device: when its last slot filled, or the first came free
    foretold: Foretold = field(default_factory=Foretold)  # what they have begun, before their rows tell
    _heard: dict[str, tuple[Presence, float]] = field(default_factory=dict)
    _slept: bool = False
    _linked: float | None = None
    _met: bool = False  # some peer has told of itself
    _caught_up: bool = False
    _looked: tuple[float, float] | None = None  # at the clocks

    def look(self, now: float, wall: float) -> None:
        """Takes in the time, by both clocks: a monotonic one may stand still in sleep. At least every second."""
        before, self._looked = self._looked, (now, wall)
        if before is not None and max(now - before[0], wall - before[1]) > ASLEEP:
            self.woke(now)

    def woke(self, now: float) -> None:
        """This device slept: what others did meanwhile it hears of as after a start."""
        self.started, self._slept, self._linked, self._met, self._caught_up = now, True, None, False, False
        self._heard.clear()

    def heard(self, presence: Presence, now: float) -> bool:
        """Takes in what a peer told; says whether it tells something new."""
        known = self._heard.get(presence.device_id)
        self._heard[presence.device_id] = (presence, now)
        self._met = self._met or self._linked is not None  # what old links still bring after a sleep tells of the time before it
        if known is not None and (known[0].free > 0) != (presence.free > 0):
            self.turned[presence.device_id] = now
        return known is None or known[0] != presence

    def linked(self, now: float) -> None:
        """The first link to a peer is up."""
        if self._linked is None:
            self._linked = now

    def gone(self, device_id: str) -> None:
        """A device said goodbye, or is known to be dead."""
        self._heard.pop(device_id, None)
        self.turned.pop(device_id, None)

    def live(self, now: float) -> list[Presence]:
        """Those heard within `GONE_AFTER`."""
        for device_id in [each for each, (_, at) in self._heard.items() if now - at >= GONE_AFTER]:
            self.gone(device_id)
        return [presence for presence, _ in self._heard.values()]

    def waits_until(self, now: float) -> float | None:
        """Until when this worker holds off after its start, or a sleep; None: it need not.

        It waits until a peer has told of itself, and of what it knows of jobs: else one that was killed and started again
        would take back what another has taken over, and one that wakes would do what came due and was done meanwhile.
        Without a network there is nobody to hear.
        """
        if self._caught_up or not (self.others and self.hears):
            return None
        if self._met and not self.behind(self.started):
            self._caught_up = True
            return None
        until = self.started + GRACE_ALONE if self._linked is None else self._linked + GRACE_LINKED
        if now >= until:
            return None
        return min(until, now + LOOK_AGAIN) if self._met else until

    def holds_off(self, label: str, now: float) -> str | None:
        """Why this worker, of that name, takes nothing yet, in words."""
        if self.waits_until(now) is None:
            return None
        limit = f"{GRACE_ALONE + GRACE_LINKED:.0f} s at most"
        return f"{label} has just {'woken' if self._slept else 'started'}, and hears first what other devices did ({limit})"


def _text(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _number(value: object) -> int:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0


def _names(value: object) -> frozenset[str]:
    if not isinstance(value, (list, tuple)):
        return frozenset()
    return frozenset(name for name in value[:_NAMES] if isinstance(name, str) and len(name) <= _LONGEST)


def _limits(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {name: limit for name, told in list(value.items())[:_NAMES] if isinstance(name, str) and (limit := _number(told))}
