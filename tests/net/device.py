"""A device on a host of the LAN: the installed command line, nothing else.

alpha = Device(lan.add("h1"), tmp_path / "alpha")
alpha("init", "--label", "alpha")
alpha.run_node(APP, "--no-work")
alpha.let_in(beta, "beta")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.net.lan import Host

T = TypeVar("T")
APP = Path(__file__).with_name("app.py")
PROGRAM = (sys.executable, "-m", "p2pqueue")


class Device:
    """One home on one host."""

    def __init__(self, host: Host, home: Path, **settings: str) -> None:
        self.host = host
        self.home = home
        self.node: subprocess.Popen[str] | None = None
        self.log = home.with_suffix(".log")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("P2PQUEUE_")}
        self.environment |= {f"P2PQUEUE_{name.upper()}": value for name, value in {"home": str(home), **settings}.items()}

    def __call__(self, *words: str, check: int = 0, timeout: float = 60.0) -> Any:
        """Runs a command with `--json`; gives its document, or what it printed where that is none."""
        done = self.host.run(*PROGRAM, *words, "--json", check=False, timeout=timeout, env=self.environment)
        assert done.returncode == check, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.words()}"
        try:
            return json.loads(done.stdout)
        except ValueError:
            return done.stdout

    def run_node(self, app: Path | None = APP, *flags: str) -> dict[str, Any]:
        """Starts the node; gives its ready line."""
        words = ["run", *([str(app)] if app is not None else []), *flags, "--json", "-v"]
        with self.log.open("a") as log:
            self.node = self.host.start(*PROGRAM, *words, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.node.stdout is not None
        line = self.node.stdout.readline()
        assert line, f"the node did not start:\n{self.words()}"
        ready: dict[str, Any] = json.loads(line)
        return ready

    def let_in(self, other: Device, label: str, *flags: str) -> None:
        """Invites another device, which joins."""
        inviting = self.host.start(*PROGRAM, "invite", "--json", env=self.environment, stdout=subprocess.PIPE, text=True)
        assert inviting.stdout is not None
        code = json.loads(inviting.stdout.readline())["code"]
        other("join", code, "--label", label, *flags)
        assert inviting.wait(30) == 0

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends the node a signal and waits for its end."""
        assert self.node is not None
        self.node.send_signal(number)
        self.node.wait(30)

    def words(self) -> str:
        """The last of what the node said."""
        return self.log.read_text()[-6000:] if self.log.exists() else ""

    # -- what is asked again and again ------------------------------------------------------------------------

    def online(self) -> set[str]:
        """The labels of the devices that are linked, this one included while its node runs."""
        return {each["label"] for each in self("devices")["devices"] if each["online"]}

    def paths(self) -> dict[str, str | None]:
        """By which path each other device is linked."""
        return {each["label"]: each["path"] for each in self("devices")["devices"] if not each["self"]}

    def job(self, job_id: str) -> dict[str, Any]:
        """What `show` says of a job; nothing where it isn't here yet."""
        done = self.host.run(*PROGRAM, "show", job_id, "--json", check=False, env=self.environment)
        return json.loads(done.stdout) if done.returncode == 0 else {"status": None}

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs as `list` shows them, without why they wait, which is each device's own."""
        return [{name: value for name, value in each.items() if name != "why"} for each in self("list", "--limit", "1000")["jobs"]]

    def network(self) -> dict[str, Any]:
        """What `status` says of the networking."""
        found: dict[str, Any] = self("status")["node"]["network"]
        return found

    def memory(self) -> int:
        """Megabytes that the node's process takes now."""
        assert self.node is not None
        return int(psutil.Process(self.node.pid).memory_info().rss // 1_000_000)


def until(condition: Callable[[], T], *, within: float, what: str) -> T:
    """Waits until a condition gives something that is true; fails in words. Looks ever less often: looking costs others their turn."""
    begun = time.monotonic()
    while True:
        found = condition()
        if found:
            return found
        waited = time.monotonic() - begun
        assert waited < within, f"not within {within:.0f} s: {what}"
        time.sleep(min(0.1 + waited / 20, 1.0))


def pace() -> float:
    """How much slower than it could be everything goes just now: limits are stretched by it, never below their own."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return max(1.0, (time.monotonic() - begun) / 0.04)
