"""Syncthing: two instances on loopback with one folder, which know each other and nobody else.

A transfer begins when the receiver, which is linked and idle, is given the folder, and ends when all of it is there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.carriers.carrier import Carrier, accepts, free_port, program, server, settle, wait_until

FOLDER = "bench"


class _Instance:
    """One Syncthing, spoken to over its REST interface."""

    def __init__(self, command: str, home: Path) -> None:
        self.port, self._gui = free_port(), free_port()
        home.mkdir()
        subprocess.run([command, "generate", "--no-default-folder", f"--home={home}"], check=True, capture_output=True)
        file = home / "config.xml"
        text = re.sub(r"<address>127\.0\.0\.1:\d+</address>", f"<address>127.0.0.1:{self._gui}</address>", file.read_text())
        for name in ("globalAnnounceEnabled", "localAnnounceEnabled", "relaysEnabled", "natEnabled", "crashReportingEnabled"):
            text = re.sub(rf"<{name}>\w+</{name}>", f"<{name}>false</{name}>", text)
        text = re.sub(r"<listenAddress>.*</listenAddress>", f"<listenAddress>tcp://127.0.0.1:{self.port}</listenAddress>", text)
        text = re.sub(r"<autoUpgradeIntervalH>\d+<", "<autoUpgradeIntervalH>0<", text)
        file.write_text(re.sub(r"<urAccepted>-?\d+<", "<urAccepted>-1<", text))
        self._key = re.findall(r"<apikey>(.+)</apikey>", text)[0]
        self.words = [command, "serve", "--no-browser", "--no-upgrade", "--no-restart", f"--home={home}"]
        self.id = ""

    def wait(self) -> None:
        wait_until(lambda: accepts(self._gui), "Syncthing answers", limit=30)
        self.id = self.ask("system/status")["myID"]

    def ask(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._gui}/rest/{path}", data, {"X-API-Key": self._key}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text.strip() else None

    def knows(self, other: _Instance) -> None:
        self.ask("config/devices", {"deviceID": other.id, "addresses": [f"tcp://127.0.0.1:{other.port}"]})

    def take_folder(self, path: Path, other: _Instance) -> None:
        path.mkdir(exist_ok=True)
        devices = [{"deviceID": self.id}, {"deviceID": other.id}]
        self.ask(
            "config/folders", {"id": FOLDER, "path": str(path), "devices": devices, "fsWatcherEnabled": False, "rescanIntervalS": 3600}
        )

    def is_linked(self) -> bool:
        return any(each["connected"] for each in self.ask("system/connections")["connections"].values())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"db/status?folder={FOLDER}")
        return found

    def drop_folder(self) -> None:
        self.ask(f"config/folders/{FOLDER}", method="DELETE")


class _Syncthing:
    name = "Syncthing"

    def __init__(self, sender: _Instance, receiver: _Instance, folder: Path) -> None:
        self._sender = sender
        self._receiver = receiver
        self._folder = folder

    def carry(self, source: Path, target: Path) -> float:
        given = self._folder / f"given-{target.name}"
        given.mkdir()
        if source.is_dir():
            shutil.copytree(source, given, dirs_exist_ok=True)
        else:
            shutil.copy(source, given / source.name)
        self._sender.take_folder(given, self._receiver)
        size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file()) if source.is_dir() else source.stat().st_size
        wait_until(lambda: self._is_whole(self._sender, size), "the sender has hashed the folder")
        wait_until(self._receiver.is_linked, "both are linked", limit=60)
        begun = time.monotonic()
        self._receiver.take_folder(target, self._sender)
        wait_until(lambda: self._is_whole(self._receiver, size), "all has come")
        settle(target)
        took = time.monotonic() - begun
        self._receiver.drop_folder()
        self._sender.drop_folder()
        shutil.rmtree(given)
        return took

    @staticmethod
    def _is_whole(instance: _Instance, size: int) -> bool:
        try:
            status = instance.status()
        except OSError:
            return False
        return bool(status["state"] == "idle" and status["localBytes"] == size and status["needBytes"] == 0)


@contextmanager
def syncthing(folder: Path, root: Path) -> Iterator[Carrier]:
    """Two instances of Syncthing that are linked."""
    del root
    command = program("syncthing")
    sender, receiver = (_Instance(command, folder / name) for name in ("sender", "receiver"))
    with ExitStack() as stack:
        for instance, log in ((sender, "sender.log"), (receiver, "receiver.log")):
            stack.enter_context(server(instance.words, folder / log))
            instance.wait()
        sender.knows(receiver)
        receiver.knows(sender)
        wait_until(receiver.is_linked, "both are linked", limit=90)
        yield _Syncthing(sender, receiver, folder)
