"""Attempts that fail, crash, take too long or want to go on later; and what the next one finds."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from p2pqueue import JobFailed
from tests.integration.node.stage import Stage, said, status, until, words


async def test_a_handler_that_takes_too_long_is_stopped_at_each_attempt(stage: Stage) -> None:
    note = stage.note()
    async with stage.run():
        job = stage.enqueue("too_long", note=note)
        with pytest.raises(JobFailed, match=r"it took longer than its timeout of 0\.3 s"):
            await job.aresult(30)
        assert words(job) == ["failed", "failed"]
        assert said(note) == ["began"] * 2
        assert all(0.3 <= (attempt.duration or 0) < 3 for attempt in job.attempts)
        sooner = stage.enqueue("nap", seconds=30, options={"timeout": 0.2, "max_attempts": 1})
        with pytest.raises(JobFailed, match=r"timeout of 0\.2 s"):  # that of a job goes before that of its task
            await sooner.aresult(20)


async def test_a_handler_without_progress_for_too_long_is_stopped(stage: Stage) -> None:
    async with stage.run():
        job = stage.enqueue("stall", steps=8)
        with pytest.raises(JobFailed, match=r"it made no progress for 0\.4 s"):
            await job.aresult(20)
        assert (job.attempts[0].duration or 0) > 0.8, "progress kept it going"


async def test_an_inline_handler_that_takes_too_long_is_stopped(stage: Stage) -> None:
    async with stage.run() as node:
        job = stage.enqueue("inline_too_long")
        with pytest.raises(JobFailed, match=r"it took longer than its timeout of 0\.2 s"):
            await job.aresult(20)
        await until(lambda: not node.worker.runs)


async def test_only_what_shall_be_tried_again_is(stage: Stage) -> None:
    async with stage.run():
        for kind, attempts in (("refused", 3), ("value", 1)):
            job = stage.enqueue("picky", kind=kind)
            with pytest.raises(JobFailed, match="Error: no"):
                await job.aresult(20)
            assert words(job) == ["failed"] * attempts


@pytest.mark.parametrize("task", ["echo", "inline_echo"])
async def test_arguments_that_are_no_parameters_cost_one_attempt_alone(stage: Stage, task: str) -> None:
    async with stage.run():
        job = stage.enqueue(task, nothing=1)
        with pytest.raises(JobFailed, match="unexpected keyword argument 'nothing'"):
            await job.aresult(20)
        assert words(job) == ["failed"]


async def test_a_handler_that_asks_for_a_retry_gets_the_delay_that_it_names(stage: Stage) -> None:
    async with stage.run():
        job = stage.enqueue("later", delay=0.5)
        assert await job.aresult(20) == 2
        first, second = job.attempts
        assert (first.status, first.error) == ("failed", "not yet")
        assert first.ended_at is not None
        assert 0.45 <= (second.started_at - first.ended_at).total_seconds() < 5


async def test_a_retry_time_is_honoured_over_a_restart(stage: Stage) -> None:
    async with stage.run() as node:
        job = stage.enqueue("later", delay=2.5)
        await until(lambda: len(words(job)) == 1)
        due = job.row.retry_at or 0
        assert 1.5 < due / 1000 - time.time() <= 2.5
        await until(lambda: not node.worker.runs)
    async with stage.run():
        assert await job.aresult(20) == 2
        assert job.attempts[1].started_at >= datetime.fromtimestamp(due / 1000, UTC)


async def test_a_handler_that_gives_its_job_back_goes_on_without_spending_attempts(stage: Stage) -> None:
    async with stage.run():
        for task in ("cleave", "inline_cleave"):
            job = stage.enqueue(task, steps=6)
            assert await job.aresult(20) == [1] * 6
            assert words(job) == ["released"] * 5 + ["succeeded"]


async def test_a_crash_is_tried_again_at_once_and_a_second_one_fails(stage: Stage) -> None:
    async with stage.run():
        job, once = stage.enqueue("crash"), stage.enqueue("crash_once")
        assert await once.aresult(20) == 2
        assert words(once) == ["failed", "succeeded"]
        with pytest.raises(JobFailed, match=r"killed by signal 9 \(SIGKILL\)"):
            await job.aresult(20)
        assert words(job) == ["failed", "failed"]
        assert await stage.result("echo", value=1) == 1


RAISED = [
    ("cancelled", "CancelledError"),
    ("future", "CancelledError"),
    ("itself", "CancelledError: the task that it runs in was cancelled"),
    ("closed", "GeneratorExit"),
    ("exit", "SystemExit: 3"),
    ("interrupt", "KeyboardInterrupt"),
    ("value", "ValueError: no"),
    ("timeout", "TimeoutError: of its own"),
    ("retry", "later"),
]


async def test_whatever_an_inline_handler_raises_ends_its_attempt_alone(stage: Stage) -> None:
    async with stage.run(slots=1) as node:
        for kind, error in RAISED:
            job = stage.enqueue("inline_raise", kind=kind)
            await status(job, "failed")
            assert error in (job.error or "")
            assert words(job) == ["failed"]
            assert not node.worker.runs
        assert await stage.result("inline_echo", value=1) == 1, "the slot is free again"


async def test_an_inline_handler_shows_progress_and_keeps_checkpoints(stage: Stage) -> None:
    note = stage.note()
    async with stage.run():
        job = stage.enqueue("inline_climb", steps=4, pause=0.1, note=note)
        phases = [progress.phase async for progress in job.watch()]
        assert {"step 1", "step 2", "step 3"} <= set(phases)
        assert phases[-1] == "Done"
        assert await job.aresult(1) == [0, 1, 2, 3]


async def test_many_inline_handlers_run_at_the_same_time(stage: Stage) -> None:
    async with stage.run(slots=50):
        jobs = [stage.enqueue("inline_nap", seconds=0.5) for _ in range(50)]
        began = time.monotonic()
        await asyncio.gather(*(job.aresult(20) for job in jobs))
        assert time.monotonic() - began < 10
    assert stage.queue.counts()["succeeded"] == 50
