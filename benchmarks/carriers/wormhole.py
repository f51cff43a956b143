"""Magic-wormhole with a mailbox server on loopback: encrypted between two programs that meet for one transfer."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.carriers.carrier import LIMIT, Carrier, NotInstalled, accepts, free_port, program, server, settle, wait_until


class _Wormhole:
    name = "magic-wormhole"

    def __init__(self, folder: Path, command: str, port: int) -> None:
        self._folder = folder
        # The transit relay is never reached: both ends find each other on loopback.
        self._words = [command, "--relay-url", f"ws://127.0.0.1:{port}/v1", "--transit-helper", "tcp:127.0.0.1:9"]

    def carry(self, source: Path, target: Path) -> float:
        """The sender waits already; the time is that of the receiver."""
        code = f"{secrets.randbelow(900) + 100}-bench-{secrets.token_hex(4)}"
        words = [*self._words, "send", "--hide-progress", "--code", code, str(source)]
        log = self._folder / f"send-{code}.log"
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with server(words, log, environment=environment) as sender:
            wait_until(lambda: "wormhole receive" in log.read_text() or sender.poll() is not None, "the sender waits", limit=60)
            begun = time.monotonic()
            words = [*self._words, "receive", "--accept-file", "--hide-progress", "--output-file", str(target), code]
            subprocess.run(words, check=True, timeout=LIMIT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            settle(target)
            return time.monotonic() - begun


@contextmanager
def wormhole(folder: Path, root: Path) -> Iterator[Carrier]:
    """A mailbox server for magic-wormhole."""
    del root  # the sender reads whatever it is given
    command, twist, port = program("wormhole"), program("twist", "twist3"), free_port()
    words = [twist, "wormhole-mailbox", f"--port=tcp:{port}:interface=127.0.0.1", f"--channel-db={folder}/channels.sqlite"]
    with server(words, folder / "mailbox.log") as mailbox:
        wait_until(lambda: accepts(port) or mailbox.poll() is not None, "the mailbox server listens", limit=60)
        if mailbox.poll() is not None:
            raise NotInstalled("there is no magic-wormhole-mailbox-server")
        yield _Wormhole(folder, command, port)
