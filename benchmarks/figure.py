"""What does a benchmark report, and does it reach its target?"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TARGETS_FILE = Path(__file__).with_name("targets.toml")


@dataclass(frozen=True)
class Sample:
    """Several measurements of one thing: their median and how far they lie apart."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """A sample of these values; at least one."""
        return cls(tuple(values))

    @property
    def median(self) -> float:
        """The value in the middle."""
        return statistics.median(self.values)

    def percentile(self, share: float) -> float:
        """The smallest value that `share` (0 to 1) of all values do not exceed."""
        return sorted(self.values)[max(0, math.ceil(share * len(self.values)) - 1)]

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return min(self.values), max(self.values)


@dataclass(frozen=True)
class Target:
    """What a figure has to reach; `ratio` counts against the peer, the others are absolute.

    Those that are `scaled` were set for the reference machine, and allow for a slower one (`benchmarks.yardstick`).
    """

    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    scaled: bool = False
    aim: str = ""

    def words(self, peer: str | None) -> str:
        """The target as the table shows it."""
        if self.ratio is not None:
            return f">= {self.ratio:g} x {peer or 'peer'}"
        if self.at_least is not None:
            return f">= {self.at_least:,.12g}"
        return f"<= {self.at_most:,.12g}" if self.at_most is not None else ""

    def holds(self, value: float, peer_value: float | None, slowness: float = 1.0) -> bool | None:
        """Whether a value reaches the target; None where there is nothing to compare with."""
        if self.ratio is not None:
            return None if peer_value is None else value >= self.ratio * peer_value
        allowed = slowness if self.scaled else 1.0
        if self.at_least is not None:
            return value * allowed >= self.at_least
        return None if self.at_most is None else value <= self.at_most * allowed


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    name: str
    value: float
    unit: str
    target: Target = Target()
    peer: str | None = None
    peer_value: float | None = None
    spread: tuple[float, float] | None = None
    slowness: float = 1.0  # how many times slower than the reference machine this one was meanwhile

    @property
    def holds(self) -> bool | None:
        """Whether the target is reached; None without a target or without its peer."""
        return self.target.holds(self.value, self.peer_value, self.slowness)

    @property
    def holds_as_it_is(self) -> bool | None:
        """Whether it is reached without allowing for a slower machine."""
        return self.target.holds(self.value, self.peer_value)

    @property
    def at_reference(self) -> float | None:
        """What the value would be at the speed of the reference machine, where its target is scaled."""
        if not self.target.scaled:
            return None
        return self.value * self.slowness if self.target.at_least is not None else self.value / self.slowness

    def to_json(self) -> dict[str, object]:
        """The row as `--json` prints it."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": self.peer_value,
            "target": self.target.words(self.peer) or None,
            "holds": self.holds,
            "holds_as_it_is": self.holds_as_it_is,
            "at_reference": self.at_reference,
        }


def load_targets(benchmark: str, path: Path = TARGETS_FILE) -> Mapping[str, Target]:
    """The targets of one benchmark by the names of its figures."""
    with path.open("rb") as file:
        section = tomllib.load(file).get(benchmark, {})
    return {name: Target(**entry) for name, entry in section.items()}


def table(figures: Sequence[Figure]) -> str:
    """The figures as an aligned text table."""
    head = ("figure", "value", "spread", "unit", "peer", "its value", "ratio", "at reference", "target", "holds")
    rows = [head, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def verdict(figures: Sequence[Figure]) -> str:
    """One sentence: which targets hold, and plainly which do not."""
    missed = [figure for figure in figures if figure.holds is False]
    judged = [figure for figure in figures if figure.holds is not None]
    scaled = sum(1 for figure in judged if figure.holds and not figure.holds_as_it_is)
    slower = f" ({scaled} of them at the speed of the reference machine)" if scaled else ""
    if not missed:
        return f"All {len(judged)} targets that could be judged hold{slower}."
    told = [
        f"{figure.name} is {number(figure.value)} {figure.unit}, target {figure.target.words(figure.peer)}{_scaled(figure)}"
        for figure in missed
    ]
    return f"{len(missed)} of {len(judged)} targets DO NOT HOLD: {'; '.join(told)}."


def _scaled(figure: Figure) -> str:
    return "" if figure.at_reference is None else f" ({number(figure.at_reference)} at the speed of the reference machine)"


def as_json(figures: Sequence[Figure]) -> str:
    """The list that `--json` prints."""
    return json.dumps([figure.to_json() for figure in figures], indent=1)


def number(value: float) -> str:
    """A number with about three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cells(figure: Figure) -> tuple[str, ...]:
    ratio = figure.value / figure.peer_value if figure.peer_value else None
    low_high = "" if figure.spread is None else f"{number(figure.spread[0])}..{number(figure.spread[1])}"
    holds = {True: "yes", False: "NO", None: ""}[figure.holds]
    if figure.holds and not figure.holds_as_it_is:
        holds = "scaled"
    return (
        figure.name,
        number(figure.value),
        low_high,
        figure.unit,
        figure.peer or "",
        "" if figure.peer_value is None else number(figure.peer_value),
        "" if ratio is None else f"{ratio:.2f}",
        "" if figure.at_reference is None else number(figure.at_reference),
        figure.target.words(figure.peer),
        holds,
    )
