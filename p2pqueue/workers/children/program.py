"""How does a handler run another program, so that it ends with the job and its output is kept?

The program stays in the job's process group. Without `on_line` it writes straight to the log; with it, its output is
read line by line.
"""

from __future__ import annotations

import codecs
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

LINE_LIMIT = 64 * 1024  # characters: a longer line is handed over in pieces
END_PATIENCE = 1.5  # seconds that a program has after TERM: less than the handler itself has
_READ = 64 * 1024


class ProgramFailed(subprocess.CalledProcessError):
    """A program ended with a status other than 0."""

    def __str__(self) -> str:
        name = os.path.basename(str(self.cmd[0])) if self.cmd else "the program"
        if self.returncode < 0:
            return f"{name} was killed by signal {-self.returncode}"
        return f"{name} ended with exit status {self.returncode}"


def run(
    argv: Sequence[str | os.PathLike[str]], *, on_line: Callable[[str], object] | None = None, check: bool = True,
    cwd: str | Path | None = None, env: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """Runs a program to its end; gives its exit status, negative for a signal. stdin is empty.

    `env` adds to the environment. When an exception passes through (a cancel), the program is ended first.
    """
    if isinstance(argv, (str, bytes)):
        raise TypeError("a program is run by a list of its arguments, as in job.run(['ffmpeg', '-i', path])")
    words = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in argv]
    output = subprocess.PIPE if on_line is not None else None
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT if output else None,
        cwd=cwd, env=None if env is None else {**os.environ, **env},
    )  # fmt: skip
    try:
        if on_line is not None and process.stdout is not None:
            for line in lines(process.stdout):
                on_line(line)
        status = process.wait()
    except BaseException:
        end(process)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
    if check and status != 0:
        raise ProgramFailed(status, words)
    return status


def lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream as text, without their ends; both newlines and carriage returns end one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest, after_return = "", False
    while data := os.read(stream.fileno(), _READ):
        text = decoder.decode(data)
        if after_return and text.startswith("\n"):  # a \r\n that two reads cut in two
            text = text[1:]
        after_return = text.endswith("\r") or (after_return and not text)
        *whole, rest = (rest + text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
        yield from whole
        while len(rest) > LINE_LIMIT:
            yield rest[:LINE_LIMIT]
            rest = rest[LINE_LIMIT:]
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program: TERM, and KILL where that is not enough."""
    process.terminate()
    try:
        process.wait(END_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
