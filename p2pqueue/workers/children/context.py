"""What can a handler ask and say while it runs?

`current_job()` gives the job that is running, so that a handler stays an ordinary, typed function. Where a task is
called plainly, and no job is running, it gives a stand-in: progress goes nowhere, and files lie in a temporary folder.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from p2pqueue import wire
from p2pqueue.errors import ArgumentError
from p2pqueue.workers.children.protocol import PHASE_LIMIT
from p2pqueue.workers.running.workdir import make

if TYPE_CHECKING:
    from p2pqueue.jobs.task import Task

STATE_LIMIT = 64 * 1024  # bytes of a checkpoint: it travels in the job's row


class Channel(Protocol):
    """What carries a handler's words to its node."""

    @property
    def cancelled(self) -> bool:
        """Whether the node told the handler to stop."""

    def progress(self, fraction: float, phase: str | None) -> None:
        """Tells progress; never waits."""

    def checkpoint(self, state: bytes) -> None:
        """Keeps a state; returns when it is durable."""

    def request(self, kind: str, fields: dict[str, Any]) -> Any:
        """Asks the node for something. Raises `P2PQueueError` in its words."""

    def log(self, data: bytes) -> None:
        """Appends to the log of the attempt."""


class Continue(BaseException):
    """Ends an attempt that goes on later: carries the packed state. Raised by `continue_` alone."""

    def __init__(self, state: bytes) -> None:
        super().__init__("the handler gives its job back, to go on later")
        self.state = state


class JobLog:
    """The log of an attempt, beside what is printed: `job.log("words")`; usable as a file for `print`."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def __call__(self, *words: object) -> None:
        """Writes one line."""
        self.write(" ".join(map(str, words)) + "\n")

    def write(self, text: str) -> int:
        """Writes text as it is; gives the number of characters."""
        self._write(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Does nothing: what was written is on its way."""


