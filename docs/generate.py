"""Which pages of the documentation are made from the code, so that they can't drift from it?

`python docs/generate.py` writes the pages under `reference/`; the tests compare them with what it would write.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from p2pqueue import Attempt, Backoff, File, Job, JobContext, Progress, Queue, Task, current_job, errors
from p2pqueue.cli import edge
from p2pqueue.cli.app import cli
from p2pqueue.jobs import options as options_of
from p2pqueue.node import Node
from p2pqueue.settings import TABLE, Setting

REFERENCE = Path(__file__).parent / "reference"
CLASSES: tuple[type, ...] = (Queue, Task, Job, Attempt, Progress, File, Backoff, JobContext, Node)
MADE_BY_HAND = {Queue, File, Backoff}  # the others are given by something
NOT_SHOWN = {"access", "describe", "row", "arow", "granted", "to_json", "from_json", "worker_run"}
ALIASES = {"Timeout": "float | timedelta | None", "Duration": "float | timedelta", "R_co": "R", "Self": "Task[P, R]",
           "Arguments": "Mapping[str, Any] | tuple[Any, ...]", "RetryOn": "Iterable[type[BaseException] | str]"}  # fmt: skip
LINKS = {"Task": "its [options](#options-of-queuetask)", "Enqueue": "its [options](#options-of-options)"}
NOTE = "<!-- Made by docs/generate.py: change the code, then run `make docs`. -->\n\n"


def settings_page() -> str:
    """The page of all settings."""
    lines = [
        "# Settings",
        "",
        "A setting comes from a flag of `p2pqueue run`, else from a variable of the environment, else from `config.toml`",
        "in the home, else it has its default. `p2pqueue config set NAME VALUE` writes the file, `config get NAME` tells what holds,",
        "`config path` says where the file lies.",
        "",
        "Durations are in seconds, or texts such as `90s`, `10m`, `1h30m`, `7d`. Sizes are in bytes, or texts such as `500MB` or `2GiB`.",
        "A list is an array in TOML, and separated by commas in a variable.",
        "",
        "| name in `config.toml` | kind | default | variable | what it is |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| `{s.name}` | {s.kind} | {_default(s)} | `{s.variable}` | {s.doc} |" for s in TABLE]
    lines += ["", "Where the home lies is no setting: `--home`, else `P2PQUEUE_HOME`, else the user's data folder.", ""]
    return NOTE + "\n".join(lines)


def _default(setting: Setting) -> str:
    if setting.shown:
        return setting.shown
    if isinstance(setting.default, bool):
        return "true" if setting.default else "false"
    if isinstance(setting.default, tuple):
        return ", ".join(setting.default) or "none"
    if setting.kind == "duration":
        return _duration(float(setting.default))
    if setting.kind == "size":
        return _size(int(setting.default))
    return str(setting.default)


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def _size(size: int) -> str:
    for unit, length in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= length and size % length == 0:
            return f"{size // length}{unit}"
    return str(size)


def errors_page() -> str:
    """The page of all errors."""
    parts = [
        "# Errors",
        "",
        "Everything that p2pqueue raises on purpose is a `P2PQueueError`; its text says what happened and what to do. Import them",
        "from `p2pqueue`. The command line tells the same words on stderr and ends with the exit code that stands with each here.",
        "",
        "One kind of misuse is Python's own error: an unknown keyword of `@queue.task(…)` or `.options(…)` raises `TypeError`, with the",
        "keywords that there are. A bad value raises `ConfigError` in the first and `ArgumentError` in the second. Arguments that don't",
        "fit the function's parameters are an `ArgumentError` as well.",
        "",
    ]
    for kind in _tree(errors.P2PQueueError):
        depth = len(kind.__mro__) - len(errors.P2PQueueError.__mro__) if kind is not errors.ResultTimeout else 2
        parts += [f"{'#' * min(2 + depth, 4)} `{kind.__name__}`", "", inspect.getdoc(kind) or "", "", _exit_code(kind), ""]
    parts += ["## Raised by, and in, handlers", ""]
    for raised in (errors.Retry, errors.Cancelled):
        parts += [f"### `{raised.__name__}`", "", inspect.getdoc(raised) or "", ""]
    return NOTE + "\n".join(parts)


def _exit_code(kind: type[errors.P2PQueueError]) -> str:
    code = next((code for fits, code in edge.CODES if issubclass(kind, fits)), edge.ERROR)
    more = f"; {edge.NOT_FOUND} where there is no such file" if kind is errors.InputUnreadable else ""
    return f"Exit code {code}{more}."


def _tree(kind: type[errors.P2PQueueError]) -> Iterator[type[errors.P2PQueueError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)


def python_page() -> str:
    """The page of all public names."""
    parts = [
        "# Python",
        "",
        "Everything here but `Node` is imported from `p2pqueue`; [errors](errors.md) have a page of their own. Durations are in seconds or",
        "a `timedelta`, sizes in bytes. A method with an *async twin* blocks; the twin, with an `a` before its name, takes and gives the",
        "same without blocking the event loop. [How to](../howto/python.md) shows them at work.",
        "",
    ]
    for kind in CLASSES:
        parts += _class(kind)
        if kind is Queue:
            parts += ["### Options of `@queue.task(…)`", "", *_option_table(options_of.TaskOption, options_of.TaskOptions), ""]
        if kind is Task:
            parts += ["### Options of `.options(…)`", "", *_option_table(options_of.EnqueueOption, options_of.EnqueueOptions), ""]
    parts += [
        "## `current_job`",
        "",
        f"    {_signature(current_job, 'current_job', method=False)}",
        "",
        inspect.getdoc(current_job) or "",
        "",
    ]
    return NOTE + "\n".join(parts)


def _class(kind: type) -> list[str]:
    prose, items = _parted(inspect.getdoc(kind) or "")
    parts = [f"## `{kind.__name__}`", ""]
    if kind in MADE_BY_HAND:
        parts += [f"    {_signature(kind.__init__, kind.__name__)}", ""]  # type: ignore[misc]
    parts += [prose, ""]
    members = list(_members(kind))
    if kind is Node:  # what makes it stands at `Queue.node`
        items = {}
    types = inspect.signature(kind).parameters if kind in MADE_BY_HAND or dataclasses.is_dataclass(kind) else {}
    rows = [(name, _bare(types[name].annotation) if name in types else "", text) for name, text in items.items()]
    for name, member in members:
        if isinstance(member, property):
            rows.append((name, _bare(member.fget.__annotations__["return"]), inspect.getdoc(member) or ""))
    if rows:
        parts += ["| name | type | what it is |", "|---|---|---|"]
        parts += [f"| `{name}` | {f'`{_cell(type_)}`' if type_ else ''} | {_cell(text)} |" for name, type_, text in rows] + [""]
    names = {name for name, _ in members}
    for name, member in members:
        if not isinstance(member, property) and not (name.startswith("a") and name[1:] in names):
            parts += _method(kind, name, member, twin=f"a{name}" if f"a{name}" in names else "")
    return parts


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, in the order of its source."""
    for name, member in vars(kind).items():
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name in NOT_SHOWN or (name.startswith("_") and name != "__call__"):
            continue
        if isinstance(plain, property) or inspect.isfunction(plain):
            yield name, plain


