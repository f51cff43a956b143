"""How soon does a handler start in a program that has its node inside? Run as `-m benchmarks.own.program TASK COUNT OUTPUT`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path

from benchmarks.own import app
from benchmarks.peers.marks import Marks


async def measure(task_name: str, count: int) -> list[float]:
    """Enqueues `count` jobs, one at a time, to the idle node of this process."""
    marks = Marks(Path(os.environ["BENCH_MARKS"]))
    task = getattr(app, task_name)
    async with app.queue.node(slots=2):
        for sent in range(count + 1):
            await asyncio.sleep(random.uniform(0.03, 0.08))
            await task.aenqueue(time.monotonic_ns())
            while len(marks.read()) <= sent:  # noqa: ASYNC110  the file is the only bell there is
                await asyncio.sleep(0.005)
    return [(started - sent) / 1e6 for sent, started in marks.read()[1:]]


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2])))))
