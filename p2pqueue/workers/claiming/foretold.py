"""Which jobs have other devices told that they begin, though no row says so yet?

A claim is told by a signal before its handler starts, and its row comes some hundredths of a second later. Meanwhile
nobody else takes the job; and should its worker die of it at once, the others count the attempt in its place. Pure:
what peers told and the time go in. Times are seconds, monotonic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

HELD: Final = 5.0  # seconds for which a job is left to the one who told of it: until then its row has come, or its end is known
KNOWN: Final = 30.0  # seconds for which it is known that this was told already
MOST: Final = 1_000  # jobs of one device
AUTHOR: Final = 16  # bytes of an author's id


class Told(NamedTuple):
    """A claim of another device: the job, its generation, the number of the claim and of the attempt, and who writes it."""

    job_id: str
    generation: int
    claim: int
    attempt: int
    author: bytes


def read_told(values: Any) -> Told | None:
    """A claim as a signal tells it; None where it is none."""
    if not isinstance(values, (list, tuple)) or len(values) != len(Told._fields):
        return None
    job_id, generation, claim, attempt, author = values
    if not (isinstance(job_id, str) and isinstance(author, bytes) and len(author) == AUTHOR):
        return None
    if not all(type(number) is int and 0 <= number < 1 << 40 for number in (generation, claim, attempt)):
        return None
    return Told(job_id, generation, claim, attempt, author) if 1 <= attempt <= claim else None


class Foretold:
    """What each device told of itself, as far as its rows may not have come."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, tuple[Told, float]]] = {}  # by device and job, the oldest first
        self._open: dict[str, float] = {}  # jobs of which no row has come since, the oldest first
        self._lately: dict[str, tuple[str, float]] = {}

    def heard(self, device_id: str, begun: Iterable[Told], back: Iterable[str], now: float) -> bool:
        """Takes in what a device begins, and which jobs it gives back that it had not begun; says whether any is free by that."""
        told = self._told.setdefault(device_id, {})
        given_back = [told.pop(job_id, None) for job_id in back]
        for each in begun:
            if told.get(each.job_id, (None,))[0] == each:  # saying it again holds the job no longer
                continue
            told.pop(each.job_id, None)
            self._open.pop(each.job_id, None)
            told[each.job_id] = each, now
            self._open[each.job_id] = now
            self._lately[each.job_id] = device_id, now
        while told and (len(told) > MOST or now - next(iter(told.values()))[1] > KNOWN):
            del told[next(iter(told))]
        while self._open and (len(self._open) > MOST or now - next(iter(self._open.values())) > HELD):
            del self._open[next(iter(self._open))]
        while len(self._lately) > MOST:
            del self._lately[next(iter(self._lately))]
        return any(given_back)

    def written(self, job_ids: Iterable[str]) -> None:
        """Rows of these jobs have come, and tell whatever there is to tell, or will."""
        if self._open:
            for job_id in job_ids:
                self._open.pop(job_id, None)

    def heard_lately(self) -> Mapping[str, tuple[str, float]]:
        """The jobs that were told of since this was asked last, by which device and when."""
        lately, self._lately = self._lately, {}
        return lately

    def taken(self, now: float) -> dict[str, tuple[int, int]]:
        """The jobs that others have begun, with generation and number of the claim: they are free again where their row tells of it."""
        found: dict[str, tuple[int, int]] = {}
        for told in self._told.values():
            for each, at in reversed(told.values()):
                if now - at > HELD:
                    break
                found[each.job_id] = each.generation, each.claim
        return found

    def until(self, now: float) -> float | None:
        """When those may be taken all the same of which no row has come."""
        last = next(reversed(self._open.values()), None)
        return None if last is None or now - last > HELD else last + HELD

    def of(self, device_id: str) -> list[Told]:
        """What a device had begun when it was heard of last."""
        return [each for each, _ in self._told.get(device_id, {}).values()]

    def forget(self, device_id: str) -> None:
        """A device has left in order, or what it had begun is written."""
        for job_id in self._told.pop(device_id, {}):
            self._open.pop(job_id, None)
