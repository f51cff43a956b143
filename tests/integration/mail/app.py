"""The tasks that devices run which are never there together."""

from __future__ import annotations

from p2pqueue import File, Queue, current_job

queue = Queue("apart")


@queue.task
def reverse(data: File) -> File:
    """The same bytes from the last to the first."""
    out = current_job().workdir / "reversed.bin"
    out.write_bytes(data.bytes()[::-1])
    return File(out)