def _method(kind: type, name: str, function: Any, *, twin: str) -> list[str]:
    prose, items = _parted(inspect.getdoc(function) or "")
    shown = kind.__name__.lower() if name == "__call__" else name
    parts = [f"### `{kind.__name__}.{name}`", "", f"    {_signature(function, shown)}", "", prose, ""]
    if items:
        parts += [*(f"- `{item}`: {text}" for item, text in items.items()), ""]
    return [*parts, f"Async twin: `{twin}`.", ""] if twin else parts


def _option_table(given: Any, declared: type) -> list[str]:
    _, items = _parted(inspect.getdoc(declared) or "")
    types = {name: _bare(getattr(hint, "__forward_arg__", hint)) for name, hint in given.__annotations__.items()}
    rows = [f"| `{name}` | `{_cell(type_)}` | {_cell(items[name])} |" for name, type_ in types.items()]
    return ["| keyword | takes | what it is |", "|---|---|---|", *rows]


def _signature(function: Any, name: str, *, method: bool = True) -> str:
    shown = inspect.signature(function)
    parameters = [
        each.replace(annotation=each.empty if each.kind is each.VAR_KEYWORD or "P.args" in str(each.annotation) else _Hint(each.annotation))
        for each in list(shown.parameters.values())[1 if method else 0 :]
    ]
    result = inspect.Signature.empty if name[0].isupper() else _Hint(shown.return_annotation)
    text = str(shown.replace(parameters=parameters, return_annotation=result))
    waits = "await " if inspect.iscoroutinefunction(function) else ""
    return f"{waits}{name}{text}"


