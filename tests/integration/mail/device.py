"""A device that is there for a while: the installed command line, on loopback, with no way to any other but the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from p2pqueue.home import Home
from p2pqueue.replica.door.doorbell import DoorbellClient

APP = Path(__file__).with_name("app.py")
PROGRAM = (sys.executable, "-m", "p2pqueue")
PATIENCE = 60.0  # seconds that one command, or one thing that must come, may take on a busy machine


class Device:
    """One home."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("P2PQUEUE_")}
        self.environment |= {
            "P2PQUEUE_HOME": str(home), "P2PQUEUE_INTERFACES": "lo", "P2PQUEUE_DISCOVERY": "false", "P2PQUEUE_LISTEN": "127.0.0.1:0",
            "PYTHONFAULTHANDLER": "1",
            **environment,
        }  # fmt: skip

    def __call__(self, *words: str) -> Any:
        """Runs a command with `--json`; gives its document."""
        done = subprocess.run(
            [*PROGRAM, *words, "--json"], env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.words()}"
        return json.loads(done.stdout)

    @contextmanager
    def there(self, *flags: str) -> Iterator[None]:
        """The device is on, with its node."""
        with self.home.with_suffix(".log").open("a") as log:
            command = [*PROGRAM, "run", str(APP), *flags, "--json", "-v"]
            node = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                assert node.stdout is not None
                assert node.stdout.readline(), self.words()
                yield
            finally:
                node.send_signal(signal.SIGTERM)
                try:
                    node.communicate(timeout=PATIENCE)
                except subprocess.TimeoutExpired:
                    node.send_signal(signal.SIGABRT)  # it writes where each of its threads stands
                    node.communicate(timeout=PATIENCE)
                    raise AssertionError(f"it does not end\n{self.words()}") from None
                finally:
                    node.kill()

    def let_in(self, other: Device, label: str, *, role: str = "owner") -> None:
        """Pairs another device, which is the only time that the two meet."""
        command = [*PROGRAM, "invite", "--json", "--role", role]
        inviting = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert inviting.stdout is not None
            shown = json.loads(inviting.stdout.readline())
            other("join", shown["code"], "--label", label, "--peer", shown["addresses"][0])
            assert inviting.wait(PATIENCE) == 0
        finally:
            inviting.kill()
            inviting.communicate()

    def networking(self) -> dict[str, Any]:
        """What the running node says of its networking."""
        told: dict[str, Any] = DoorbellClient(Home(self.home).socket_path).request("status")["network"]
        return told

    def words(self) -> str:
        """What its node said."""
        log = self.home.with_suffix(".log")
        return log.read_text()[-4000:] if log.exists() else ""


def until(condition: Callable[[], Any], what: str, *, within: float = PATIENCE) -> Any:
    """Waits until something holds; gives it."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within:.0f} s: {what}"
        time.sleep(0.2)
    return found
