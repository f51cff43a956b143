"""Processes that write to one home: `python -m tests.integration.replica.hands HOME KIND SECONDS`.

Each key is printed once its commit was acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from p2pqueue.home import Home
from p2pqueue.identity.keys import load
from p2pqueue.replica.replica import Put, Replica, Writer
from p2pqueue.replica.store import Store
from tests.unit.replica.kit import CLIPS, NOTES

TABLES = (CLIPS, NOTES)


def one(writer: Writer) -> list[str]:
    key = writer.new_id()
    writer.put_many("clips", [Put(key, "made", ("x" * 200, 1.0)), Put(key, "stage", ("on", None))])
    return [key]


def ten(writer: Writer) -> list[str]:
    return [key for _ in range(10) for key in one(writer)]


def tell(keys: list[str]) -> None:
    sys.stdout.write("".join(f"{key}\n" for key in keys))
    sys.stdout.flush()


def program(home: Home, seconds: float, *, many: bool, reopen: bool) -> None:
    """Writes in a loop, perhaps opening the replica each time, as a command does."""
    identity, until = load(home), time.monotonic() + seconds
    replica = Replica.open(home.replica_file, tables=TABLES, identity=identity)
    while time.monotonic() < until:
        if reopen:
            replica.close()
            replica = Replica.open(home.replica_file, tables=TABLES, identity=identity)
        tell(replica.write(ten if many else one))
    replica.close()


async def node(home: Home, seconds: float) -> None:
    """Writes from several coroutines at once, and follows what others write."""
    store = await Store.open(home.replica_file, tables=TABLES, identity=load(home))
    until = time.monotonic() + seconds

    async def write() -> None:
        while time.monotonic() < until:
            tell(await store.write(one))
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(write())
    await store.close()


def main(home: Home, kind: str, seconds: float) -> None:
    if kind == "node":
        asyncio.run(node(home, seconds))
    else:
        program(home, seconds, many=kind == "bulk", reopen=kind == "command")


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
