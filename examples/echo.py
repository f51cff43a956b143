"""Gives back what it is given: as fast as a handler can be, and small misbehaving ones for trying things out.

    p2pqueue run examples/echo.py
    p2pqueue enqueue echo text=hello --wait

`echo` runs inline, in the node's own loop, so it must never block; `echo_child` runs in a warm child process, as
handlers do unless they say otherwise. The others end in each way a job can end.
"""

from __future__ import annotations

import os
import signal
import time

from p2pqueue import Queue, Retry, current_job

queue = Queue("echo")


@queue.task(inline=True)
async def echo(text: str = "") -> str:
    """Gives back the text, from the node's own loop."""
    return text


@queue.task
def echo_child(text: str = "") -> str:
    """Gives back the text, from a child process."""
    return text


@queue.task
def sleep(seconds: float = 1.0, steps: int = 20) -> float:
    """Sleeps, with progress in so many steps."""
    job = current_job()
    for step in range(steps):
        time.sleep(seconds / steps)
        job.set_progress((step + 1) / steps, "Sleeping")
    return seconds


@queue.task(max_attempts=1)
def fail(message: str = "as asked") -> None:
    """Raises a ValueError."""
    raise ValueError(message)


@queue.task(max_attempts=3)
def fail_until(attempt: int = 2) -> int:
    """Asks for a retry until that attempt, and then succeeds."""
    job = current_job()
    if job.attempt < attempt:
        raise Retry(f"not before attempt {attempt}", delay=0)
    return job.attempt


@queue.task(max_attempts=3)
def crash(number: int = getattr(signal, "SIGKILL", signal.SIGTERM)) -> None:
    """Kills its own process by a signal."""
    os.kill(os.getpid(), number)
    time.sleep(60)


@queue.task(max_attempts=2)
def hog(megabytes: int = 1024, seconds: float = 60.0) -> int:
    """Takes that much memory and keeps it for a while."""
    held = [bytearray(os.urandom(1) * 1_000_000) for _ in range(megabytes)]
    time.sleep(seconds)
    return len(held)
