"""Which pages of the documentation are made from the code, so that they can't drift from it?

`python docs/generate.py` writes the pages under `reference/`; the tests compare them with what it would write.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from p2pqueue import errors
from p2pqueue.cli.main import cli
from p2pqueue.settings import TABLE, Setting

REFERENCE = Path(__file__).parent / "reference"
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
        "from `p2pqueue`. The command line tells the same words on stderr and ends with an exit code ([cli.md](cli.md)).",
        "",
    ]
    for kind in _tree(errors.P2PQueueError):
        depth = len(kind.__mro__) - len(errors.P2PQueueError.__mro__) if kind is not errors.ResultTimeout else 2
        parts += [f"{'#' * min(2 + depth, 4)} `{kind.__name__}`", "", inspect.getdoc(kind) or "", ""]
    parts += ["## Raised by, and in, handlers", ""]
    for raised in (errors.Retry, errors.Cancelled):
        parts += [f"### `{raised.__name__}`", "", inspect.getdoc(raised) or "", ""]
    return NOTE + "\n".join(parts)


def _tree(kind: type[errors.P2PQueueError]) -> Iterator[type[errors.P2PQueueError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)


def cli_page() -> str:
    """The page of all commands."""
    context = click.Context(cli, info_name="p2pqueue")
    parts = [
        "# Command line",
        "",
        "Results go to stdout, words to stderr. The commands read and write the home's database themselves: but for `run` they need no",
        "running node, unless it says so.",
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


PAGES: dict[str, Any] = {"settings.md": settings_page, "errors.md": errors_page, "cli.md": cli_page}


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
