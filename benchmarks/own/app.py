"""Which tasks does our own node run in the benchmark?"""

from __future__ import annotations

import time

from benchmarks.peers.marks import mark
from p2pqueue import File, Queue, current_job

queue = Queue("bench")


@queue.task(inline=True)
async def noop() -> None:
    """Does nothing, in the node's loop."""


@queue.task(inline=True)
async def note(sent_ns: int) -> None:
    """Tells when it started, from the node's loop."""
    mark(sent_ns)


@queue.task
def note_child(sent_ns: int) -> None:
    """Tells when it started, from a warm child."""
    mark(sent_ns)


@queue.task
def steps(count: int, seconds: float) -> None:
    """Makes progress in so many steps, and marks each with its number."""
    job = current_job()
    for step in range(1, count + 1):
        time.sleep(seconds / count)
        mark(step)
        job.set_progress(step / count, f"step {step}")


@queue.task
def read_all(file: File) -> int:
    """Reads a whole file by chunks."""
    return sum(len(chunk) for chunk in file.chunks())
