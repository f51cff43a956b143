"""The tasks that the tests of the command line run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from p2pqueue import File, Queue, current_job

queue = Queue("trial")


@queue.task(inline=True)
async def echo(text: str = "") -> str:
    """Gives back the text."""
    print("printed by an inline handler")
    return text


@queue.task
def sleep(seconds: float = 1.0) -> float:
    """Sleeps, with progress."""
    job = current_job()
    print(f"sleeping in attempt {job.attempt}")
    steps = max(1, round(seconds / 0.05))
    for step in range(steps):
        time.sleep(seconds / steps)
        job.set_progress((step + 1) / steps, f"step {step + 1}")
    return seconds


@queue.task(max_attempts=1)
def fail(message: str = "as asked") -> None:
    """Fails."""
    print("about to fail", file=sys.stderr)
    raise ValueError(message)


@queue.task
def add(a: int, b: int = 1) -> dict[str, int]:
    """Adds two numbers."""
    return {"sum": a + b}


@queue.task
def copy(source: File) -> File:
    """Gives a copy of the file back."""
    out = current_job().workdir / source.name
    out.write_bytes(Path(source.path).read_bytes())
    return File(out)


@queue.task
def split(source: File) -> list[File]:
    """Gives the two halves of the file back."""
    content = Path(source.path).read_bytes()
    half = len(content) // 2
    parts = []
    for name, part in (("part.txt", content[:half]), ("PART.txt", content[half:])):
        folder = current_job().workdir / name[:2]
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(part)
        parts.append(File(folder / name))
    return parts