class JobContext:
    """The running job, as its handler sees it.

    :ivar id: the job's id; empty where a task is called plainly.
    :ivar task: name of the task.
    :ivar attempt: number of this attempt; 1 is the first.
    :ivar deadline: when the attempt will be stopped by its `timeout`; None without one.
    """

    def __init__(
        self, channel: Channel, *, job_id: str, task: str, attempt: int = 1, workdir: str | os.PathLike[str] = "",
        timeout: float | None = None, resume_from: bytes | None = None,
    ) -> None:  # fmt: skip
        self.id = job_id
        self.task = task
        self.attempt = attempt
        self.deadline = None if timeout is None else datetime.now(UTC) + timedelta(seconds=min(timeout, 1e9))
        self._channel = channel
        self._log: JobLog | None = None
        self._workdir = workdir
        self._state = resume_from
        self._ends = None if timeout is None else time.monotonic() + timeout

    def __repr__(self) -> str:
        return f"<job {self.id or 'called plainly'}, task {self.task!r}, attempt {self.attempt}>"

    @property
    def log(self) -> JobLog:
        """The attempt's log, which also gets what is printed."""
        if self._log is None:
            self._log = JobLog(self._channel.log)
        return self._log

    @property
    def workdir(self) -> Path:
        """A folder for this attempt's own files, private and empty at first; removed after the attempt, however it ends."""
        return make(self._workdir)

    @property
    def time_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Says whether this attempt has to stop (cancelled, paused, out of time, or its node ends).

        The main thread meets the exception `Cancelled` at that moment as well; it has 2 seconds from then on.
        """
        return self._channel.cancelled

    @property
    def resume_from(self) -> Any:
        """The state of the newest checkpoint of an earlier attempt; None where there is none."""
        return None if self._state is None else wire.unpack(self._state, limit=STATE_LIMIT)

    def set_progress(self, fraction: float, phase: str | None = None) -> None:
        """Tells how far the job is, 0 to 1, and what it is at. As often as you like: only the newest is sent on."""
        fraction = float(fraction)
        if math.isnan(fraction):
            raise ValueError("progress is a number from 0 to 1, not NaN")
        words = None if phase is None else str(phase)[:PHASE_LIMIT].encode("utf-8", "replace").decode()
        self._channel.progress(min(1.0, max(0.0, fraction)), words)

    def checkpoint(self, state: Any) -> None:
        """Keeps a state from which the next attempt can go on (`resume_from`); durable on return.

        Takes what a job's arguments may hold, up to 64 KiB. Raises `ArgumentError`.
        """
        self._channel.checkpoint(_packed(state))

    def continue_(self, state: Any) -> NoReturn:
        """Ends this attempt with a checkpoint; the job goes back to the queue and no attempt is spent."""
        raise Continue(_packed(state))

    def run(
        self, argv: Sequence[str | os.PathLike[str]], *, on_line: Callable[[str], object] | None = None,
        check: bool = True, cwd: str | Path | None = None, env: Mapping[str, str] | None = None,
    ) -> int:  # fmt: skip
        """Runs a program in the job's process group, so that it ends with the job; gives its exit status.

        Its output goes to the log, or line by line to `on_line` (carriage returns end a line as well).
        With `check`, a status other than 0 raises `ProgramFailed`.
        """
        from p2pqueue.workers.children.program import run

        return run(argv, on_line=on_line, check=check, cwd=cwd, env=env)

    def enqueue(self, task: Task[..., Any] | str, *args: Any, **kwargs: Any) -> str:
        """Enqueues a follow-up through this job's node and gives its id.

        A task made with `.options(…)` carries them; a task of another device is named by text, with its arguments by
        keyword. Raises `ArgumentError`, and `P2PQueueError` where the node refuses.
        """
        from p2pqueue.workers.children.followup import fields_of

        reply = self._channel.request("enqueue", fields_of(task, args, kwargs))
        return str(reply["id"])


_current: ContextVar[JobContext] = ContextVar("p2pqueue_job")
_of_process: JobContext | None = None  # a child runs one job at a time: its threads find it here


def current_job() -> JobContext:
    """The job that is running here; a stand-in where a task is called plainly."""
    job = _current.get(None) or _of_process
    return job if job is not None else _stand_in()


def enter(job: JobContext) -> Token[JobContext]:
    """Makes a job the current one of this task or thread, until it is left with what this gives."""
    return _current.set(job)


def leave(entered: Token[JobContext]) -> None:
    """Ends what `enter` began."""
    _current.reset(entered)


@contextmanager
def running(job: JobContext, *, whole_process: bool = False) -> Iterator[JobContext]:
    """Makes a job the current one within the block; with `whole_process` for all threads."""
    global _of_process
    token = _current.set(job)
    if whole_process:
        _of_process = job
    try:
        yield job
    finally:
        _current.reset(token)
        if whole_process:
            _of_process = None


class _Nowhere:
    """The channel of a job that is none."""

    cancelled = False

    def progress(self, fraction: float, phase: str | None) -> None:
        pass

    def checkpoint(self, state: bytes) -> None:
        pass

    def request(self, kind: str, fields: dict[str, Any]) -> Any:
        raise LookupError("no job is running here, so there is no node to ask; use the task's own enqueue()")

    def log(self, data: bytes) -> None:
        sys.stderr.write(data.decode("utf-8", "replace"))


_plain: JobContext | None = None


def _stand_in() -> JobContext:
    global _plain
    if _plain is None:
        import atexit
        import tempfile

        folder = tempfile.TemporaryDirectory(prefix="p2pqueue-")
        atexit.register(folder.cleanup)
        _plain = JobContext(_Nowhere(), job_id="", task="", workdir=folder.name)
    return _plain


def _packed(state: Any) -> bytes:
    data = wire.pack(state)
    if len(data) > STATE_LIMIT:
        raise ArgumentError(f"a state of {len(data):,} bytes, and {STATE_LIMIT:,} fit; keep large data in a file")
    return data
