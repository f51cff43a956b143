"""The application of these tests: a module that the program and its worker processes import alike."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from p2pqueue import Backoff, File, Queue, current_job

queue = Queue("tests")


@queue.task
def echo(value: Any) -> Any:
    return value


@queue.task(inline=True)
async def echo_inline(value: Any) -> Any:
    return value


@queue.task
def climb(steps: int) -> int:
    job = current_job()
    for step in range(1, steps + 1):
        time.sleep(0.05)
        job.set_progress(step / (steps + 1), f"step {step}")
    return steps


@queue.task
def shout(text: File, again: File | None = None) -> dict[str, Any]:
    folder = current_job().workdir
    made = []
    for number, file in enumerate(each for each in (text, again) if each is not None):
        path = folder / f"{number}-{file.name}"
        path.write_bytes(file.bytes().upper())
        made.append(File(path))
    return {"files": made, "count": len(made)}


@queue.task(max_attempts=4, backoff=Backoff(first=1000))
def flaky() -> None:
    raise ConnectionError("an outage")


@queue.task(max_attempts=4, retry_on=(ConnectionError,))
def picky() -> None:
    raise ValueError("no outage")


@queue.task(inline=True)
async def wait_inline(seconds: float) -> None:
    await asyncio.sleep(seconds)
