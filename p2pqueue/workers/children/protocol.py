"""What do a node and its worker processes say to each other?

Over one stream socket, each message a MessagePack map behind its length:

    node → child    Assignment   run this
                    Reply        to a Checkpoint or a Request
                    Stop         why the handler is stopped: to a program that talks, before TERM
                    Reap         what the handler left behind was killed: collect it, and be ready again
                    Leave        end in an orderly way
    child → node    Ready        the application is loaded (or why it isn't), with its tasks
                    Progress     a step of the handler; only the newest counts
                    Checkpoint   state to keep; the child waits for the Reply
                    Request      something the handler asks of the node; the child waits for the Reply
                    Ended        what became of the handler

Neither side trusts bytes: a message is bounded, and what is none raises `MalformedMessage`. Nothing is unpickled.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgpack

from p2pqueue.errors import ArgumentError, MalformedMessage
from p2pqueue.workers.children.value import Value

MESSAGE_LIMIT: Final = 1 << 20  # bytes: arguments, results and checkpoints hold 64 KiB each
PHASE_LIMIT: Final = 200  # characters of a phase
TRACEBACK_LIMIT: Final = 16 * 1024  # characters
ERROR_LIMIT: Final = 2 * 1024  # characters

IDLE_END: Final = 143  # exit status of a child that was told to end (TERM) while it ran nothing
LOST_NODE: Final = 70  # exit status of a child that lost the connection to its node

Why = Literal["cancelled", "held", "shutdown", "lost"]

_LENGTH = struct.Struct(">I")
_NONE: Final[dict[str, Any]] = {}


# -- what runs ----------------------------------------------------------------------------------------------------


class FileGrant(Value):
    """A file that a handler is given: where it lies on this device, or what fetches it."""

    path: str | None
    capability: str | None
    name: str
    size: int | None


class OutputFile(Value):
    """A file that a handler returned, by its name in the result. `label` is the file's own name."""

    name: str
    path: str | None
    capability: str | None = None
    label: str | None = None


class Assignment(Value):
    """One attempt of a job. Durations are seconds from the start; `memory_limit` is in bytes."""

    key: str  # unique among the attempts of this device
    job_id: str
    task: str
    attempt: int
    args: bytes  # a packed map of parameter to value; a File is {"__file__": name}
    workdir: str
    log_file: str
    files: Mapping[str, FileGrant] = _NONE
    deadline: float | None = None
    stall_timeout: float | None = None
    resume_from: bytes | None = None
    command: dict[str, Any] | None = None  # of a command task, or of `exec`; needs no application
    memory_limit: int | None = None


class TaskDescription(Value):
    """What a node knows of a task without importing the application. None leaves it to the defaults."""

    name: str
    queue: str = "default"
    inline: bool = False
    max_attempts: int = 3
    timeout: float | None = None
    stall_timeout: float | None = None
    backoff: str | None = None  # JSON, as in a job's spec
    retry_on: tuple[str, ...] | None = None
    needs: frozenset[str] = frozenset()
    concurrency: int | None = None
    max_input: int | None = None
    memory_limit: int | None = None
    parameters: tuple[dict[str, Any], ...] = ()
    command: dict[str, Any] | None = None
    doc: str = ""
    title: str | None = None
    priority: int = 0

    def describe(self) -> dict[str, Any]:
        """A plain map of all this, as JSON and MessagePack can carry it."""
        plain = dict(vars(self))
        plain["retry_on"] = None if self.retry_on is None else list(self.retry_on)
        return plain | {"needs": sorted(self.needs), "parameters": list(self.parameters)}

    @classmethod
    def from_map(cls, plain: dict[str, Any]) -> TaskDescription:
        """The description that `describe` made the map of."""
        retry_on = plain.get("retry_on")
        fixed = {
            "retry_on": None if retry_on is None else tuple(retry_on),
            "needs": frozenset(plain.get("needs") or ()),
            "parameters": tuple(plain.get("parameters") or ()),
        }
        return cls(**(plain | fixed))


# -- how it ended -------------------------------------------------------------------------------------------------


class Succeeded(Value):
    """The handler returned; `result` is packed, `outputs` are the files that it names."""

    result: bytes
    outputs: tuple[OutputFile, ...] = ()


class Failed(Value):
    """The handler raised; `kinds` are the names of the exception's classes, the most special first.

    `final` where another attempt could only end in the same way.
    """

    error: str
    traceback: str | None = None
    kinds: tuple[str, ...] = ()
    log_tail: str | None = None
    final: bool = False


