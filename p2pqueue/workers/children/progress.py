"""How far is a program, by what it prints? Pure.

A pattern is a regular expression that is searched in each line. Its named groups say what was found: `percent` (0 to
100), `fraction` (0 to 1), or `done` with `total`, which may stand in different lines and may be numbers or times
(`01:02:03.5`); `phase` names what the program is at. Without names the first group is the percentage.
"""

from __future__ import annotations

import re

from p2pqueue.errors import ConfigError

_NAMES = frozenset({"percent", "fraction", "done", "total", "phase"})


class ProgressPattern:
    """Reads progress from lines, one after the other."""

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ConfigError(f"the progress pattern {pattern!r} is no regular expression: {error}") from error
        names = frozenset(self._pattern.groupindex)
        if not self._pattern.groups or names - _NAMES:
            raise ConfigError(f"the progress pattern {pattern!r} needs a group: {', '.join(sorted(_NAMES))}, or one without a name")
        self._named = bool(names)
        self._total: float | None = None
        self._done: float | None = None
        self._fraction = 0.0

    def read(self, line: str) -> tuple[float, str | None] | None:
        """The fraction and the phase after this line, None where it says nothing."""
        found = self._pattern.search(line)
        if found is None:
            return None
        groups = found.groupdict() if self._named else {"percent": found[1]}
        phase = (groups.get("phase") or "").strip() or None
        fraction = self._fraction_of(groups)
        if fraction is None and phase is None:
            return None
        if fraction is not None:
            self._fraction = min(1.0, max(0.0, fraction))
        return self._fraction, phase

    def _fraction_of(self, groups: dict[str, str | None]) -> float | None:
        percent, fraction = _number(groups.get("percent")), _number(groups.get("fraction"))
        if percent is not None or fraction is not None:
            return percent / 100 if percent is not None else fraction
        total, done = _number(groups.get("total")), _number(groups.get("done"))
        self._total = total if total is not None else self._total
        self._done = done if done is not None else self._done
        if done is None or not self._total:
            return None
        return done / self._total


def _number(text: str | None) -> float | None:
    """A number or a time as seconds."""
    if text is None:
        return None
    value = 0.0
    try:
        for part in text.strip().rstrip("%").replace(",", ".").split(":"):
            value = value * 60 + float(part)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None
