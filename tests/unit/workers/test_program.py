from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from p2pqueue.errors import Cancelled
from p2pqueue.workers.children.program import LINE_LIMIT, ProgramFailed, lines, run

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def piped(*pieces: bytes) -> list[str]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        reader = lines(stream)
        for piece in pieces:
            os.write(writing, piece)
        os.close(writing)
        return list(reader)


@pytest.mark.parametrize(
    ("data", "expected", "reason"),
    [
        (b"", [], "nothing"),
        (b"one\ntwo\n", ["one", "two"], "lines"),
        (b"one\ntwo", ["one", "two"], "a last line without an end"),
        (b"10%\r20%\rdone\n", ["10%", "20%", "done"], "carriage returns"),
        (b"one\r\ntwo\r\n", ["one", "two"], "both"),
        (b"\n\n", ["", ""], "empty lines"),
        ("ä\n".encode(), ["ä"], "text"),
        (b"\xff\n", ["�"], "no text"),
    ],
)
def test_output_is_read_by_lines(data: bytes, expected: list[str], reason: str) -> None:
    assert piped(data) == expected, reason


def test_an_endless_line_comes_in_pieces() -> None:
    program = f"import sys; sys.stdout.write('x' * {LINE_LIMIT * 2 + 5})"
    found: list[str] = []
    run([sys.executable, "-c", program], on_line=found.append)
    assert "".join(found) == "x" * (LINE_LIMIT * 2 + 5)
    assert max(map(len, found)) <= LINE_LIMIT


def test_a_status_is_given_or_raised() -> None:
    assert run(["true"]) == 0
    assert run(["sh", "-c", "exit 3"], check=False) == 3
    with pytest.raises(ProgramFailed, match="^sh ended with exit status 3$"):
        run(["sh", "-c", "exit 3"])
    with pytest.raises(ProgramFailed, match="^sh was killed by signal 9$"):
        run(["sh", "-c", "kill -9 $$"])


def test_words_may_be_paths_and_numbers_but_not_one_text(tmp_path: Path) -> None:
    assert run(["test", "-d", tmp_path]) == 0
    with pytest.raises(TypeError, match="a list of its arguments"):
        run("rm -rf /")  # type: ignore[arg-type]


def test_a_program_reads_nothing_and_gets_additions_to_the_environment() -> None:
    found: list[str] = []
    run(["sh", "-c", 'cat; echo $ADDED; test -n "$PATH"'], on_line=found.append, env={"ADDED": "yes"})
    assert found == ["yes"]


def test_a_program_ends_when_an_exception_passes_through() -> None:
    pids: list[int] = []

    def stop(line: str) -> None:
        pids.append(int(line))
        raise Cancelled

    begin = time.monotonic()
    with pytest.raises(Cancelled):
        run(["sh", "-c", "echo $$; exec sleep 60"], on_line=stop)
    assert time.monotonic() - begin < 1.4
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_deaf_program_is_killed() -> None:
    def stop(line: str) -> None:
        raise io.UnsupportedOperation

    with pytest.raises(io.UnsupportedOperation):
        run([sys.executable, "-c", DEAF], on_line=stop)
