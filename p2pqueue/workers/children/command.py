"""How does a job run a program: which words does it get, and how are progress and outputs read from it?

A command is a list of words with placeholders: `{input}` and each other file parameter become paths, `{1}`, `{2}` the
files in their order, `{out}` or `{output}` (and `{out2}` …) the outputs, every other `{name}` the argument of that
name, or its default. `{{` stands for a brace. No shell reads the words unless asked; then each value is quoted for
it. The program runs in the attempt's own folder.

A placeholder that has no value fails the attempt before the program starts. Only the words of `exec`, which has no
arguments, keep other names as they are: `${HOME}`, awk's `{print}`.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

from p2pqueue import wire
from p2pqueue.errors import ArgumentError, ConfigError
from p2pqueue.jobs.arguments import FILE_KEY, RESULT_FILE, decode, is_marker
from p2pqueue.workers.children.context import JobContext
from p2pqueue.workers.children.handler import open_files
from p2pqueue.workers.children.interrupt import Interrupt
from p2pqueue.workers.children.program import ProgramFailed, run
from p2pqueue.workers.children.progress import ProgressPattern
from p2pqueue.workers.children.protocol import Assignment, Failed, Outcome, OutputFile, Succeeded

OUTPUT_LIMIT: Final = 16 * 1024  # characters of what a program without outputs printed: its result
_QUOTED_LINES: Final = 5  # of the output, which a failure quotes
_QUOTED: Final = 500  # characters of them in all
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*|[0-9]+)\}")
_OUTPUT = re.compile(r"out(?:put)?([0-9]*)")


@dataclass(frozen=True)
class Command:
    """A program as a job runs it; `inputs` are the file parameters in their order, `outputs` plain file names.

    `defaults` hold the arguments that a job need not name; None where there are no arguments, as with `exec`. `talks`
    is "json" where the program is told its job, and tells of it, by lines of JSON. `env` adds to its environment.
    """

    argv: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    shell: bool = False
    progress: str | None = None
    defaults: Mapping[str, Any] | None = None
    talks: str | None = None
    env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.argv:
            raise ConfigError("a command is a list of words, the program first")
        if self.shell and len(self.argv) != 1:
            raise ConfigError("a command for a shell is one text")
        for name in self.outputs:
            if PurePath(name).name != name or name in ("", ".", ".."):
                raise ConfigError(f"an output is a plain file name, not {name!r}")
        if len(set(self.outputs)) < len(self.outputs):
            raise ConfigError("two outputs have the same name")
        if self.progress is not None:
            ProgressPattern(self.progress)
        for name, text in (self.env or {}).items():
            if not isinstance(text, str) or not name or set(name + text) & {"\0"} or "=" in name:
                raise ConfigError(f"env holds names with a text each, not {name!r} with {text!r}")
        if self.talks not in (None, "json"):
            raise ConfigError(f'talks is "json", not {self.talks!r}')
        if self.talks and self.progress is not None:
            raise ConfigError('a program that talks tells its progress in a line of JSON: leave out progress, or talks = "json"')

    @classmethod
    def from_map(cls, plain: Mapping[str, Any]) -> Command:
        """The command of a map with argv, inputs, outputs, shell, progress, defaults, talks and env; only argv must be there."""
        return cls(
            argv=_texts(plain, "argv"),
            inputs=_texts(plain, "inputs"),
            outputs=_texts(plain, "outputs"),
            shell=bool(plain.get("shell")),
            progress=plain.get("progress"),
            defaults=plain.get("defaults"),
            talks=plain.get("talks"),
            env=plain.get("env"),
        )

    def to_map(self) -> dict[str, Any]:
        """The command as a plain map."""
        return {
            "argv": list(self.argv), "inputs": list(self.inputs), "outputs": list(self.outputs), "shell": self.shell,
            "progress": self.progress, "defaults": None if self.defaults is None else dict(self.defaults), "talks": self.talks,
            "env": None if self.env is None else dict(self.env),
        }  # fmt: skip

    def words(self, values: Mapping[str, Any], folder: PurePath) -> list[str]:
        """The words with their placeholders filled; `values` holds the arguments, files as paths.

        Raises `ArgumentError` where one has no value.
        """
        known = self._known({**(self.defaults or {}), **values}, folder)
        self._check_filled(known)
        quote = shlex.quote if self.shell else str
        words = [fill(word, {name: quote(value) for name, value in known.items()}) for word in self.argv]
        return ["/bin/sh", "-c", *words] if self.shell else words

    def parameters(self) -> list[str]:
        """The names that placeholders ask for, outputs left out, in the order of their first use."""
        found: dict[str, None] = dict.fromkeys(self.inputs)
        for word in self.argv:
            found |= dict.fromkeys(name for name in placeholders(word) if not (name.isdigit() or _OUTPUT.fullmatch(name)))
        return list(found)

    def _check_filled(self, known: Mapping[str, str]) -> None:
        asked = dict.fromkeys(name for word in self.argv for name in placeholders(word) if name not in known)
        empty = [f"{{{name}}}" for name in asked if self.defaults is not None or name.isdigit() or _OUTPUT.fullmatch(name)]
        if empty:
            advice = "give the job what they stand for, or write {{ for a brace"
            raise ArgumentError(f"the program was not started: nothing was given for {', '.join(empty)} of its command; {advice}")

    def _known(self, values: Mapping[str, Any], folder: PurePath) -> dict[str, str]:
        known: dict[str, str] = {}
        for number, name in enumerate(self.outputs, start=1):
            path = str(folder / name)
            known |= {f"out{number}": path, f"output{number}": path}
            if number == 1:
                known |= {"out": path, "output": path}
        inputs = [str(values[name]) for name in self.inputs if name in values]
        known |= {str(number): path for number, path in enumerate(inputs, start=1)}
        if inputs:
            known["input"] = inputs[0]
        return known | {name: _text(value) for name, value in values.items()}


def fill(word: str, known: Mapping[str, str]) -> str:
    """A word with its placeholders filled."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return match[0][0] if name is None else known.get(name, match[0])

    return _PLACEHOLDER.sub(replace, word)


