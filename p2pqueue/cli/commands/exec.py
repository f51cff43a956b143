"""How does a program become a job?

Its words travel in the job's options; `{1}`, `{2}` stand for the input files, `{out}`, `{out2}` for the outputs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import edge, quantities
from p2pqueue.cli.commands.enqueue import check_waiting, open_access, tell, warn_of_workers, write
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import name
from p2pqueue.cli.opening import check_initialised, words
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access
    from p2pqueue.jobs.ledger import NewJob

_TITLE_LIMIT = 200  # characters of the words that the title shows


@click.command(
    "exec",
    cls=Command,
    help="""Enqueue a program as a job, for any able device whose node runs with --allow-exec.

    The program runs in a folder of its own. In its words {1}, {2} … stand for the input files, {out}, {out2} … for the
    outputs. Without -o its last lines are the result. No shell reads the words.
    """,
    examples="""
    p2pqueue exec -i clip.mov -o clip.mp4 --wait -- ffmpeg -i {1} -vf scale=-2:240 {out}
    p2pqueue exec --needs blender -- blender --version
    p2pqueue exec -i notes.txt --wait -- sh -c 'wc -w < {1}'
    """,
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, metavar="-- CMD...", type=click.UNPROCESSED)
@click.option("-i", "--input", "inputs", multiple=True, metavar="FILE", help="An input file or folder: {1}, {2} … in their order.")
@click.option(
    "-o", "--output", "outputs", multiple=True, metavar="FILE", help="A file or folder that it makes; with --wait it is saved there."
)
@click.option("--copy", is_flag=True, help="Keep a copy of the inputs, however large, so that they may go away.")
@click.option("--needs", type=name, multiple=True, metavar="TAG", help="Only on a device that has this tag, or this program on its PATH.")
@click.option("--queue", type=name, metavar="Q", default="default", show_default=True, help="The queue.")
@click.option("--title", metavar="T", help="What people see.  [default: the words]")
@click.option("--priority", type=click.IntRange(-(1 << 31), (1 << 31) - 1), metavar="N", help="Higher runs first.  [default: 0]")
@click.option("--max-attempts", type=click.IntRange(1, (1 << 31) - 1), metavar="N", help="Attempts in all.  [default: 3]")
@click.option("--timeout", type=quantities.duration, metavar="D", help="How long one attempt may take.")
@click.option("--wait", is_flag=True, help="Wait until the job has ended, and exit as it did: 0, 1 failed, 7 cancelled.")
@click.option("--wait-timeout", type=quantities.duration, metavar="D", help="With --wait: at most so long; exits 6 then.")
@pass_invocation
def exec_command(
    invocation: Invocation, /, command: tuple[str, ...], inputs: tuple[str, ...], outputs: tuple[str, ...], copy: bool,
    needs: tuple[str, ...], queue: str, title: str | None, wait: bool, wait_timeout: float | None, **options: Any,
) -> int:  # fmt: skip
    """Enqueues a program."""
    waiting = check_waiting(wait, wait_timeout)
    check_initialised(invocation.home)
    outputs = tuple(path.rstrip(os.sep) for path in outputs)  # `-o frames/` names a folder that the program makes
    names = [os.path.basename(path) for path in outputs]
    if not all(names) or len(set(names)) < len(names):
        raise click.UsageError("each -o names a file, and no two the same one.")
    _check_placeholders(command, len(inputs), len(outputs))
    options["title"] = title or _title(command)
    access = open_access(invocation)
    try:
        with words():
            new = _prepare(access, queue, inputs, copy=copy, options={key: value for key, value in options.items() if value is not None})
            told = {"argv": list(command), "inputs": [str(number + 1) for number in range(len(inputs))], "outputs": names}
            new = new._replace(options={"command": told}, needs=json.dumps(sorted(set(needs))) if needs else None)
            enqueued = write(access, new)
        warn_of_workers(invocation, new.task, needs=frozenset(needs))
    finally:
        access.close()
    code = tell(invocation, enqueued, waiting)
    if wait and code == edge.DONE and outputs:
        _save(invocation, enqueued.id, outputs)
    return code


def _prepare(access: Access, queue: str, inputs: tuple[str, ...], *, copy: bool, options: dict[str, Any]) -> NewJob:
    from p2pqueue.jobs.enqueueing import prepare
    from p2pqueue.jobs.options import EnqueueOptions, TaskOptions
    from p2pqueue.jobs.waiting import EXEC_TASK
    from p2pqueue.payload.file import File

    files = {str(number): File(path, copy=copy) for number, path in enumerate(inputs, start=1)}
    return prepare(access, EXEC_TASK, files, options=EnqueueOptions().changed(options), declared=TaskOptions(queue=queue))


def _check_placeholders(command: tuple[str, ...], inputs: int, outputs: int) -> None:
    """Refuses a placeholder of a file that was not named: the program would get the braces."""
    for word in command:
        for kind, number in re.findall(r"(?<!\{)\{(out(?:put)?)?([0-9]*)\}", word):
            known = outputs if kind else inputs
            wanted = int(number or 1)
            if (kind or number) and not 1 <= wanted <= known:
                flag = "-o" if kind else "-i"
                raise click.UsageError(f"{word!r} asks for {{{kind}{number}}}, and {flag} was given {known} times.")


def _title(command: tuple[str, ...]) -> str:
    text = plain(shlex.join(command))
    return text if len(text) <= _TITLE_LIMIT else text[: _TITLE_LIMIT - 1] + "…"


def _save(invocation: Invocation, job_id: str, outputs: tuple[str, ...]) -> None:
    from p2pqueue.cli.commands.result import save_as

    save_as(invocation, job_id, {os.path.basename(path): path for path in outputs})
