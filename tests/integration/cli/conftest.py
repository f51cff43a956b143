"""The command as somebody types it, on homes of its own, with and without a running node.

Most commands run in a fork of the tests' process, which spares them the start of an interpreter; those whose subject
is the process itself are started for real.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any, NoReturn

import pytest

import p2pqueue
from p2pqueue.cli.main import main

APP = Path(__file__).with_name("app.py")
PATIENCE = 30.0  # seconds that one command may take on a busy machine


@dataclass(frozen=True)
class Outcome:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        return json.loads(self.out)

    @property
    def id(self) -> str:
        """The id that `enqueue` printed."""
        return self.out.strip()


@dataclass
class RunningNode:
    """A node that takes jobs; `ready` is what it said."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]
    errors: Path

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and waits for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@dataclass
class CommandLine:
    """`p2pqueue` on one home."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, stdin: str = "", check: int | None = 0, real: bool = False, **environment: str) -> Outcome:
        """Runs a command to its end; fails the test where it exits otherwise than `check` (None: any way)."""
        run = _started if real or not hasattr(os, "fork") else _forked
        outcome = run(words, stdin.encode(), self._environment(environment))
        assert "Traceback" not in outcome.err, outcome.err
        if check is not None:
            assert outcome.code == check, f"{words}: {outcome}"
        return outcome

    def start(self, *words: str, stdout: int | IO[str] = subprocess.PIPE, stderr: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        """Starts a command and lets it go on."""
        return subprocess.Popen(argv(words), stdout=stdout, stderr=stderr, encoding="utf-8", env=self._environment({}))

    @contextmanager
    def node(self, *words: str, app: Path | None = APP) -> Iterator[RunningNode]:
        """A running node of this home, stopped at the end."""
        errors = self.home.parent / f"node-{os.urandom(4).hex()}.err"
        with errors.open("w") as stderr:
            process = self.start("run", *([str(app)] if app else []), "--slots", "2", "--grace", "1", "--json", *words, stderr=stderr)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, errors.read_text()
            yield RunningNode(process, json.loads(line), errors)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _environment(self, changes: dict[str, str]) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("P2PQUEUE_")}
        return {**plain, "P2PQUEUE_HOME": str(self.home), **self.environment, **changes}


def argv(words: Sequence[str]) -> list[str]:
    """What is executed for these words."""
    return [sys.executable, "-m", "p2pqueue", *words]


def _started(words: Sequence[str], stdin: bytes, environment: dict[str, str]) -> Outcome:
    done = subprocess.run(argv(words), input=stdin, capture_output=True, timeout=PATIENCE, env=environment)
    return Outcome(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="surrogateescape"))


def _forked(words: Sequence[str], stdin: bytes, environment: dict[str, str], *, user: str | None = None) -> Outcome:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        pid = os.fork()
        if pid == 0:
            _become_command(words, [given, out, err], environment, user)
        code = _code_of(pid)
        out.seek(0)
        err.seek(0)
        return Outcome(code, out.read().decode(errors="surrogateescape"), err.read().decode(errors="surrogateescape"))


def _become_command(words: Sequence[str], files: Sequence[IO[bytes]], environment: dict[str, str], user: str | None) -> NoReturn:
    code = 99
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["p2pqueue", *words]
        if user is not None:
            _become_user(user)
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 98
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _become_user(name: str) -> None:
    import pwd

    user = pwd.getpwnam(name)
    os.chdir("/")
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def _code_of(pid: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("a command took longer than it may")
        time.sleep(0.002)


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory, runtime_dir: Path) -> dict[str, str]:
    """Variables of all commands: their sockets lie in one place, they share compiled modules as if installed, and stay on this host."""
    compiled = str(tmp_path_factory.mktemp("compiled"))
    return {
        "XDG_RUNTIME_DIR": str(runtime_dir),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": compiled,
        "P2PQUEUE_INTERFACES": "lo",
    }


@pytest.fixture
def empty(tmp_path: Path, surroundings: dict[str, str]) -> CommandLine:
    """The command on a home that has no space."""
    return CommandLine(tmp_path / "home", dict(surroundings))


@pytest.fixture
def p2p(empty: CommandLine) -> CommandLine:
    """The command on a home that has one."""
    empty("init", "--space", "studio", "--label", "box", "-q")
    return empty


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory, surroundings: dict[str, str]) -> Iterator[tuple[CommandLine, RunningNode]]:
    """The command on a home whose node runs; the tests of a module share it."""
    p2p = CommandLine(tmp_path_factory.mktemp("worked") / "home", dict(surroundings))
    p2p("init", "--space", "studio", "--label", "box", "-q")
    with p2p.node() as node:
        yield p2p, node


def as_nobody(p2p: CommandLine, *words: str) -> Outcome:
    """Runs a command as the user nobody; skips where this user may not become another one."""
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    _import_all()
    environment = {**os.environ, "P2PQUEUE_HOME": str(p2p.home), "XDG_RUNTIME_DIR": ""}
    outcome = _forked(words, b"", environment, user="nobody")
    assert "Traceback" not in outcome.err, outcome.err
    return outcome


@cache
def _import_all() -> None:
    """Imports what a command may come to need, since the interpreter may lie where nobody else may read."""
    for name in ("difflib", "encodings.ascii", "encodings.idna", "encodings.latin_1", "pwd", "shutil", "traceback"):
        import_module(name)
    for module in walk_packages(p2pqueue.__path__, "p2pqueue."):
        if not module.name.startswith(("p2pqueue.__main__", "p2pqueue.demo", "p2pqueue.cli.commands.demo")):
            import_module(module.name)


@pytest.fixture
def nobodys() -> Iterator[CommandLine]:
    """The command on a home of the user nobody, who may enter the folders above it."""
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    folder = Path(tempfile.mkdtemp(prefix="p2pq-nobody-"))
    folder.chmod(0o755)
    (folder / "own").mkdir()
    shutil.chown(folder / "own", "nobody")
    command = CommandLine(folder / "own" / "home")
    yield command
    shutil.rmtree(folder)


def ids(outcome: Outcome) -> Sequence[str]:
    """The ids of the jobs in a list."""
    return [job["id"] for job in outcome.json["jobs"]]
