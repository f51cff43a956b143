"""Which command tasks does a TOML file declare?

    queue = "media"                                  # default: "default"

    [tasks.shrink]
    command = ["ffmpeg", "-y", "-i", "{input}", "-vf", "scale=-2:{height}", "{output}"]
    output = "small.mp4"                             # or: outputs = ["small.mp4", "poster.jpg"]
    args = { height = 720 }                          # defaults; a name without one must be given
    progress = 'Duration: (?P<total>[\\d:.]+)|time=(?P<done>[\\d:.]+)'
    needs = ["ffmpeg"]
    timeout = "2h"

`inputs = ["video", "subtitles"]` names the file parameters where `{input}` alone won't do. `shell = true` takes one
text as command and hands it to /bin/sh, with each value quoted. `talks = "json"` is for a program that reads its job
and tells of it by lines of JSON. `{here}` in a command is the folder of this file. `env = { LANG = "C" }` adds to the
environment of the program.
"""

from __future__ import annotations

import difflib
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from p2pqueue.errors import ConfigError
from p2pqueue.jobs.backoff import Backoff
from p2pqueue.settings import parse_duration, parse_size
from p2pqueue.workers.children.command import Command

_HERE: Final = re.compile(r"\{\{|\}\}|(\{here\})")
_KEYS: Final = (
    "command", "shell", "env", "talks", "inputs", "output", "outputs", "args", "progress", "doc", "queue", "title", "priority",
    "max_attempts", "timeout", "stall_timeout", "backoff", "retry_on", "needs", "max_input", "memory_limit",
)  # fmt: skip


@dataclass(frozen=True)
class CommandTask:
    """A task that runs a program."""

    name: str
    command: Command
    description: dict[str, Any]
    function: None = None

    def describe(self) -> dict[str, Any]:
        """What a node must know of it, as a plain map."""
        return dict(self.description)


def read_commands(path: Path) -> dict[str, CommandTask]:
    """The tasks of a file. Raises `ConfigError`, naming the file, the task and the key."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    tasks = content.get("tasks")
    if not isinstance(tasks, dict) or not tasks:
        raise ConfigError(f"{path} declares no task; it needs a table such as [tasks.shrink]")
    queue = content.get("queue", "default")
    made = {}
    for name, table in tasks.items():
        try:
            made[name] = _task(name, table, queue, path.absolute().parent)
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"{path}, task {name!r}: {error}") from error
    return made


def _task(name: str, table: Any, queue: str, here: Path) -> CommandTask:
    if not isinstance(table, dict):
        raise ConfigError("a task is a table with a command")
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            raise ConfigError(f"there is no key {key!r}" + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(_KEYS)}"))
    command = _command(table, here)
    parameters = _parameters(command, command.defaults or {})
    description = {
        "name": name,
        "queue": _of(table, "queue", str, queue),
        "inline": False,
        "max_attempts": _of(table, "max_attempts", int, 3),
        "timeout": _duration(table, "timeout"),
        "stall_timeout": _duration(table, "stall_timeout"),
        "backoff": _backoff(_of(table, "backoff", dict, None)),
        "retry_on": _of(table, "retry_on", list, None),
        "needs": _of(table, "needs", list, []),
        "max_input": _size(table, "max_input"),
        "memory_limit": _size(table, "memory_limit"),
        "parameters": parameters,
        "command": command.to_map(),
        "doc": _of(table, "doc", str, ""),
        "title": _of(table, "title", str, None),
        "priority": _of(table, "priority", int, 0),
    }
    if description["max_attempts"] < 1:
        raise ConfigError("max_attempts is at least 1")
    return CommandTask(name, command, description)


def _command(table: Mapping[str, Any], here: Path) -> Command:
    words = table.get("command")
    shell = _of(table, "shell", bool, False)
    if isinstance(words, str):
        if not shell:
            raise ConfigError("command is a list of words; for one text that a shell reads, say shell = true")
        words = [words]
    if not isinstance(words, list) or not words:
        raise ConfigError("command is a list of words, the program first")
    words = [_placed(word, here, shell=shell) for word in words]
    outputs = _of(table, "outputs", list, [_of(table, "output", str, "")] if "output" in table else [])
    plain = {"argv": words, "outputs": outputs, "shell": shell, "progress": _of(table, "progress", str, None)}
    plain |= {"defaults": _of(table, "args", dict, {}), "talks": _of(table, "talks", str, None)}
    plain["env"] = _of(table, "env", dict, {})
    inputs = _of(table, "inputs", list, None)
    if inputs is None:
        inputs = ["input"] if "input" in Command.from_map(plain).parameters() else []
    return Command.from_map(plain | {"inputs": inputs})


def _placed(word: Any, here: Path, *, shell: bool) -> Any:
    """A word with `{here}` filled, for good: no job may say where the program lies."""
    if not isinstance(word, str):
        return word
    folder = shlex.quote(str(here)) if shell else str(here)
    folder = folder.replace("{", "{{").replace("}", "}}")
    return _HERE.sub(lambda match: folder if match[1] else match[0], word)


def _parameters(command: Command, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys([*command.parameters(), *defaults]))
    described = []
    for name in names:
        is_file = name in command.inputs
        if name == "input" and command.inputs and not is_file:
            continue  # the first input under its other name
        shown: dict[str, Any] = {"default": defaults[name]} if name in defaults else {}
        annotation = "File" if is_file else type(defaults[name]).__name__ if name in defaults else "str"
        described.append({"name": name, "annotation": annotation, "is_file": is_file, "required": name not in defaults} | shown)
    return described


def _of(table: Mapping[str, Any], key: str, kind: type[Any], default: Any) -> Any:
    value = table.get(key, default)
    if value is default:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{key} is a {kind.__name__}, not {value!r}")
    return value


def _duration(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    seconds = parse_duration(value) if isinstance(value, str) else float(value)
    if not seconds > 0:
        raise ConfigError(f"{key} is above 0 seconds")
    return seconds


def _size(table: Mapping[str, Any], key: str) -> int | None:
    value = table.get(key)
    if value is None:
        return None
    return parse_size(value) if isinstance(value, str) else int(value)


def _backoff(table: Mapping[str, Any] | None) -> str | None:
    if table is None:
        return None
    try:
        return Backoff(**{key: parse_duration(value) if isinstance(value, str) else value for key, value in table.items()}).to_json()
    except TypeError as error:
        raise ConfigError("backoff has the keys first, factor and cap") from error
