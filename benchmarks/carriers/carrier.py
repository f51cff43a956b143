"""What is asked of whoever carries files: bring a file or a folder from here to there, and tell how long it took."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

LIMIT = 300.0  # seconds for one transfer; the slowest peer takes a tenth of that
GRACE = 5.0  # seconds that a server gets to end


class NotInstalled(Exception):
    """A program is not on this machine, in words."""


class Carrier(Protocol):
    """Brings files over loopback."""

    name: str

    def carry(self, source: Path, target: Path) -> float:
        """Brings a file or folder to `target`, which is not there yet; gives the seconds until its content is on the disk."""


def program(*names: str) -> str:
    """Where the first of these programs that is here lies. Raises `NotInstalled`."""
    for name in names:
        found = shutil.which(name, path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
        if found is not None:
            return found
    raise NotInstalled(f"there is no {' or '.join(names)}")


def free_port() -> int:
    """A TCP port on loopback that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Says whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], what: str, *, limit: float = LIMIT, every: float = 0.01) -> None:
    """Waits. Raises `TimeoutError` with what was waited for."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit:.0f} s: {what}")
        time.sleep(every)


@contextmanager
def server(words: Sequence[str], log: Path, *, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A server process, ended with the block."""
    with log.open("ab") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=log.parent)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def settle(target: Path) -> None:
    """Makes what was brought durable: everybody's time ends when the disk has it."""
    for path in [target] if target.is_file() else sorted(target.rglob("*")):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