def placeholders(word: str) -> list[str]:
    """The names in braces in a word."""
    return [match[1] for match in _PLACEHOLDER.finditer(word) if match[1] is not None]


def perform(assignment: Assignment, job: JobContext, interrupt: Interrupt, *, reason: Callable[[], str]) -> Outcome:
    """Runs the command of an assignment to its end, in this process's group. `reason` says why the node stops it."""
    command = Command.from_map(assignment.command or {})
    folder = job.workdir
    files = open_files(assignment.files, folder)
    args = decode(assignment.args)
    values = {name: files[value[FILE_KEY]].path if is_marker(value) else value for name, value in args.items()}
    if not command.inputs:
        command = Command.from_map(command.to_map() | {"inputs": [name for name, value in args.items() if is_marker(value)]})
    try:
        words = command.words(values, folder)
    except ArgumentError as error:
        return Failed(str(error), None, ("ArgumentError", "Exception"), final=True)
    reader = Printed(job, command.progress)
    if command.talks:
        from p2pqueue.workers.children.talking import talk

        return talk(command, assignment, words=words, values=values, job=job, interrupt=interrupt, printed=reader, reason=reason)
    interrupt.open()
    try:
        run(words, on_line=reader.take, cwd=folder, env=command.env)
    except ProgramFailed as error:
        return Failed(reader.with_last_lines(str(error)), None, ("ProgramFailed", "Exception"))
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        return unstartable(words, error)
    finally:
        interrupt.close()
    return collect(command.outputs, folder, reader)


def unstartable(words: Sequence[str], error: OSError) -> Failed:
    """The failure of a program that is not here, or may not be run."""
    kinds = (type(error).__name__, "OSError", "Exception")
    return Failed(f"the program {words[0]!r} can't be started here: {error.strerror}", None, kinds)


class Printed:
    """Takes the output of a program: into the log, and for its progress."""

    def __init__(self, job: JobContext, pattern: str | None) -> None:
        self._job = job
        self._pattern = None if pattern is None else ProgressPattern(pattern)
        self._last: deque[str] = deque()
        self._held = 0

    def take(self, line: str) -> None:
        """Takes one line."""
        self._job.log.write(line + "\n")
        if self._pattern is not None:
            step = self._pattern.read(line)
            if step is not None:
                self._job.set_progress(*step)
        self._last.append(line)
        self._held += len(line) + 1
        while self._held > OUTPUT_LIMIT and len(self._last) > 1:
            self._held -= len(self._last.popleft()) + 1

    @property
    def text(self) -> str:
        """The last of it, up to a limit."""
        return "\n".join(self._last)[-OUTPUT_LIMIT:]

    def with_last_lines(self, words: str) -> str:
        """Words with the last lines of the output: what went wrong often stands above the very last."""
        told = [line.strip() for line in self._last if line.strip()][-_QUOTED_LINES:]
        text = " | ".join(told)
        if len(text) > _QUOTED:
            text = "…" + text[-_QUOTED:]
        return f"{words}: {text}" if text else words


def collect(outputs: Sequence[str], folder: Path, printed: Printed | None) -> Outcome:
    """The success of a program that wrote these outputs; without any, what it printed is the result."""
    missing = [name for name in outputs if not ((folder / name).is_file() or (folder / name).is_dir())]
    if missing:
        return Failed(f"the program ended well but did not write {', '.join(missing)}", None, ("OutputMissing", "Exception"))
    if not outputs:
        return Succeeded(wire.pack(printed.text if printed is not None else ""))
    names = [RESULT_FILE] if len(outputs) == 1 else list(outputs)
    files = tuple(OutputFile(name, str(folder / output), label=output) for name, output in zip(names, outputs, strict=True))
    markers = {name: {FILE_KEY: name} for name in names}
    return Succeeded(wire.pack(markers[RESULT_FILE] if len(outputs) == 1 else markers), files)


def _texts(plain: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = plain.get(key) or ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise ConfigError(f"{key} of a command is a list of texts, not {value!r}")
    return tuple(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
