"""What does the demo play on? A home in a temporary folder, real nodes as processes, and the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

APPLICATION = "p2pqueue.demo.app:queue"
START_LIMIT = 30.0  # seconds until a node is ready; it takes about half a second
COMMAND_LIMIT = 60.0  # seconds for a command; it takes a tenth of one
CHILDREN_LIMIT = 10.0  # seconds after which children of a killed node are no longer waited for
WATCH_LIMIT = 90.0  # seconds that one watch may take; the longest takes twenty
STOP_LIMIT = 15.0  # seconds for an orderly end: the grace time and some slack


class StoryBroken(Exception):
    """Something on the stage did not go as the demo tells it."""


class Stage:
    """A home, and what is played on it. Everything that it starts ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._node: subprocess.Popen[str] | None = None
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("P2PQUEUE_")}
        self._environment["PYTHONUNBUFFERED"] = "1"

    def command(self, *arguments: str) -> Any:
        """Runs one command of the command line and gives its JSON. Raises `StoryBroken` where it fails."""
        try:
            done = subprocess.run(
                self._command_line(*arguments), capture_output=True, text=True, env=self._environment, timeout=COMMAND_LIMIT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise StoryBroken(f"p2pqueue {arguments[0]} took more than {COMMAND_LIMIT:.0f} s") from error
        if done.returncode != 0:
            raise StoryBroken(f"p2pqueue {arguments[0]} ended with exit code {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def watch(self, job_id: str) -> Iterator[dict[str, Any]]:
        """Follows a job as `p2pqueue watch` does, until the job ends or the caller has seen enough.

        Raises `StoryBroken` where it takes too long.
        """
        with subprocess.Popen(
            self._command_line("watch", job_id), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment
        ) as watching:
            assert watching.stdout is not None
            too_long = threading.Timer(WATCH_LIMIT, watching.kill)
            too_long.start()
            try:
                for line in watching.stdout:
                    if line.strip():
                        yield json.loads(line)
                if not too_long.is_alive():
                    raise StoryBroken(f"the job did not come on in {WATCH_LIMIT:.0f} s: {self._log_tail()}")
            finally:
                too_long.cancel()
                watching.kill()

    def start_node(self) -> int:
        """Starts a node and waits until it is ready; gives its process id."""
        log = (self.folder / "node.log").open("ab")
        with log:
            self._node = subprocess.Popen(
                self._command_line("run", APPLICATION, "--slots", "1"),
                stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment,
            )  # fmt: skip
        assert self._node.stdout is not None
        started = time.monotonic()
        if not self._node.stdout.readline():
            raise StoryBroken(f"the node did not start: {self._log_tail()}")
        if time.monotonic() - started > START_LIMIT:
            raise StoryBroken(f"the node took more than {START_LIMIT:.0f} s to start")
        return self._node.pid

    def kill_node(self) -> tuple[int, float]:
        """Kills the node by signal 9; gives how many children it had, and the seconds until none of them lived."""
        assert self._node is not None
        children = psutil.Process(self._node.pid).children(recursive=True)
        self._node.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        killed = time.monotonic()
        self._node.wait()
        while alive := [child for child in children if _lives(child)]:
            if time.monotonic() - killed > CHILDREN_LIMIT:
                raise StoryBroken(f"{len(alive)} children outlived their node by {CHILDREN_LIMIT:.0f} s")
            time.sleep(0.02)
        return len(children), time.monotonic() - killed

    def stop_node(self) -> int | None:
        """Stops the node in an orderly way, if one runs; gives its exit code."""
        node, self._node = self._node, None
        if node is None:
            return None
        if node.poll() is None:
            node.terminate()
        try:
            node.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
        if node.stdout is not None:
            node.stdout.close()
        return node.returncode

    def _command_line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "p2pqueue", "--home", str(self.home), "--json", *arguments]

    def _log_tail(self) -> str:
        return (self.folder / "node.log").read_text(errors="replace")[-500:].strip()


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)  # nothing runs in a zombie
    except psutil.Error:
        return False


@contextmanager
def stage(*, keep: bool = False) -> Iterator[Stage]:
    """A stage for as long as the block runs; afterwards its node is stopped and its folder removed, unless `keep`."""
    folder = tempfile.TemporaryDirectory(prefix="p2pqueue-demo-", ignore_cleanup_errors=True)
    made = Stage(Path(folder.name))
    try:
        yield made
    finally:
        made.stop_node()
        if keep:
            folder._finalizer.detach()  # type: ignore[attr-defined]  # there is no public way before Python 3.12
        else:
            folder.cleanup()
