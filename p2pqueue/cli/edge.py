"""Into which words and which exit code does an error turn?

The one place where errors meet the person: everything below raises. Exit codes: 0 done, 1 job failed or error,
2 usage, 3 no such job, device or file, 4 node not running or not reachable, 5 another node owns this home,
6 not finished, 7 job cancelled, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

import click

from p2pqueue import errors
from p2pqueue.cli.output import plain

DONE, ERROR, USAGE, NOT_FOUND, NOT_RUNNING, IN_USE, NOT_FINISHED, CANCELLED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 7, 130

CODES: tuple[tuple[type[BaseException], int], ...] = (  # the first that fits
    (errors.NoSuchJob, NOT_FOUND),
    (errors.NoSuchDevice, NOT_FOUND),
    (errors.AmbiguousId, USAGE),
    (errors.ArgumentError, USAGE),
    (errors.ConfigError, USAGE),
    (errors.NodeNotRunning, NOT_RUNNING),
    (errors.NobodyThere, NOT_RUNNING),
    (errors.HomeInUse, IN_USE),
    (errors.ResultTimeout, NOT_FINISHED),
    (errors.JobCancelled, CANCELLED),
    (FileNotFoundError, NOT_FOUND),
    (KeyboardInterrupt, INTERRUPTED),
)

LONGEST = 1500  # characters of an error that are shown: a name in it may be as long as somebody likes


class Refusal(Exception):
    """Something a command can't do, in words, with its exit code."""

    def __init__(self, message: str, code: int = ERROR) -> None:
        super().__init__(message)
        self.code = code


class ReaderGone(Exception):
    """Whoever read stdout has read enough (`p2pqueue list | head -1`): no error of anybody."""


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, Refusal):
        return error.code
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, errors.InputUnreadable) and isinstance(error.__cause__, FileNotFoundError):
        return NOT_FOUND
    return next((code for kind, code in CODES if isinstance(error, kind)), ERROR)


def words_of(error: BaseException) -> str:
    """What an error says to a person: what happened and what to do."""
    if isinstance(error, errors.P2PQueueError):
        return str(error) or (type(error).__doc__ or type(error).__name__)
    if isinstance(error, Refusal):
        return str(error)
    if isinstance(error, click.ClickException):
        return _click_words(error)
    if isinstance(error, OSError):
        return _os_words(error)
    if type(error).__module__ == "sqlite3":
        return f"the database refuses: {error}. `p2pqueue doctor` looks closer."
    if isinstance(error, UnicodeError):
        return f"this text can't be carried: {error}"
    return f"internal error, {type(error).__name__}: {error}. Run it again with -v for the details."


def _click_words(error: click.ClickException) -> str:
    words = error.format_message()
    return " ".join(words.split()) if isinstance(error, click.MissingParameter) else words  # it lists choices line by line


def _os_words(error: OSError) -> str:
    name = f"{os.fsdecode(error.filename)!r}: " if isinstance(error.filename, (str, bytes)) else ""
    if error.errno == errno.ENOSPC:
        return f"{name}no space is left on the device. Free some and try again."
    return f"{name}{error.strerror or error}"


def guard(action: Callable[[], object], *, verbosity: Callable[[], int], as_json: Callable[[], bool] = lambda: False) -> int:
    """Runs a command to its exit code; whatever it raises becomes words on stderr, or one line of JSON there."""
    try:
        outcome = action()
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else DONE
    except (BrokenPipeError, ReaderGone):
        _silence()
        return DONE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        if as_json():
            tell(error, as_json=True)
        else:
            _tell_usage(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BaseExceptionGroup as group:
        return _tell(_innermost(group), verbosity(), as_json=as_json())
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the edge: nothing may pass it as a traceback)
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else ERROR
        return _tell(error, verbosity(), as_json=as_json())


def tell(error: BaseException, *, as_json: bool = False) -> None:
    """Says on stderr what an error means, for a command that goes on after it."""
    words = plain(words_of(error))
    words = words if len(words) <= LONGEST else words[:LONGEST] + "…"
    if as_json:
        import json

        found = {"kind": type(error).__name__, "message": words, "code": code_of(error)}
        _err(json.dumps({"schema": 1, "error": found}))
    else:
        _err(f"p2pqueue: {words}")


def _innermost(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def _tell(error: BaseException, verbosity: int, *, as_json: bool) -> int:
    if verbosity:
        import traceback

        _err(plain("".join(traceback.format_exception(error)), lines=True).rstrip())
    tell(error, as_json=as_json)
    _flush_quietly()
    return code_of(error)


def _tell_usage(error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        _err(error.ctx.get_usage())
        _err(f"Try `{error.ctx.command_path} --help`.")
    _err(f"p2pqueue: {plain(_click_words(error))}")


def _err(text: str) -> None:
    try:
        click.echo(text, err=True)
    except OSError:
        pass  # nobody can hear it


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _silence()


def _silence() -> None:
    """Points stdout at nothing, so that the interpreter's own last flush doesn't complain."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