class _Hint:
    """An annotation that is shown as it was written."""

    def __init__(self, annotation: object) -> None:
        self._text = _bare(annotation)

    def __repr__(self) -> str:
        return self._text


def _bare(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\w+", lambda word: ALIASES.get(word[0], word[0]), text)


def _parted(text: str) -> tuple[str, dict[str, str]]:
    """The prose of a docstring, and what it says of each parameter or attribute."""
    prose: list[str] = []
    items: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        if found := re.match(r":(?:param|ivar) (\w+): (.*)", line):
            last = found[1]
            items[last] = found[2]
        elif last and line.startswith(" "):
            items[last] += f" {line.strip()}"
        else:
            last = ""
            prose.append(line)
    linked = re.sub(r"`(Task|Enqueue)Options`", lambda found: LINKS[found[1]], "\n".join(prose))
    return re.sub(r"\n{3,}", "\n\n", linked).strip(), items


def cli_page() -> str:
    """The page of all commands."""
    context = click.Context(cli, info_name="p2pqueue")
    parts = [
        "# Command line",
        "",
        "Results go to stdout, words to stderr. The commands read and write the home's database themselves: but for `run` they need no",
        "running node, unless it says so. With `--json`, an error is one line on stderr, and stdout stays empty:",
        '`{"schema": 1, "error": {"kind": "NoSuchJob", "message": "…", "code": 3}}`; `code` is the exit code.',
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | the job failed, or an error |",
        "| 2 | the command was not typed right |",
        "| 3 | no such job, device or file |",
        "| 4 | the node is not running, or not reachable |",
        "| 5 | another node owns this home |",
        "| 6 | not finished: `--wait` timed out, or `result` came too early |",
        "| 7 | the job was cancelled |",
        "| 130 | interrupted |",
        "",
        "## Options of every command",
        "",
        *_options(cli, context),
        "",
    ]
    for path, command, inner in commands(cli, context):
        parts += [f"## `{path}`", "", " ".join(["   ", path, *command.collect_usage_pieces(inner)]), ""]
        parts += [_prose(command.help or command.short_help or ""), ""]
        listed = _options(command, inner)
        parts += [*listed, ""] if listed else []
        examples = str(getattr(command, "examples", "")).strip()
        if examples:
            parts += ["Examples:", "", *(f"    {line.strip()}" for line in examples.splitlines()), ""]
    return NOTE + "\n".join(parts)


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command below a group, with the words that call it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path, command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


def options(command: click.Command) -> Iterator[click.Option]:
    """The options of a command that its help shows."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield parameter


def _options(command: click.Command, context: click.Context) -> list[str]:
    rows = []
    for option in options(command):
        record = option.get_help_record(context)
        if record is not None:
            shown, text = record
            rows.append(f"| `{_cell(shown)}` | {_cell(text)} |")
    return ["| option | what it does |", "|---|---|", *rows] if rows else []


def _prose(text: str) -> str:
    return re.sub(r"[ \t]+", " ", inspect.cleandoc(text).replace("\b\n", ""))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Any] = {"python.md": python_page, "settings.md": settings_page, "errors.md": errors_page, "cli.md": cli_page}


def main() -> int:
    """Writes the pages that differ, and names them."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        page, text = REFERENCE / name, make()
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
            print(f"wrote docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
