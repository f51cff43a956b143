"""A node in the test's own loop, with its children for real, and a queue beside it that asks for jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from p2pqueue import Job, Queue
from p2pqueue.home import Home
from p2pqueue.jobs import rows
from p2pqueue.node import Node

APP = str(Path(__file__).with_name("app.py"))
QUICK: dict[str, Any] = {"slots": 2, "grace": 2.0, "beat_every": 0.2, "stale_after": 2.0}
T = TypeVar("T")


class Stage:
    """A home, a queue on it, and the nodes that run on it one after the other."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.queue = Queue("node-tests", home=home)
        self.node: Node

    @asynccontextmanager
    async def run(self, app: str = APP, **overrides: Any) -> AsyncIterator[Node]:
        """A node with quick settings, for as long as the block lasts."""
        self.node = Node(self.home, application=app, overrides=QUICK | overrides)
        async with self.node:
            yield self.node

    def enqueue(self, task: str, /, *, options: dict[str, Any] | None = None, **args: Any) -> Job[Any]:
        return self.queue.enqueue(task, args, **(options or {}))

    async def result(self, task: str, /, *, options: dict[str, Any] | None = None, **args: Any) -> Any:
        """What a job returns that is enqueued now."""
        return await self.enqueue(task, options=options, **args).aresult(20)

    def note(self, name: str = "note") -> str:
        """Where a handler says that it works."""
        return str(self.folder / name)

    def read(self, fn: Callable[..., T], *args: Any, **named: Any) -> T:
        """What a reading function gives for this home's replica."""
        return self.queue.access.read(lambda connection: fn(connection, *args, **named))

    def why(self, job: Job[Any]) -> str | None:
        """Why the job waits, while a node runs."""
        return self.read(rows.why, job.row, node_running=True)

    async def close(self) -> None:
        await self.queue.aclose()


def said(note: str) -> list[str]:
    """What handlers have said."""
    path = Path(note)
    return path.read_text().splitlines() if path.exists() else []


async def until(condition: Callable[[], Any], *, within: float = 15.0) -> float:
    """Waits for a condition; gives the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, "it did not come about"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def status(job: Job[Any], *wanted: str, within: float = 15.0) -> None:
    """Waits until the job has one of these statuses."""
    began = time.monotonic()
    while job.status not in wanted:
        assert time.monotonic() - began < within, f"the job is {job.status} ({job.row}), not {wanted}"
        await asyncio.sleep(0.01)


def told(note: str, within: float = 20.0) -> None:
    """Waits, in a test without a loop, until a handler has said something."""
    began = time.monotonic()
    while not said(note):
        assert time.monotonic() - began < within, "no handler began"
        time.sleep(0.02)


def became(job: Job[Any], *wanted: str, within: float = 20.0) -> None:
    """As `status`, in a test without a loop."""
    began = time.monotonic()
    while job.status not in wanted:
        assert time.monotonic() - began < within, f"the job is {job.status} ({job.row}), not {wanted}"
        time.sleep(0.02)


def words(job: Job[Any]) -> list[str]:
    """How the attempts of a job ended."""
    return [attempt.status for attempt in job.attempts]
