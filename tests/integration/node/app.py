"""The tasks of these tests. A handler that shall be seen at work appends words to a file, its `note`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from p2pqueue import Backoff, File, Queue, Retry, current_job

queue = Queue("node-tests")
SOON = Backoff(first=0.02, cap=0.02)


def say(note: str, *words: object) -> None:
    with open(note, "a") as file:
        file.write(" ".join(map(str, words)) + "\n")


# -- in child processes ---------------------------------------------------------------------------------------


@queue.task
def echo(value: Any = None) -> Any:
    return value


@queue.task
def nap(seconds: float, note: str = "") -> float:
    if note:
        say(note, "began", current_job().attempt)
    time.sleep(seconds)
    if note:
        say(note, "ended")
    return seconds


@queue.task
def climb(steps: int, pause: float, note: str) -> list[int]:
    """Keeps a checkpoint after each step; gives the steps that this attempt did."""
    job = current_job()
    done = []
    for step in range(job.resume_from or 0, steps):
        say(note, "step", step)
        time.sleep(pause)
        job.checkpoint(step + 1)
        job.set_progress((step + 1) / steps, f"step {step + 1}")
        done.append(step)
    return done


@queue.task
def cleave(steps: int) -> list[int]:
    """Does one step and gives the job back, until all are done."""
    job = current_job()
    done = [*(job.resume_from or []), job.attempt]
    if len(done) < steps:
        job.continue_(done)
    return done


@queue.task(max_attempts=3, backoff=SOON)
def fail(words: str = "boom") -> None:
    raise ValueError(words)


@queue.task(max_attempts=3, backoff=SOON, retry_on=(ConnectionError,))
def picky(kind: str) -> None:
    raise {"refused": ConnectionRefusedError, "value": ValueError}[kind]("no")


@queue.task(max_attempts=3, backoff=Backoff(first=1000))
def later(delay: float) -> int:
    if current_job().attempt == 1:
        raise Retry("not yet", delay=delay)
    return current_job().attempt


@queue.task(max_attempts=2, timeout=0.3, backoff=SOON)
def too_long(note: str) -> None:
    say(note, "began")
    time.sleep(30)


@queue.task(max_attempts=1, stall_timeout=0.4)
def stall(steps: int) -> int:
    for step in range(steps):
        time.sleep(0.1)
        current_job().set_progress(step / steps)
    time.sleep(30)
    return steps


@queue.task(max_attempts=5)
def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task(max_attempts=5)
def crash_once() -> int:
    if current_job().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return current_job().attempt


@queue.task
def program(seconds: float, note: str) -> None:
    """Leaves the work to a program."""
    say(note, "began")
    current_job().run(["sleep", str(seconds)])


@queue.task
def tell_pid(note: str, seconds: float) -> int:
    say(note, os.getpid())
    time.sleep(seconds)
    return current_job().attempt


@queue.task(max_attempts=2)
def kill_node(note: str, after: float = 0.0) -> None:
    say(note, "attempt", current_job().attempt)
    time.sleep(after)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


@queue.task(max_attempts=1000, backoff=Backoff(first=1, cap=4))
def outage() -> None:
    raise ConnectionError("the service is away")


@queue.task
def digest(file: File, again: File | None = None) -> list[Any]:
    """What a handler sees of its files."""
    return [[each.name, each.size, hashlib.sha256(b"".join(each.chunks())).hexdigest()] for each in (file, again) if each is not None]


@queue.task
def length(file: File) -> int:
    """Takes a file by its path."""
    return os.stat(file.path).st_size


@queue.task
def open_file(file: File, note: str) -> int:
    say(note, "began")
    return file.size


@queue.task
def make(size: int, copies: int = 1) -> Any:
    made = []
    for number in range(copies):
        path = current_job().workdir / f"made-{number}.bin"
        with path.open("wb") as file:
            file.truncate(size)
        made.append(File(path))
    return made[0] if copies == 1 else {"files": made, "count": copies}


@queue.task
def give(path: str) -> File:
    """Returns a file that lies elsewhere, so that it has to be copied."""
    return File(path)


@queue.task(max_attempts=1)
def promise(path: str) -> File:
    """Returns a file that isn't there any more."""
    Path(path).write_text("soon gone")
    made = File(path)
    os.unlink(path)
    return made


