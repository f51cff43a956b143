"""What can be said about a task, and about one enqueueing of it?

`TaskOptions` is said once, where the task is declared; `EnqueueOptions` with each `.options(…)`. Durations are
seconds or `timedelta` on the way in, and seconds inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, Final, TypedDict

from p2pqueue.errors import ArgumentError, ConfigError, P2PQueueError
from p2pqueue.jobs.backoff import Backoff, kind_of, seconds

MAX_ATTEMPTS: Final = 3  # attempts, where neither task nor job says otherwise
_KEY_LIMIT: Final = 512  # characters of a unique key
_TITLE_LIMIT: Final = 512  # characters
_LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC).timestamp()  # as on the command line

RetryOn = Iterable[type[BaseException] | str]


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """How jobs of a task are run, as declared by `@queue.task(…)`.

    :ivar max_attempts: attempts of a job in all, the first one included; default 3. It bounds the runs of one
        partition: devices that can't see one another may each spend them.
    :ivar backoff: the wait between attempts; default `Backoff()`: at most 5 s, doubling up to 10 min, fully random.
    :ivar timeout: seconds that one attempt may take; default none. The attempt then fails.
    :ivar stall_timeout: seconds that may pass without progress; default none. The attempt then fails.
    :ivar retry_on: exceptions, as classes or by name, after which a job is tried again; default every exception.
        A timeout is always tried again, a crash unless another crash went before it.
    :ivar needs: tags that a worker must offer, or programs on its PATH; default none.
    :ivar inline: runs an `async def` in the node's own loop instead of a child process; default False. It starts
        faster, but can't be stopped while it blocks, and a crash of it is a crash of the node.
    :ivar queue: name of the queue that its jobs go to; default the declaring queue's.
    :ivar title: title of its jobs; default the task's name.
    :ivar priority: higher runs first; default 0.
    :ivar max_input: largest input in bytes that a worker takes for it; default any. Larger jobs wait.
    :ivar memory_limit: bytes of memory of one attempt; default no limit. Not for inline tasks.
    """

    max_attempts: int = MAX_ATTEMPTS
    backoff: Backoff = dataclasses.field(default_factory=Backoff)
    timeout: float | None = None
    stall_timeout: float | None = None
    retry_on: tuple[str, ...] | None = None
    needs: frozenset[str] = frozenset()
    inline: bool = False
    queue: str = "default"
    title: str | None = None
    priority: int = 0
    max_input: int | None = None
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        for name, kind in _TASK_KINDS.items():
            _check_kind(name, getattr(self, name), kind, ConfigError)
        if self.max_attempts < 1:
            raise ConfigError(f"max_attempts is at least 1, not {self.max_attempts}")
        for name in ("timeout", "stall_timeout", "max_input", "memory_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is above 0, not {value}; leave it out for no limit")
        if self.inline and self.memory_limit is not None:
            raise ConfigError("an inline task runs in the node itself and can have no memory_limit of its own")


class TaskOption(TypedDict, total=False):
    """The options of `@queue.task(…)`; see `TaskOptions`."""

    max_attempts: int
    backoff: Backoff
    timeout: float | timedelta | None
    stall_timeout: float | timedelta | None
    retry_on: RetryOn | None
    needs: Iterable[str]
    inline: bool
    queue: str
    title: str | None
    priority: int
    max_input: int | None
    memory_limit: int | None


def declared(given: Mapping[str, Any]) -> TaskOptions:
    """The options that were given to `@queue.task`. Raises `TypeError` for an unknown one, `ConfigError` for a bad value."""
    _refuse_unknown(given, TASK_OPTIONS)
    plain: dict[str, Any] = {name: seconds(value) if isinstance(value, timedelta) else value for name, value in given.items()}
    if "retry_on" in plain:
        plain["retry_on"] = _names(plain["retry_on"])
    if "needs" in plain:
        plain["needs"] = _tags(plain["needs"])
    return TaskOptions(**plain)


class EnqueueOption(TypedDict, total=False):
    """The options of one enqueueing; see `EnqueueOptions`."""

    priority: int
    title: str
    delay: float | timedelta
    run_at: datetime
    unique_key: str
    max_attempts: int
    timeout: float | timedelta


@dataclass(frozen=True, kw_only=True)
class EnqueueOptions:
    """What one enqueueing asks for; a None leaves it to the task.

    :ivar priority: higher runs first; default the task's.
    :ivar title: what people see; default the task's name.
    :ivar delay: seconds or `timedelta` before the job may run; default none.
    :ivar run_at: moment before which it doesn't run (with its time zone); default none. It may run later.
    :ivar unique_key: enqueueing a key of the task whose job has not ended gives that job, and makes no second one;
        default none. The job's id is made from space, task and key.
    :ivar max_attempts: attempts in all; default the task's.
    :ivar timeout: seconds or `timedelta` that one attempt may take; default the task's.
    """

    priority: int | None = None
    title: str | None = None
    delay: float | None = None
    run_at: datetime | None = None
    unique_key: str | None = None
    max_attempts: int | None = None
    timeout: float | None = None

    def changed(self, changes: Mapping[str, Any]) -> EnqueueOptions:
        """These options with some of them changed. Raises `TypeError` for an unknown one, `ArgumentError` for a bad value."""
        _refuse_unknown(changes, ENQUEUE_OPTIONS)
        plain: dict[str, Any] = {name: seconds(value) if isinstance(value, timedelta) else value for name, value in changes.items()}
        options = dataclasses.replace(self, **plain)
        options._check()
        return options

    @property
    def is_due(self) -> bool:
        """Says whether the job may run at once."""
        return self.delay is None and self.run_at is None

    def due_ms(self, now_ms: int) -> int | None:
        """When the job may first run, in milliseconds UTC; None for at once."""
        if self.delay is not None:
            return now_ms + round(self.delay * 1000)
        return None if self.run_at is None else round(self.run_at.timestamp() * 1000)

    def _check(self) -> None:
        for name, kind in _ENQUEUE_KINDS.items():
            _check_kind(name, getattr(self, name), kind, ArgumentError)
        if self.delay is not None and self.run_at is not None:
            raise ArgumentError("a job takes a delay or a run_at, not both")
        if self.delay is not None and not 0 <= self.delay <= 100 * 366 * 86400:
            raise ArgumentError(f"a delay lies between 0 seconds and 100 years, not {self.delay!r}")
        if self.run_at is not None and self.run_at.utcoffset() is None:
            raise ArgumentError("run_at needs a time zone, as in datetime.now(timezone.utc) + timedelta(hours=1)")
        if self.run_at is not None and self.run_at.timestamp() >= _LATEST:
            raise ArgumentError(f"run_at lies before the year 2100, not at {self.run_at}")
        if self.max_attempts is not None and not 1 <= self.max_attempts < 1 << 31:
            raise ArgumentError(f"max_attempts is at least 1, not {self.max_attempts}")
        if self.timeout is not None and not self.timeout > 0:
            raise ArgumentError(f"a timeout is above 0 seconds, not {self.timeout!r}")
        if self.priority is not None and not -(1 << 31) <= self.priority < 1 << 31:
            raise ArgumentError(f"a priority fits 32 bits; {self.priority} doesn't")
        check_text("unique_key", self.unique_key, _KEY_LIMIT)
        check_text("title", self.title, _TITLE_LIMIT)


_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "int": ((int,), "a whole number"),
    "bytes": ((int, NoneType), "a whole number of bytes"),
    "duration": ((int, float, NoneType), "a number of seconds or a timedelta"),
    "text": ((str,), "a text"),
    "text or none": ((str, NoneType), "a text"),
    "int or none": ((int, NoneType), "a whole number"),
    "bool": ((bool,), "True or False"),
    "moment": ((datetime, NoneType), "a datetime with its time zone"),
    "backoff": ((Backoff,), "a Backoff, as in Backoff(first=5, cap=600)"),
}
_TASK_KINDS: Final = {
    "max_attempts": "int", "backoff": "backoff", "timeout": "duration", "stall_timeout": "duration", "inline": "bool", "queue": "text",
    "title": "text or none", "priority": "int", "max_input": "bytes", "memory_limit": "bytes",
}  # fmt: skip
_ENQUEUE_KINDS: Final = {
    "priority": "int or none", "delay": "duration", "run_at": "moment", "max_attempts": "int or none", "timeout": "duration",
}  # fmt: skip
TASK_OPTIONS: Final = tuple(field.name for field in dataclasses.fields(TaskOptions))
ENQUEUE_OPTIONS: Final = tuple(field.name for field in dataclasses.fields(EnqueueOptions))


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise TypeError(f"there is no option {name!r} here; there are {', '.join(known)}")


def _check_kind(name: str, value: Any, kind: str, error: type[P2PQueueError]) -> None:
    """Refuses a value of another type than the option takes. A bool is a number to Python, and to nobody else."""
    types, words = _KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise error(f"{name} takes {words}, not {value!r}")
    if kind == "duration" and isinstance(value, int) and abs(value) >> 53:
        raise error(f"{name} takes {words}, and not so many")


def _names(retry_on: RetryOn | None) -> tuple[str, ...] | None:
    if retry_on is None:
        return None
    if isinstance(retry_on, (str, type)) or not isinstance(retry_on, Iterable):
        raise ConfigError("retry_on is a tuple of exceptions, as in retry_on=(ConnectionError,)")
    names = tuple(retry_on)
    for name in names:
        if not isinstance(name, (str, type)):
            raise ConfigError(f"retry_on takes classes of exceptions or their names, not {name!r}")
    return tuple(name if isinstance(name, str) else kind_of(name) for name in names)


def _tags(needs: Iterable[str]) -> frozenset[str]:
    if isinstance(needs, str):  # it would be taken apart into letters
        raise ConfigError(f"needs is a set of tags, as in needs={{{needs!r}}}")
    if not isinstance(needs, Iterable):
        raise ConfigError(f'needs takes a set of tags, as in needs={{"ffmpeg"}}, not {needs!r}')
    return frozenset(needs)


def check_text(name: str, text: Any, limit: int) -> None:
    """Refuses what is no text that can be shown. Raises `ArgumentError`."""
    if text is None:
        return
    if not isinstance(text, str) or not text or len(text) > limit:
        raise ArgumentError(f"{name} is a text of 1 to {limit} characters")
    if not text.isprintable():  # also false for lone surrogates
        raise ArgumentError(f"{name} holds characters that can't be shown: {text!r}")
