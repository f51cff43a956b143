"""What becomes of an attempt whose program talks by lines of JSON?

Results, states and retries have the limits of a Python handler's, and leave through the same functions. A program that
ends without a word has failed, unless its task declares outputs and they are there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from p2pqueue import wire
from p2pqueue.errors import ArgumentError
from p2pqueue.jobs.arguments import FILE_KEY, RESULT_FILE, decode, is_marker
from p2pqueue.workers.children.command import Command, Printed, collect, unstartable
from p2pqueue.workers.children.conversation import Conversation
from p2pqueue.workers.children.handler import clean, reported
from p2pqueue.workers.children.program import ProgramFailed
from p2pqueue.workers.children.protocol import ERROR_LIMIT, Assignment, Failed, Outcome, OutputFile, RetryLater, Succeeded
from p2pqueue.workers.children.spoken import Refused, Said, job_line

if TYPE_CHECKING:
    from p2pqueue.workers.children.context import JobContext
    from p2pqueue.workers.children.interrupt import Interrupt

_KINDS = ("ProgramFailed", "Exception")


def talk(
    command: Command, assignment: Assignment, *, words: Sequence[str], values: Mapping[str, Any], job: JobContext, interrupt: Interrupt,
    printed: Printed, reason: Callable[[], str],
) -> Outcome:  # fmt: skip
    """Runs a program that talks to its end; `values` are its arguments, files as paths."""
    args = decode(assignment.args)
    files = {name: (str(values[name]), assignment.files[value[FILE_KEY]]) for name, value in args.items() if is_marker(value)}
    conversation = Conversation(job, printed.take, reason)
    try:
        line = job_line(job, {**(command.defaults or {}), **args}, files=files, timeout=assignment.deadline)
        status = conversation.run(words, line, interrupt, folder=job.workdir, env=command.env)
    except ArgumentError as error:
        return Failed(str(error), None, ("ArgumentError", "Exception"), final=True)
    except Refused as error:
        return Failed(f"{_name(words)} was ended: {error}", None, ("Refused", "Exception"), final=True)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        return unstartable(words, error)
    failure = str(ProgramFailed(status, list(words)))
    said = conversation.said
    if said is not None and said.end == "result" and status != 0 and not conversation.forced:
        return Failed(printed.with_last_lines(f"{failure}, after its result"), None, _KINDS)
    if said is not None:
        return _told(said, command, job)
    if status == 0 and command.outputs:
        return collect(command.outputs, job.workdir, printed)
    if status == 0:
        failure += " and told no result"
    if conversation.garbled is not None:
        failure += f" (a line that it wrote is no JSON: {conversation.garbled})"
    return Failed(printed.with_last_lines(failure), None, _KINDS)


def _told(said: Said, command: Command, job: JobContext) -> Outcome:
    words = said.words
    if said.end == "continue":
        try:
            job.continue_(words["continue"])
        except ArgumentError as error:
            return Failed(str(error), None, ("ArgumentError", "Exception"), final=True)
    if said.end == "retry_in":
        return RetryLater(_text(words.get("reason"), "the program asked for a retry"), float(words["retry_in"]))
    if said.end == "error":
        return Failed(_text(words["error"], "the program told of an error without words"), None, _KINDS, final=words.get("retry") is False)
    return _result(words["result"], command, job)


def _result(value: Any, command: Command, job: JobContext) -> Outcome:
    if command.outputs:
        if value is not None:
            kinds = ("ArgumentError", "Exception")
            return Failed("the outputs of this task are its result: its program tells null, or nothing", None, kinds, final=True)
        return collect(command.outputs, job.workdir, None)
    if not (type(value) is dict and list(value) == ["file"] and isinstance(value["file"], str)):
        return reported(value)
    path = os.path.join(job.workdir, value["file"])
    if not (os.path.isfile(path) or os.path.isdir(path)):
        told = _text(value["file"], "(no name)")
        return Failed(f"the program told of a file that is not there: {told}", None, ("OutputMissing", "Exception"))
    path = os.path.normpath(path)
    output = OutputFile(RESULT_FILE, path, label=os.path.basename(path))
    return Succeeded(wire.pack({FILE_KEY: RESULT_FILE}), (output,))


def _text(text: str | None, default: str) -> str:
    return clean(text)[:ERROR_LIMIT] if text else default


def _name(words: Sequence[str]) -> str:
    return os.path.basename(words[0]) or "the program"
