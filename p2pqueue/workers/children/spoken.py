"""What does a line mean that a program of a task with `talks = "json"` writes, and what is it told of its job? Pure.

A line is for the node where it is a JSON object with one of the keys `progress`, `phase`, `checkpoint`, `log`, or one that
ends the attempt: `result`, `error`, `retry_in`, `continue`. All else that a program prints belongs in its log. A line
that is meant for the node and can't be taken is refused in words.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from p2pqueue.errors import ArgumentError
from p2pqueue.workers.children.value import Value

if TYPE_CHECKING:
    from p2pqueue.workers.children.context import JobContext
    from p2pqueue.workers.children.protocol import FileGrant

LINE_LIMIT: Final = 64 * 1024  # bytes of a line for the node, its end left out
ENDS: Final = ("result", "error", "retry_in", "continue")
_KEYS: Final = frozenset({"progress", "phase", "checkpoint", "log", *ENDS})
_SHOWN: Final = 40  # characters of a value that a refusal quotes


class Refused(Exception):
    """A line that is meant for the node and can't be taken; the text says why."""


class Garbled(Exception):
    """A line that may be meant for the node and is no JSON: it goes to the log, and is told of where no end follows."""


class Said(Value):
    """What one line says: its known keys with values of their kinds, and which of them ends the attempt."""

    words: Mapping[str, Any]
    end: str | None


def read(line: bytes) -> Said | None:
    """What a line says to the node; None for a line of the log. Raises `Garbled`, and `Refused`."""
    if not line.lstrip().startswith(b"{"):
        return None
    if len(line) > LINE_LIMIT:
        raise Refused(f"it wrote a line of more than {LINE_LIMIT:,} bytes; what is larger belongs in a file")
    try:
        found = json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise Refused(f"it wrote a line that is not UTF-8, at its byte {error.start + 1}") from None
    except RecursionError:
        raise Refused("it wrote a line of JSON that is nested too deep") from None
    except ValueError as error:
        raise Garbled(str(error)) from None
    if type(found) is not dict or _KEYS.isdisjoint(found):
        return None
    ends = [key for key in ENDS if key in found]
    if len(ends) > 1:
        raise Refused(f"it wrote a line with {' and '.join(ends)}: an attempt ends in one way")
    _check(found)
    return Said(found, ends[0] if ends else None)


def _check(found: Mapping[str, Any]) -> None:
    for key in ("progress", "retry_in"):
        if key in found:
            _check_number(key, found[key])
    if found.get("retry_in", 0) < 0:
        raise Refused(f"retry_in is a number of seconds from 0 on, not {_shown(found['retry_in'])}")
    for key, kinds, what in (
        ("phase", (str, type(None)), "a text"), ("error", (str,), "a text"), ("reason", (str, type(None)), "a text"),
        ("retry", (bool,), "true or false"),
    ):  # fmt: skip
        if key in found and not isinstance(found[key], kinds):
            raise Refused(f"{key} is {what}, not {_shown(found[key])}")


def _check_number(key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"{key} is a number, not {_shown(value)}")
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise Refused(f"{key} is a number that is too large")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _refuse_constant(name: str) -> NoReturn:
    raise Refused(f"it wrote a line with {name}, which is no JSON; write null, or a text")


# -- what it is told ----------------------------------------------------------------------------------------------------


def job_line(job: JobContext, args: Mapping[str, Any], *, files: Mapping[str, tuple[str, FileGrant]], timeout: float | None) -> bytes:
    """The line that tells a program its job; `files` holds paths. Raises `ArgumentError` for what JSON can't carry."""
    told = {
        "id": job.id,
        "task": job.task,
        "attempt": job.attempt,
        "args": {name: files[name][0] if name in files else value for name, value in args.items()},
        "files": {name: {"path": path, "name": grant.name, "size": grant.size} for name, (path, grant) in files.items()},
        "checkpoint": job.resume_from,
        "workdir": str(job.workdir),
        "deadline": job.deadline,
        "timeout": timeout,
    }
    try:
        return json.dumps(told, allow_nan=False, default=_as_text).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"the program was not started: JSON can't carry what its job was given: {error}") from error


def stop_line(why: str) -> bytes:
    """The line that asks a program to end."""
    return json.dumps({"stop": why}).encode() + b"\n"


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    raise TypeError(f"a value of type {type(value).__name__}")
