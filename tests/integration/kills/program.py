"""A program with its node inside, which enqueues without end and prints the id of every job once it is acknowledged."""

from __future__ import annotations

import asyncio
import random
import sys

from tests.integration.kills import app


async def main(seed: int) -> None:
    """Enqueues from four coroutines, so that group commits are killed too."""
    rng = random.Random(seed)
    async with app.queue.node(slots=4):
        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(_produce(rng))


async def _produce(rng: random.Random) -> None:
    while True:
        task = rng.choices((app.inline, app.child, app.grandchild), weights=(20, 4, 1))[0]
        job = await task.aenqueue(rng.randrange(100))
        print(job.id, flush=True)
        await asyncio.sleep(rng.expovariate(100))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
