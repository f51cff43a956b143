"""The tasks that tests over a real network run."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

from p2pqueue import File, Queue, current_job

queue = Queue("net")


@queue.task(inline=True)
async def echo(text: str = "") -> str:
    """Gives back what it got."""
    return text


@queue.task(max_attempts=5)
def sha(data: File) -> str:
    """The SHA-256 of a file, read in pieces."""
    digest, done = hashlib.sha256(), 0
    for piece in data.chunks():
        digest.update(piece)
        done += len(piece)
        current_job().set_progress(done / data.size, "hashing")
    return digest.hexdigest()


@queue.task(max_attempts=5)
def slow(seconds: float, later: float | None = None) -> str:
    """Takes its time, at a later attempt perhaps another, and tells how far it is."""
    begun = time.monotonic()
    if later is not None and current_job().attempt > 1:
        seconds = later
    while (passed := time.monotonic() - begun) < seconds:
        current_job().set_progress(passed / seconds, "waiting")
        time.sleep(0.05)
    return "done"


@queue.task
def make(size: int) -> File:
    """Makes a file of a size."""
    path = current_job().workdir / "made.bin"
    with path.open("wb") as file:
        for _ in range(size // 1_000_000):
            file.write(bytes(1_000_000))
        file.write(bytes(size % 1_000_000))
    return File(path)


@queue.task(max_attempts=5)
def noted(note: str, seconds: float = 0.0, later: float | None = None) -> str:
    """As `slow`, or until a file NOTE.go is there; notes when it starts and ends, and gives the name of the device that ran it."""
    begun, gate = time.monotonic(), Path(f"{note}.go")
    seconds = later if later is not None and current_job().attempt > 1 else seconds
    _note(note, "starts")
    while (passed := time.monotonic() - begun) < seconds and not gate.exists():
        current_job().set_progress(passed / seconds, "waiting")
        time.sleep(0.05)
    _note(note, "ends")
    return _device()


@queue.task(max_attempts=2)
def kill_node(note: str, after: float = 0.0) -> None:
    """Notes that it starts, and kills the node that runs it."""
    _note(note, "starts")
    time.sleep(after)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


def _note(note: str, word: str) -> None:
    with Path(note).open("a") as file:
        file.write(f"{_device()} {word}\n")


def _device() -> str:
    return Path(os.environ["P2PQUEUE_HOME"]).name