@queue.task
def chain(names: list[str], priority: int | None = None) -> list[str]:
    """Enqueues follow-ups, some with files of its own folder."""
    job = current_job()
    ids = []
    for name in names:
        path = job.workdir / name
        path.write_text(name)
        ids.append(job.enqueue(digest, File(path)))
    ids.append(job.enqueue(echo.options(priority=3, title="last", unique_key="the last", delay=0.05), "from a handler"))
    if priority is not None:
        ids.append(job.enqueue(urgent.options(priority=priority)))
    return ids


@queue.task(priority=7, title="urgent by itself")
def urgent() -> str:
    return "urgent"


@queue.task(needs={"a-tag-that-is-given"})
def needy() -> str:
    return "had it"


# -- in the node's own loop -----------------------------------------------------------------------------------


@queue.task(inline=True)
async def inline_give_up() -> None:
    """Cancels its own job, at once."""
    mine = Queue("node-tests")
    await mine.get(current_job().id).acancel()
    await mine.aclose()
    await asyncio.sleep(20)


@queue.task(inline=True)
async def inline_echo(value: Any = None) -> Any:
    return value


@queue.task(inline=True)
async def inline_tell(note: str, word: str, waits: bool = False) -> None:
    say(note, word)
    if waits:
        await asyncio.sleep(0.001)


@queue.task(inline=True)
async def inline_nap(seconds: float, note: str = "") -> float:
    if note:
        say(note, "began", current_job().attempt)
    try:
        await asyncio.sleep(seconds)
    finally:
        if note:
            say(note, "left", current_job().cancelled)
    return seconds


@queue.task(inline=True)
async def inline_digest(file: File) -> list[Any]:
    content = b"".join([chunk async for chunk in file.achunks()])
    return [file.name, hashlib.sha256(content).hexdigest()]


@queue.task(inline=True)
async def inline_open_file(file: File, note: str) -> int:
    say(note, "began")
    return file.size


@queue.task(inline=True)
async def inline_make(text: str) -> File:
    path = current_job().workdir / "made.txt"
    path.write_text(text)
    return File(path)


@queue.task(inline=True)
async def inline_climb(steps: int, pause: float, note: str) -> list[int]:
    job = current_job()
    done = []
    for step in range(job.resume_from or 0, steps):
        say(note, "step", step)
        await asyncio.sleep(pause)
        job.checkpoint(step + 1)
        job.set_progress((step + 1) / steps, f"step {step + 1}")
        done.append(step)
    return done


@queue.task(inline=True, timeout=0.2, max_attempts=1)
async def inline_too_long() -> None:
    await asyncio.sleep(30)


@queue.task(inline=True, max_attempts=1)
async def inline_raise(kind: str) -> None:
    if kind == "cancelled":
        asyncio.current_task()  # its own error only looks like a stop
        raise asyncio.CancelledError
    if kind == "future":
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
    if kind == "itself":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(30)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "closed":
        raise GeneratorExit
    raise {"exit": SystemExit(3), "value": ValueError("no"), "timeout": TimeoutError("of its own"), "retry": Retry("later", delay=-1)}[kind]


@queue.task(inline=True)
async def inline_cleave(steps: int) -> list[int]:
    job = current_job()
    done = [*(job.resume_from or []), job.attempt]
    if len(done) < steps:
        job.continue_(done)
    return done


@queue.task(inline=True)
async def inline_stubborn(note: str) -> str:
    """Swallows its stop."""
    say(note, "began")
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        pass
    return "all the same"
