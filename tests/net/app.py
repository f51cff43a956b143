"""The tasks that tests over a real network run."""

from __future__ import annotations

import hashlib
import time

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
