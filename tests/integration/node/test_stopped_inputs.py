"""Jobs that are stopped while their input is still on its way, which may take hours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from p2pqueue import File, Job
from p2pqueue.workers.inputs import Inputs
from tests.integration.node.stage import Stage, status, until, words
from tests.integration.node.test_files import small


class Slow:
    """An input that never comes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.under_way = 0
        monkeypatch.setattr(Inputs, "_bring", self.bring)

    async def bring(self, *_: object) -> None:
        self.asked += 1
        self.under_way += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.under_way -= 1


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


async def waits_for_its_input(stage: Stage, slow: Slow, task: str) -> Job[Any]:
    job = stage.enqueue(task, file=File(small(stage.folder)))
    await until(lambda: slow.under_way)
    await status(job, "running")
    return job


@pytest.mark.parametrize("task", ["digest", "inline_digest"])
async def test_a_cancel_ends_the_fetch_and_frees_the_slot(stage: Stage, slow: Slow, task: str) -> None:
    async with stage.run(slots=1) as node:
        job = await waits_for_its_input(stage, slow, task)
        job.cancel()
        await until(lambda: not slow.under_way and not node.worker.runs)
        assert await stage.result("echo", value=1) == 1, "the slot is free"
        await until(lambda: words(job) == ["cancelled"])
        assert slow.asked == 1


async def test_a_pause_ends_the_fetch_and_the_job_waits(stage: Stage, slow: Slow) -> None:
    async with stage.run(slots=1) as node:
        job = await waits_for_its_input(stage, slow, "digest")
        job.pause()
        await until(lambda: not slow.under_way and not node.worker.runs)
        assert job.status == "paused"


@pytest.mark.parametrize("task", ["digest", "inline_digest"])
async def test_a_node_ends_within_its_grace_and_gives_the_job_back(stage: Stage, slow: Slow, task: str) -> None:
    async with asyncio.timeout(20):
        async with stage.run(grace=0.2):
            job = await waits_for_its_input(stage, slow, task)
    assert not slow.under_way
    assert (job.status, job.row.attempt, words(job)) == ("queued", 0, ["released"])
