"""A server of somebody else's that runs on loopback for a while."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence

import pytest

READY = 60.0  # seconds within which it must listen


def installed(variable: str, name: str) -> str:
    """The program that a variable of the environment names, or that is on the path; the test is skipped where there is none."""
    found = os.environ.get(variable) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; {variable} may name it")
    return found


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], port: int) -> Iterator[None]:
    """Runs it until the block ends; begins when it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + READY
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
                assert time.monotonic() < end, f"{command[0]} does not listen"
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(READY)
