"""How does a test run a real node, and the command line beside it?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
MARK = "NODE_OF_A_TEST"  # in the environment of a node: by it all that descends from the node is found
START_LIMIT = 30.0  # seconds
STOP_LIMIT = 20.0  # seconds


class Program:
    """A process with its descendants, found by a mark in their environment even when their parent is gone."""

    def __init__(self, command: Sequence[str], home: Path, mark: str) -> None:
        self.mark = mark
        environment = {**os.environ, MARK: mark, "P2PQUEUE_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.log = home.parent / f"{home.name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=ROOT)
        assert self.process.stdout is not None
        self.lines = self.process.stdout

    def wait_until_ready(self) -> str:
        """The first line that the program prints. Raises where it ends without one."""
        line = self.lines.readline()
        if not line:
            raise AssertionError(f"no ready line; {self.log.read_text(errors='replace')[-2000:]}")
        return line

    def kill(self) -> None:
        """Kills the process itself by signal 9; its descendants have to see to themselves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ends the process in an orderly way; gives its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self.lines.close()

    def descendants(self) -> list[psutil.Process]:
        """All living processes with the mark, the program itself left out."""
        return [process for process in psutil.process_iter() if process.pid != self.process.pid and _has_mark(process, self.mark)]

    def wait_until_no_descendant_lives(self, limit: float) -> float:
        """Seconds until none lived. Raises `AssertionError` after `limit` seconds."""
        started = time.monotonic()
        while left := self.descendants():
            if time.monotonic() - started > limit:
                raise AssertionError(f"{limit} s after the kill these live: {[process.cmdline() for process in left]}")
            time.sleep(0.02)
        return time.monotonic() - started


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


@contextmanager
def node(home: Path, application: str, *arguments: str, mark: str = "") -> Iterator[Program]:
    """`p2pqueue run` on a home, ready, for as long as the block runs."""
    command = [sys.executable, "-m", "p2pqueue", "run", application, *arguments]
    program = Program(command, home, mark or f"{home}-{time.monotonic_ns()}")
    try:
        program.wait_until_ready()
        yield program
    finally:
        program.stop()


class CommandLine:
    """The command line on one home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs one command to its end."""
        environment = {**os.environ, "P2PQUEUE_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "p2pqueue", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, cwd=ROOT, check=False)

    def json(self, *arguments: str, code: int = 0, timeout: float = 60.0) -> Any:
        """Runs one command with `--json`; gives what it prints."""
        done = self.run("--json", *arguments, timeout=timeout)
        assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def follow(self, job_id: str) -> Iterator[dict[str, Any]]:
        """What `p2pqueue watch --json` prints, as it comes, until the job ends or the caller has seen enough."""
        environment = {**os.environ, "P2PQUEUE_HOME": str(self.home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "p2pqueue", "--json", "watch", job_id]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as watching:
            assert watching.stdout is not None
            try:
                for line in watching.stdout:
                    yield json.loads(line)
            finally:
                watching.kill()

    def wait_for(self, job_id: str, *, limit: float = 50.0, **wanted: Any) -> dict[str, Any]:
        """Waits until the job shows these values. Raises `AssertionError` after `limit` seconds."""
        deadline = time.monotonic() + limit
        while True:
            shown: dict[str, Any] = self.json("show", job_id)
            if all(test(shown[name]) if callable(test) else shown[name] == test for name, test in wanted.items()):
                return shown
            assert time.monotonic() < deadline, f"{wanted} did not come; the job is {shown}"
            time.sleep(0.05)
