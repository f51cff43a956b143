from __future__ import annotations

import errno
import json
import sqlite3
import subprocess
import sys

import click
import pytest

from p2pqueue import errors
from p2pqueue.cli import edge
from p2pqueue.cli.main import call


def raising(error: BaseException) -> object:
    raise error


def unreadable(cause: OSError) -> errors.InputUnreadable:
    error = errors.InputUnreadable("clip.mp4 can't be read")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NoSuchJob("x"), 3),
        (errors.AmbiguousId("x"), 2),
        (errors.ArgumentError("x"), 2),
        (errors.ConfigError("x"), 2),
        (errors.NotInitialised("x"), 1),
        (errors.WrongState("x"), 1),
        (errors.DiskFull("x"), 1),
        (errors.NodeNotRunning("x"), 4),
        (errors.HomeInUse("x", pid=1), 5),
        (errors.ResultTimeout("x", job_id="j"), 6),
        (errors.JobCancelled("x", job_id="j"), 7),
        (errors.JobFailed("x", job_id="j"), 1),
        (unreadable(FileNotFoundError()), 3),
        (unreadable(PermissionError()), 1),
        (edge.Refusal("x", 6), 6),
        (click.UsageError("x"), 2),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (FileNotFoundError(errno.ENOENT, "No such file", "a"), 3),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (sqlite3.OperationalError("disk I/O error"), 1),
        (ZeroDivisionError("bug"), 1),
        (ExceptionGroup("loops", [ExceptionGroup("inner", [errors.HomeInUse("x")])]), 5),
    ],
)
def test_each_error_has_its_exit_code_and_no_traceback(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert edge.guard(lambda: raising(error), verbosity=lambda: 0) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_traceback_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    edge.guard(lambda: raising(ZeroDivisionError("bug")), verbosity=lambda: 1)
    assert "Traceback" in capsys.readouterr().err


def test_a_name_in_an_error_can_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    edge.guard(lambda: raising(errors.InputUnreadable("\x1b[2Jclip\n can't be read")), verbosity=lambda: 1)
    assert "\x1b" not in capsys.readouterr().err


def test_every_error_of_the_house_says_something_even_without_words() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.P2PQueueError)]
    for kind in kinds:
        if not issubclass(kind, errors.JobError):
            assert edge.words_of(kind(""))


def test_what_a_command_returns_is_the_exit_code() -> None:
    assert edge.guard(lambda: 6, verbosity=lambda: 0) == 6
    assert edge.guard(lambda: None, verbosity=lambda: 0) == 0


@pytest.mark.parametrize("error", [errors.NoSuchJob("no job begins with ff"), click.UsageError("no job begins with ff")])
def test_with_json_an_error_is_one_line_of_json_on_stderr(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    code = edge.guard(lambda: raising(error), verbosity=lambda: 0, as_json=lambda: True)
    out, err = capsys.readouterr()
    told = {"schema": 1, "error": {"kind": type(error).__name__, "message": "no job begins with ff", "code": code}}
    assert (out, json.loads(err)) == ("", told)
    assert code == edge.code_of(error)


@pytest.mark.parametrize("words", [["show", "--json", "--nothing"], ["--json", "lsit"]])
def test_words_that_can_not_be_understood_are_refused_in_json_where_it_was_typed(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(words) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == 2


STARTS = """
import sys
interrupted = sys.argv[1]
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == interrupted:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from p2pqueue.cli.main import main
sys.argv = ["p2pqueue", "status"]
main()
"""


@pytest.mark.parametrize("module", ["p2pqueue.cli.quick", "p2pqueue.cli.app", "click", "p2pqueue.cli.commands.status"])
def test_a_ctrl_c_while_the_program_still_starts_is_taken_quietly(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", STARTS, module], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")
