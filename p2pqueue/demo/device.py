"""What is a device of the demo? A home, its node as a process, and the command line on it; nothing else is used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from p2pqueue.demo.network import Network

T = TypeVar("T")
APPLICATION = "p2pqueue.demo.app:queue"
START_LIMIT = 60.0  # seconds until a node is ready; it takes about one
COMMAND_LIMIT = 60.0  # seconds for a command; it takes some tenths of one
CHILDREN_LIMIT = 10.0  # seconds after which children of a killed node are no longer waited for
WATCH_LIMIT = 120.0  # seconds that one watch may take; the longest takes twenty
STOP_LIMIT = 15.0  # seconds for an orderly end: the grace time and some slack
LOOK_AGAIN = 0.1  # seconds between two looks at whether something has come true


class StoryBroken(Exception):
    """Something in the demo did not go as it is told; says what was expected."""


class Device:
    """One home on one host. Its name is its label and that of its host."""

    def __init__(self, name: str, folder: Path, network: Network, **settings: str) -> None:
        self.name = name
        self.home = folder / name
        self.network = network
        self._log = folder / f"{name}.log"
        self._node: subprocess.Popen[str] | None = None
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("P2PQUEUE_")}
        self._environment |= {"PYTHONUNBUFFERED": "1", **network.settings(name)}
        self._environment |= {f"P2PQUEUE_{key.upper()}": value for key, value in settings.items()}
        network.add(name)

    # -- the command line -------------------------------------------------------------------------------------

    def command(self, *arguments: str) -> Any:
        """Runs one command and gives its JSON. Raises `StoryBroken` where it fails."""
        shown = f"p2pqueue {arguments[0]} on {self.name}"
        try:
            done = subprocess.run(
                self._words(*arguments), capture_output=True, text=True, env=self._environment, timeout=COMMAND_LIMIT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise StoryBroken(f"{shown} was expected to end within {COMMAND_LIMIT:.0f} s") from error
        if done.returncode != 0:
            raise StoryBroken(f"{shown} was expected to succeed; it ended with exit code {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def let_in(self, other: Device) -> str:
        """Invites another device, which joins; gives the code."""
        with subprocess.Popen(
            self._words("invite"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment
        ) as inviting:
            assert inviting.stdout is not None
            try:
                line = inviting.stdout.readline()
                if not line:
                    raise StoryBroken(f"p2pqueue invite was expected to print a code: {inviting.communicate()[1].strip()}")
                code = str(json.loads(line)["code"])
                other.command("join", code, "--label", other.name)
                inviting.wait(COMMAND_LIMIT)
            except subprocess.TimeoutExpired as error:
                raise StoryBroken(f"p2pqueue invite was expected to end once {other.name} is in") from error
            finally:
                inviting.kill()
        return code

    def watch(self, job_id: str) -> Iterator[dict[str, Any]]:
        """Follows a job as `p2pqueue watch` does, until the job ends or the caller has seen enough.

        Raises `StoryBroken` where it takes too long.
        """
        with subprocess.Popen(
            self._words("watch", job_id), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment
        ) as watching:
            assert watching.stdout is not None
            too_long = threading.Timer(WATCH_LIMIT, watching.kill)
            too_long.start()
            try:
                for line in watching.stdout:
                    if line.strip():
                        yield json.loads(line)
                if not too_long.is_alive():
                    raise StoryBroken(f"the job was expected to go on and end within {WATCH_LIMIT:.0f} s: {self.log_tail()}")
            finally:
                too_long.cancel()
                watching.kill()

    # -- what is asked again and again ------------------------------------------------------------------------

    def paths(self) -> dict[str, str]:
        """By which path each other device is linked, by its label; those that aren't are left out."""
        found = self.command("devices")["devices"]
        return {str(each["label"]): str(each["path"]) for each in found if each["online"] and not each["self"]}

    def await_links(self, devices: Sequence[Device], *, within: float) -> None:
        """Waits until this device is linked to all others of these. Raises `StoryBroken`."""
        wanted = {device.name for device in devices} - {self.name}
        until(lambda: set(self.paths()) == wanted, within=within, expected=f"a link of {self.name} to {' and '.join(sorted(wanted))}")

    def job(self, job_id: str) -> dict[str, Any]:
        """What `p2pqueue show` says of a job."""
        found: dict[str, Any] = self.command("show", job_id)
        return found

    def await_status(self, job_id: str, status: str, *, within: float) -> None:
        """Waits until a job has a status. Raises `StoryBroken`."""
        until(lambda: self.job(job_id)["status"] == status, within=within, expected=f"job {job_id[:13]} as {status} on {self.name}")

    def carried(self) -> dict[str, int]:
        """How many bytes of files came here since the node started, by lane."""
        network = (self.command("status")["node"] or {}).get("network") or {}
        return {str(lane): int(size) for lane, size in network.get("carried", {}).items() if size}

    def held(self) -> tuple[str, str]:
        """What tells whether two devices hold the same: digest and heads."""
        status = self.command("status")
        return str(status["digest"]), json.dumps(status["heads"], sort_keys=True)

    def log_tail(self) -> str:
        """The last words of its node."""
        return self._log.read_text(errors="replace")[-500:].strip() if self._log.exists() else ""

    # -- its node ---------------------------------------------------------------------------------------------

    def launch_node(self, *flags: str) -> None:
        """Starts a node, and doesn't wait until it is ready."""
        with self._log.open("ab") as log:
            self._node = subprocess.Popen(
                self._words("run", APPLICATION, *flags), stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )  # fmt: skip

    def await_node(self) -> int:
        """Waits until the node is ready; gives its process id."""
        node = self._node
        assert node is not None
        assert node.stdout is not None
        too_long = threading.Timer(START_LIMIT, node.kill)
        too_long.start()
        try:
            if not node.stdout.readline():
                raise StoryBroken(f"the node of {self.name} was expected to start within {START_LIMIT:.0f} s: {self.log_tail()}")
        finally:
            too_long.cancel()
        return node.pid

    def kill_node(self) -> tuple[int, float]:
        """Kills the node by signal 9; gives how many children it had, and the seconds until none of them lived."""
        assert self._node is not None
        children = psutil.Process(self._node.pid).children(recursive=True)
        self._node.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        killed = time.monotonic()
        self._node.wait()
        while alive := [child for child in children if _lives(child)]:
            if time.monotonic() - killed > CHILDREN_LIMIT:
                raise StoryBroken(f"no child was expected to outlive its node; {len(alive)} did so by {CHILDREN_LIMIT:.0f} s")
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

    def _words(self, *arguments: str) -> list[str]:
        return self.network.command(self.name, [sys.executable, "-m", "p2pqueue", "--home", str(self.home), "--json", *arguments])


def until(condition: Callable[[], T], *, within: float, expected: str) -> T:
    """Waits until a condition gives something that is true. Raises `StoryBroken`, which says what was expected."""
    end = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise StoryBroken(f"{expected} was expected within {within:.0f} s")
        time.sleep(LOOK_AGAIN)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)  # nothing runs in a zombie
    except psutil.Error:
        return False
