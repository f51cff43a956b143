"""What does a worker process do?

`python -m p2pqueue.workers.children.child DESCRIPTOR [APPLICATION] [--describe]`, started by a node and by nobody else. It
loads the application, then runs one handler after the other in its main thread. When its node is gone it kills all
that it started, and itself.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from p2pqueue.workers.children.context import JobContext, running
from p2pqueue.workers.children.handler import call, guarded
from p2pqueue.workers.children.interrupt import Interrupt
from p2pqueue.workers.children.link import Link
from p2pqueue.workers.children.protocol import LOST_NODE, Assignment, Ended, Failed, Leave, Outcome, Ready, Reap
from p2pqueue.workers.running import processes

if TYPE_CHECKING:
    from p2pqueue.workers.application import Application

PATH_VARIABLE = "P2PQUEUE_CHILD_PYTHONPATH"  # what PYTHONPATH was before the node added its own package to it
FOLDERS_VARIABLE = "P2PQUEUE_CHILD_FOLDERS"  # where the node's program finds its modules
OOM_SCORE = 500  # the kernel shall kill a handler before it kills a node
FAST_SWITCH = 1e-5  # seconds between thread switches while a busy main thread must not hold up the end


class Child:
    """One worker process from inside."""

    def __init__(self, descriptor: int) -> None:
        self._pid = os.getpid()
        self._interrupt = Interrupt()
        self._link = Link(descriptor, self._interrupt)
        self._adopts = processes.adopt_orphans()
        self._output = _spare_output()
        self._folder = os.getcwd()
        self._streams = (sys.stdout, sys.stderr)

    def serve(self, spec: str | None, *, describe: bool) -> None:
        """Loads the application and runs what comes, until the node says to leave."""
        self._interrupt.install()
        _mark_for_the_kernel()
        threading.Thread(target=self._watch, name="p2pqueue-node-watch", daemon=True).start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)
        application = self._load(spec, describe)
        while application is not None or spec is None:
            message = self._link.receive()
            if isinstance(message, Leave):
                return
            if isinstance(message, Reap):
                processes.reap()
            elif isinstance(message, Assignment):
                self._run(application, message)

    def _load(self, spec: str | None, describe: bool) -> Application | None:
        """The application; the node is told of its tasks, or of why it can't be loaded."""
        from p2pqueue.errors import ConfigError

        application: Application | None = None
        error: str | None = None
        tasks: tuple[dict[str, Any], ...] = ()
        if spec is not None:
            from p2pqueue.workers.application import add_folder, descriptions, load

            for folder in os.environ.pop(FOLDERS_VARIABLE, "").split(os.pathsep):
                add_folder(folder)
            try:
                application = load(spec)
                tasks = tuple(each.describe() for each in descriptions(application)) if describe else ()
            except ConfigError as problem:
                application, error = None, str(problem)
        self._flush()
        self._link.send(Ready(tasks, error))
        return application

    # -- running ------------------------------------------------------------------------------------------------------

    def _run(self, application: Application | None, assignment: Assignment) -> None:
        self._prepare()
        limits = _limit_memory(assignment.memory_limit)
        job = JobContext(
            self, job_id=assignment.job_id, task=assignment.task, attempt=assignment.attempt, workdir=assignment.workdir,
            timeout=assignment.deadline, resume_from=assignment.resume_from,
        )  # fmt: skip
        with running(job, whole_process=True):
            outcome = self._outcome(application, assignment, job)
        _restore_memory(limits)
        spent = not self._flush() or self._interrupt.stopping
        self._link.flush()
        clean = processes.reap() and self._adopts  # without orphans falling to us, children are not all there is
        self._link.send(Ended(outcome, clean, spent))
        if spent:
            self._wait_for_the_end()

    def _outcome(self, application: Application | None, assignment: Assignment, job: JobContext) -> Outcome:
        if assignment.command is not None:
            from p2pqueue.workers.children.command import perform

            return guarded(lambda: perform(assignment, job, self._interrupt, reason=self._link.reason), self._interrupt)
        task = application.tasks.get(assignment.task) if application is not None else None
        if task is None:
            return Failed(f"UnknownTask: this node's application has no task {assignment.task!r}", None, ("UnknownTask", "Exception"))
        return call(task.function, assignment, self._interrupt)

    def _prepare(self) -> None:
        """Puts right what an earlier handler may have bent."""
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        self._interrupt.install()
        os.chdir(self._folder)  # the one in which it was left may be gone

    def _flush(self) -> bool:
        """Empties the buffers of stdout and stderr; False where a handler has closed or replaced them."""
        try:
            for stream in self._streams:
                stream.flush()
        except (OSError, ValueError):
            return False
        return (sys.stdout, sys.stderr) == self._streams and not any(stream.closed for stream in self._streams)

    # -- the channel of the job -----------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether TERM has come."""
        return self._interrupt.stopping

    def progress(self, fraction: float, phase: str | None) -> None:
        """Tells progress; never waits."""
        self._refuse_forks()
        self._link.progress(fraction, phase)

    def checkpoint(self, state: bytes) -> None:
        """Keeps a state; returns when the node has it on disk."""
        self._refuse_forks()
        self._link.ask("checkpoint", state)

    def request(self, kind: str, fields: dict[str, Any]) -> Any:
        """Asks the node; gives its answer."""
        self._refuse_forks()
        return self._link.ask(kind, **fields)

    def log(self, data: bytes) -> None:
        """Appends to the log of the attempt."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._output, view) :]

    def _refuse_forks(self) -> None:
        if os.getpid() != self._pid:
            raise LookupError("this process was forked from a handler; only the handler itself can talk to its node")

    # -- the end --------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Waits until the node is gone and kills everything that was started here. A thread of its own."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))  # TERM is for the main thread
        try:
            self._link.watch()
        finally:
            sys.setswitchinterval(FAST_SWITCH)
            root = processes.root_of(self._pid, os.environ.get(processes.MARK_VARIABLE, ""))
            if not processes.kill(root, set(), spare=(self._pid,)):
                processes.send_group(self._pid, processes.KILL)
            os._exit(LOST_NODE)

    def _wait_for_the_end(self) -> None:
        """A child that is used up stays until its node has seen to all that it started: orphans fall to it till then."""
        while True:
            signal.pause()

    def _after_fork(self) -> None:
        self._link.after_fork()
        self._interrupt.after_fork()


def _spare_output() -> int:
    """A second descriptor of stdout that handlers rarely close."""
    if sys.platform == "win32":
        return os.dup(1)
    import fcntl

    try:
        return fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 100)
    except OSError:  # so few may be open here (ulimit -n)
        return fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)


def _mark_for_the_kernel() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(OOM_SCORE))
    except OSError:
        pass


def _limit_memory(limit: int | None) -> tuple[int, int] | None:
    """Bounds the data of this process and of each that it starts; gives the bounds before.

    RLIMIT_DATA counts private writable memory, unlike RLIMIT_AS, which counts every mapped library and stack.
    """
    if limit is None or sys.platform == "win32":
        return None
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = limit if before[1] == resource.RLIM_INFINITY else min(limit, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    return before


def _restore_memory(before: tuple[int, int] | None) -> None:
    if before is not None and sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, before)


def main() -> None:
    """The entry of the process."""
    descriptor = int(sys.argv[1])
    spec = next((word for word in sys.argv[2:] if not word.startswith("--")), None)
    describe = "--describe" in sys.argv
    sys.argv = [spec or "p2pqueue"]
    _restore_path()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    faulthandler.enable()  # a crash in C code leaves its stack in the log
    Child(descriptor).serve(spec, describe=describe)


def _restore_path() -> None:
    before = os.environ.pop(PATH_VARIABLE, None)
    if before is not None:
        os.environ["PYTHONPATH"] = before
        if not before:
            del os.environ["PYTHONPATH"]


if __name__ == "__main__":
    main()
