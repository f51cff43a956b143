"""Starts seekers on the hosts of a LAN and waits for what they say."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.net.lan import Host

PATIENCE = 30.0  # seconds: a busy machine is slow, and a wait ends as soon as the event is there
Event = dict[str, Any]


class Seeker:
    """A seeker on a host; `events` holds what it said so far."""

    def __init__(self, host: Host, *arguments: str) -> None:
        command = (sys.executable, "-X", "dev", "-W", "error", "-m", "tests.net.seeker", *arguments)
        self.process = host.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.events: list[Event] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def wait(self, event: str, *, within: float = PATIENCE, matching: Callable[[Event], bool] = lambda _event: True) -> Event:
        """The next event of that name that matches; those before it are passed over."""
        deadline = time.monotonic() + within
        while True:
            found = self._next(deadline - time.monotonic())
            assert found is not None, f"no {event} came within {within:g} s, but {self.events}"
            if found["event"] == event and matching(found):
                return found

    def sighting(self, *hosts: str, **fields: Any) -> Event:
        """Waits for one of our space at exactly these addresses, and with these fields."""
        return self.wait(
            "sighting",
            matching=lambda event: (
                event["ours"]
                and (not hosts or [host for host, _ in event["addresses"]] == list(hosts))
                and all(event[name] == value for name, value in fields.items())
            ),
        )

    def silence(self, event: str, *, seconds: float) -> None:
        """Waits a while in which no such event may come."""
        deadline = time.monotonic() + seconds
        while (found := self._next(deadline - time.monotonic())) is not None:
            assert found["event"] != event, found

    def warnings(self) -> list[str]:
        """The warnings so far, and whatever the process said that was no event."""
        told = [event["text"] for event in self.events if event["event"] == "log" and event["level"] not in ("INFO", "DEBUG")]
        return [text for text in told if not text.startswith("Executing <")]  # asyncio, of a busy machine

    def close(self) -> None:
        """Lets it say goodbye; it has to end well."""
        self.tell("close")
        self.wait("closed")
        assert self.process.wait(PATIENCE) == 0

    def _next(self, seconds: float) -> Event | None:
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if line is None:
            return None
        try:
            event: Event = json.loads(line)
        except ValueError:
            event = {"event": "log", "level": "ERROR", "text": line}
        self.events.append(event)
        return event

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)
