"""The installed command as somebody types it, on homes of its own, with and without a running node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

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

    def __call__(self, *words: str, stdin: str = "", check: int | None = 0, **environment: str) -> Outcome:
        """Runs a command to its end; fails the test where it exits otherwise than `check` (None: any way)."""
        done = subprocess.run(
            self.argv(*words),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=PATIENCE,
            env=self._environment(environment),
        )
        outcome = Outcome(done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in outcome.err, outcome.err
        if check is not None:
            assert outcome.code == check, f"{words}: {outcome}"
        return outcome

    def argv(self, *words: str) -> list[str]:
        """What is executed for these words."""
        return [sys.executable, "-m", "p2pqueue", *words]

    def start(self, *words: str, stdout: int | IO[str] = subprocess.PIPE, stderr: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        """Starts a command and lets it go on."""
        return subprocess.Popen(self.argv(*words), stdout=stdout, stderr=stderr, encoding="utf-8", env=self._environment({}))

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
        return {**os.environ, "P2PQUEUE_HOME": str(self.home), **self.environment, **changes}


@pytest.fixture
def empty(tmp_path: Path) -> CommandLine:
    """The command on a home that has no space."""
    return CommandLine(tmp_path / "home")


@pytest.fixture
def p2p(empty: CommandLine) -> CommandLine:
    """The command on a home that has one."""
    empty("init", "--space", "studio", "--label", "box", "-q")
    return empty


@pytest.fixture
def worked(p2p: CommandLine) -> Iterator[tuple[CommandLine, RunningNode]]:
    """The command on a home whose node runs."""
    with p2p.node() as node:
        yield p2p, node


_AS_NOBODY = """
import difflib, encodings.ascii, encodings.idna, encodings.latin_1, importlib, json, os, pkgutil, pwd, shutil, sys, traceback, urllib.parse
import p2pqueue
for module in pkgutil.walk_packages(p2pqueue.__path__, "p2pqueue."):
    if not module.name.startswith(("p2pqueue.__main__", "p2pqueue.demo", "p2pqueue.cli.demo")):
        importlib.import_module(module.name)
from p2pqueue.cli.main import call
nobody = pwd.getpwnam("nobody")
os.setgroups([]), os.setgid(nobody.pw_gid), os.setuid(nobody.pw_uid)
sys.exit(call(sys.argv[1:]))
"""  # all is imported before, since the interpreter may lie where nobody else may read


def as_nobody(p2p: CommandLine, *words: str) -> Outcome:
    """Runs a command as the user nobody; skips where this user may not become another one."""
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    environment = {**os.environ, "P2PQUEUE_HOME": str(p2p.home), "XDG_RUNTIME_DIR": ""}
    argv = [sys.executable, "-c", _AS_NOBODY, *words]
    done = subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=PATIENCE, env=environment, cwd="/")
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def ids(outcome: Outcome) -> Sequence[str]:
    """The ids of the jobs in a list."""
    return [job["id"] for job in outcome.json["jobs"]]
