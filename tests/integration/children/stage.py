"""A pool of real worker processes, and a record of what its handlers said."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from p2pqueue import wire
from p2pqueue.errors import NotAllowed
from p2pqueue.workers.children.protocol import Assignment, Outcome, Succeeded
from p2pqueue.workers.running import processes
from p2pqueue.workers.running.pool import Pool

HANDLERS = Path(__file__).with_name("handlers.py")


class Stage:
    """Runs assignments in a pool and keeps what came of them."""

    def __init__(self, folder: Path, pool: Pool | None = None, **settings: Any) -> None:
        self.folder = folder
        self.pool = pool or Pool(str(HANDLERS), home=folder, **({"size": 1} | settings))
        self.progress: list[tuple[float, str | None]] = []
        self.checkpoints: list[Any] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.note = folder / "note"

    async def run(self, task: str, key: str | None = None, /, *, options: dict[str, Any] | None = None, **args: Any) -> Outcome:
        return await self.pool.run(
            self.assignment(task, key, options, args),
            on_progress=lambda *step: self.progress.append(step),
            on_checkpoint=self._checkpoint,
            on_request=self._request,
        )

    async def value(self, task: str, **args: Any) -> Any:
        """What a handler that succeeds returns."""
        outcome = await self.run(task, **args)
        assert isinstance(outcome, Succeeded), outcome
        return wire.unpack(outcome.result)

    def assignment(self, task: str, key: str | None, options: dict[str, Any] | None, args: dict[str, Any]) -> Assignment:
        key = key or f"attempt-{next(_numbers)}"
        return Assignment(
            key=key, job_id=f"job-{key}", task=task, args=wire.pack(args), workdir=str(self.folder / "work" / key),
            log_file=str(self.folder / "logs" / f"{key}.log"), **({"attempt": 1} | (options or {})),
        )  # fmt: skip

    def log(self, key: str) -> str:
        return (self.folder / "logs" / f"{key}.log").read_text()

    async def wait_for_note(self) -> str:
        await until(lambda: self.note.exists() and self.note.read_text() != "")
        return self.note.read_text()

    async def _checkpoint(self, state: bytes) -> None:
        await asyncio.sleep(0.005)
        self.checkpoints.append(wire.unpack(state))

    async def _request(self, kind: str, fields: dict[str, Any]) -> Any:
        self.requests.append((kind, fields))
        if fields.get("task") == "nothing":
            raise NotAllowed("this device enqueues nothing")
        return {"id": "the-id-of-the-follow-up"}


_numbers = itertools.count(1)


async def until(condition: Callable[[], bool], *, within: float = 10.0) -> float:
    """Waits for a condition; gives the seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < within, "it did not come about"
        await asyncio.sleep(0.005)
    return time.monotonic() - begin


def lives(pid: int) -> bool:
    """Says whether a process runs; a zombie doesn't."""
    found = processes.look(pid)
    return found is not None and found.alive


def living(note: Path) -> list[int]:
    """Which of the processes listed in a note run."""
    return [pid for pid in map(int, note.read_text().split()) if lives(pid)]
