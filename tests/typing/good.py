"""How programs use the public names; both type checkers must find nothing to say."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from p2pqueue import (
    Attempt,
    Backoff,
    Cancelled,
    File,
    Job,
    JobCancelled,
    JobFailed,
    P2PQueueError,
    Progress,
    Queue,
    ResultTimeout,
    Retry,
    Task,
    __version__,
    current_job,
)

queue = Queue("studio", home="/home/of/this/device")


@queue.task(max_attempts=3, backoff=Backoff(first=5), timeout=timedelta(hours=2), needs={"ffmpeg"})
def transcode(video: File, height: int = 720) -> File:
    job = current_job()
    out = job.workdir / "out.mp4"
    job.run(["ffmpeg", "-i", video.path, "-vf", f"scale=-2:{height}", out], on_line=print)
    job.set_progress(0.5, "half")
    return File(out)


@queue.task(inline=True, retry_on=(ConnectionError, "app.Flaky"))
async def summarise(text: str) -> dict[str, int]:
    if not text:
        raise Retry("nothing yet", delay=5)
    return {text: len(text)}


@queue.task
def wordcount(text: str) -> int:
    return len(text.split())


@queue.task
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


def enqueue() -> None:
    job = transcode.options(priority=5, unique_key="clip@720", delay=timedelta(minutes=1)).enqueue(File("clip.mov"), height=720)
    assert_type(job, Job[File])
    assert_type(transcode(File("clip.mov")), File)
    assert_type(job.result(timeout=3600), File)
    job.result(timeout=timedelta(hours=1)).save("out.mp4")
    assert_type(wordcount.enqueue("a b"), Job[int])
    assert_type(wordcount.enqueue_many([{"text": "a"}, ("b",)]), list[Job[int]])
    assert_type(wordcount.options(run_at=datetime.now(UTC), max_attempts=1, timeout=5).enqueue("a").result(), int)
    assert_type(summarise.enqueue("x").result(), dict[str, int])
    coroutine: Coroutine[Any, Any, dict[str, int]] = summarise("x")
    coroutine.close()
    assert_type(wait.enqueue(0.1), Job[None])
    assert_type(queue.enqueue("other", {"n": 1}, priority=1, title="by name"), Job[Any])


def look(job: Job[int]) -> None:
    for step in job.watch():
        assert_type(step, Progress)
        print(step.fraction, step.phase, step.device, step.status)
    assert_type(job.id, str)
    assert_type(job.status, str)
    assert_type(job.progress, float)
    assert_type(job.error, str | None)
    assert_type(job.attempts, list[Attempt])
    assert_type(job.retry(fresh=True), Job[int])
    assert_type(queue.jobs(status="failed", task="transcode", limit=20), list[Job[Any]])
    assert_type(queue.jobs(task=transcode, since=timedelta(days=1)), list[Job[Any]])
    assert_type(queue.get("0190"), Job[Any])
    assert_type(queue.share("clip.mov"), File)
    assert_type(queue.counts(), dict[str, int])
    job.cancel()
    job.pause()
    job.resume()
    job.delete()


async def alook() -> None:
    job = await summarise.aenqueue("x")
    assert_type(job, Job[dict[str, int]])
    assert_type(await job, dict[str, int])
    assert_type(await job.aresult(timeout=1), dict[str, int])
    assert_type(await summarise("x"), dict[str, int])
    assert_type(await queue.ajobs(), list[Job[Any]])
    async for step in job.watch():
        assert_type(step, Progress)
    await job.acancel()
    await wordcount.aenqueue_many([("a",)])
    async with queue.node(slots=2):
        assert_type(await wordcount.options(title="t").aenqueue("a"), Job[int])


def ends(job: Job[int]) -> int | None:
    try:
        return job.result(5)
    except JobFailed as failed:
        assert_type(failed.traceback, str)
    except (JobCancelled, ResultTimeout) as error:
        assert_type(error.job_id, str)
    except P2PQueueError as error:
        print(error)
    except Cancelled:
        raise
    return None


def takes_any_number(job: Job[float]) -> float:
    return job.result()


def takes_any_task(task: Task[..., Any]) -> str:
    return task.name


takes_any_task(transcode)
takes_any_task(summarise)
takes_any_number(wordcount.enqueue("a"))
assert_type(__version__, str)