class RetryLater(Value):
    """The handler asked to be run again, after `delay` seconds or the task's backoff."""

    reason: str
    delay: float | None = None


class Continued(Value):
    """The handler gave the job back with a checkpoint."""

    state: bytes


class Crashed(Value):
    """The process of the handler died or had to be ended, and how."""

    reason: str
    log_tail: str | None = None


class TimedOut(Value):
    """The handler took longer than it may, in all or between two steps."""

    reason: str
    log_tail: str | None = None


class Stopped(Value):
    """The handler was stopped by its node."""

    why: Why


Outcome = Succeeded | Failed | RetryLater | Continued | Crashed | TimedOut | Stopped


# -- messages -----------------------------------------------------------------------------------------------------


class Reply(Value):
    """What the node answers to the message of that number: a value, or an error in words."""

    number: int
    value: Any = None
    error: str | None = None


class Stop(Value):
    """Why the handler is stopped, in one word."""

    why: str


class Reap(Value):
    """What the handler had left running was killed."""


class Leave(Value):
    """End in an orderly way."""


class Ready(Value):
    """The child can run tasks, or tells why it can't."""

    tasks: tuple[dict[str, Any], ...] = ()
    error: str | None = None


class Progress(Value):
    """How far the handler is, 0 to 1, and what it is at."""

    fraction: float
    phase: str | None = None


class Checkpoint(Value):
    """State to keep for the next attempt, packed."""

    number: int
    state: bytes


class Request(Value):
    """Something that the handler asks of the node."""

    number: int
    what: str
    fields: dict[str, Any]


class Ended(Value):
    """What became of the handler. `clean`: it left no process behind. `spent`: this child should run nothing more."""

    outcome: Outcome
    clean: bool
    spent: bool = False


Message = Assignment | Reply | Stop | Reap | Leave | Ready | Progress | Checkpoint | Request | Ended

_CLASSES: Final[dict[str, type[Any]]] = {
    each.__name__: each
    for each in (
        Assignment, Reply, Stop, Reap, Leave, Ready, Progress, Checkpoint, Request, Ended, FileGrant, OutputFile,
        Succeeded, Failed, RetryLater, Continued, Crashed, TimedOut, Stopped,
    )
}  # fmt: skip


def encode(message: Message) -> bytes:
    """The bytes of a message, with their length in front. Raises `ArgumentError` for what can't be carried."""
    try:
        # Paths of files may hold bytes that are no UTF-8, which Python carries as surrogates.
        body: bytes = msgpack.packb(message, default=_as_map, use_bin_type=True, datetime=True, unicode_errors="surrogateescape")
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError) as error:
        raise ArgumentError(f"this can't be carried: {error}") from error
    if len(body) > MESSAGE_LIMIT:
        raise ArgumentError(f"a message of {len(body):,} bytes, and at most {MESSAGE_LIMIT:,} are carried")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Takes bytes as they come and gives the messages that are whole. Holds at most one message and what was read."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Takes in bytes."""
        self._buffer += data

    def next(self) -> Message | None:
        """The next whole message, None where more bytes are needed. Raises `MalformedMessage`."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if length > MESSAGE_LIMIT:
            raise MalformedMessage(f"a message of {length:,} bytes, and at most {MESSAGE_LIMIT:,} are taken")
        end = _LENGTH.size + length
        if len(buffer) < end:
            return None
        body = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        return decode(body)


def decode(body: bytes) -> Message:
    """The message that these bytes stand for. Raises `MalformedMessage`."""
    try:
        message = msgpack.unpackb(
            body, object_hook=_from_map, raw=False, strict_map_key=False, timestamp=3, unicode_errors="surrogateescape"
        )
    except (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not a message between a node and its child: {error or type(error).__name__}") from error
    if not isinstance(message, Message):
        raise MalformedMessage("not a message between a node and its child")
    return message


_TAG: Final = "\x00"  # a key that no value of a user's carries; the tagged map is one of the classes above


def _as_map(value: Any) -> dict[str, Any]:
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        raise TypeError(f"a value of type {name}")
    return {_TAG: name, **vars(value)}


def _from_map(plain: dict[Any, Any]) -> Any:
    name = plain.pop(_TAG, None)
    if name is None:
        return plain
    made = _CLASSES[name]
    for key in ("outputs", "kinds", "tasks"):
        if key in plain:
            plain[key] = tuple(plain[key])
    return made(**plain)
