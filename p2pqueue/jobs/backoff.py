"""How long does a failed job wait before its next attempt, and which failures are tried again at all?

Exponential with full jitter ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015): the delay is drawn
evenly between nothing and a bound that grows with each attempt up to a cap, so that jobs which failed together
don't come back together. Pure: the random number is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from p2pqueue.errors import ConfigError

EVERYTHING: Final = ("Exception",)  # the default of `retry_on`: whatever a handler may reasonably raise


def seconds(value: float | timedelta) -> float:
    """A duration in seconds, from seconds or a `timedelta`. Raises `ConfigError` for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"a duration is a number of seconds or a timedelta, not {value!r}")
    return float(value)


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """The delays between the attempts of a job.

    Before attempt n + 1 the job waits a random time between 0 and min(cap, first × factor ** (n − 1)).

    :param first: bound of the first delay, in seconds or a `timedelta`; default 5 s; 0 tries again at once.
    :param factor: what the bound grows by at each attempt; at least 1; default 2.
    :param cap: the bound grows no further than this, in seconds or a `timedelta`; default 600 s.

    It does not bound the number of attempts (`max_attempts` does), nor hold back other jobs of the task.
    """

    first: float
    factor: float
    cap: float

    def __init__(self, first: float | timedelta = 5.0, *, factor: float = 2.0, cap: float | timedelta = 600.0) -> None:
        object.__setattr__(self, "first", seconds(first))
        object.__setattr__(self, "factor", float(factor))
        object.__setattr__(self, "cap", seconds(cap))
        if not (0 <= self.first < float("inf") and 1 <= self.factor < float("inf") and 0 <= self.cap < float("inf")):
            raise ConfigError(f"a backoff takes first and cap of at least 0 seconds and a factor of at least 1, not {self}")

    def bound(self, attempt: int) -> float:
        """The longest wait, in seconds, after attempt number `attempt` (1 is the first) failed."""
        try:
            return min(self.cap, self.first * self.factor ** max(0, attempt - 1))
        except OverflowError:
            return self.cap

    def delay(self, attempt: int, random: float) -> float:
        """The wait in seconds after attempt number `attempt` failed; `random` lies between 0 and 1."""
        return self.bound(attempt) * random

    def to_json(self) -> str:
        """The text that the column `backoff` of a job holds."""
        return json.dumps({"first": self.first, "factor": self.factor, "cap": self.cap})

    @classmethod
    def from_json(cls, text: str | None) -> Backoff:
        """The backoff that a column holds; the default for a null. Keys of later versions are ignored."""
        if text is None:
            return cls()
        try:
            stored: Any = json.loads(text)
            if not isinstance(stored, dict):
                raise TypeError("no map")
            return cls(**{name: float(stored[name]) for name in ("first", "factor", "cap") if name in stored})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"not a backoff: {text!r} ({error})") from error


def kind_of(exception: type[BaseException]) -> str:
    """The name by which `retry_on` knows an exception class: bare for built-in ones, else with its module."""
    if exception.__module__ == "builtins":
        return exception.__qualname__
    return f"{exception.__module__}.{exception.__qualname__}"


def kinds_of(exception: BaseException) -> tuple[str, ...]:
    """The names of an exception's class and of all that it derives from, nearest first."""
    return tuple(kind_of(kind) for kind in type(exception).__mro__ if kind is not object)


def is_retried(kinds: Iterable[str], retry_on: Collection[str] | None) -> bool:
    """Says whether a failure of these kinds is tried again; without `retry_on` every exception is.

    A name without a module also matches a class of that name in any module, so that a class defined in a
    program's main file is found by whoever imports that file under its own name.
    """
    wanted = EVERYTHING if retry_on is None else retry_on
    return any(kind in wanted or kind.rpartition(".")[2] in wanted for kind in kinds)
