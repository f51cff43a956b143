"""Pausing, resuming, cancelling, deleting and retrying, while jobs wait, begin, run and end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from p2pqueue import File, Job, JobCancelled, NoSuchJob, WrongState
from p2pqueue.workers.children.protocol import FileGrant
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.inputs import Inputs
from tests.integration.node.stage import Stage, said, status, until, words

NAP: dict[str, Any] = {"seconds": 0.02}
TASKS: dict[str, dict[str, Any]] = {"echo": {"value": 1}, "nap": NAP, "inline_echo": {"value": 1}, "inline_nap": NAP}
KINDS = pytest.mark.parametrize("kind", ["", "inline_"], ids=["child", "inline"])


async def began(job: Job[object], note: str) -> None:
    """Waits until the handler is at work."""
    await until(lambda: said(note))


@KINDS
async def test_a_running_job_that_is_paused_goes_on_from_its_checkpoint(stage: Stage, kind: str) -> None:
    note = stage.note()
    async with stage.run():
        job = stage.enqueue(f"{kind}climb", steps=8, pause=0.1, note=note)
        await until(lambda: len(said(note)) >= 3)
        job.pause()
        await until(lambda: words(job) == ["released"])
        steps = len(said(note))
        assert (job.status, job.row.attempt, job.row.state_status) == ("paused", 0, "queued")
        await asyncio.sleep(0.3)
        assert len(said(note)) == steps < 8, "nothing runs while it is paused"
        job.resume()
        done = await job.aresult(20)
        assert done == list(range(done[0], 8))
        assert done[0] in (steps, steps - 1), "the last step may have been stopped before its checkpoint"
        assert words(job) == ["released", "succeeded"]
        assert [attempt.number for attempt in job.attempts] == [1, 1], "the attempt was given back"


async def test_a_job_that_cancels_itself_has_had_the_attempt_that_did(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PQUEUE_HOME", str(stage.home.path))
    async with stage.run():
        job = stage.enqueue("inline_give_up")
        await until(lambda: words(job) == ["cancelled"])
        assert (job.status, job.row.attempt) == ("cancelled", 1)
        assert [attempt.number for attempt in job.attempts] == [1]


@KINDS
async def test_the_progress_of_a_job_that_goes_on_from_its_checkpoint_does_not_fall_back_to_nothing(stage: Stage, kind: str) -> None:
    async with stage.run():
        job = stage.enqueue(f"{kind}climb", steps=200, pause=0.05, note=stage.note())
        await until(lambda: job.row.progress > 0)
        job.pause()
        await until(lambda: words(job) == ["released"])
        job.resume()
        await until(lambda: job.status == "running")
        assert job.row.progress > 0
        job.cancel()


async def test_a_queued_job_that_is_paused_is_passed_over(stage: Stage) -> None:
    paused = stage.enqueue("echo", value="paused")
    paused.pause()
    async with stage.run():
        assert await stage.result("echo", value="other") == "other"
        assert (paused.status, words(paused)) == ("paused", [])
        paused.resume()
        assert await paused.aresult(20) == "paused"


@KINDS
async def test_a_running_job_that_is_cancelled_or_deleted_stops_at_once(stage: Stage, kind: str) -> None:
    note, other = stage.note(), stage.note("other")
    async with stage.run() as node:
        job = stage.enqueue(f"{kind}nap", seconds=30, note=note)
        await began(job, note)
        job.cancel()
        took = await until(lambda: not node.worker.runs)
        assert took < 3
        assert job.status == "cancelled"
        await until(lambda: words(job) == ["cancelled"])
        with pytest.raises(JobCancelled):
            await job.aresult(1)
        job.delete()
        job = stage.enqueue(f"{kind}nap", seconds=30, note=other)
        await began(job, other)
        job.delete()
        await until(lambda: not node.worker.runs)
        with pytest.raises(NoSuchJob):
            _ = job.row
        assert await stage.result(f"{kind}echo", value=1) == 1
    assert "ended" not in [*said(note), *said(other)]
    assert stage.queue.counts() == dict.fromkeys(stage.queue.counts(), 0) | {"succeeded": 1}


async def test_a_stop_that_is_swallowed_ends_nothing_twice(stage: Stage) -> None:
    note = stage.note()
    async with stage.run() as node:
        job = stage.enqueue("inline_stubborn", note=note)
        await began(job, note)
        job.cancel()
        await until(lambda: not node.worker.runs and words(job) == ["succeeded"])
        assert (job.status, job.row.result_id) == ("cancelled", None)
        paused = stage.enqueue("inline_stubborn", note=stage.note("other"))
        await began(paused, stage.note("other"))
        paused.pause()
        assert await paused.aresult(20) == "all the same", "what ended well has ended well"


async def test_a_job_that_is_retried_while_its_handler_still_ends_runs_once_more(stage: Stage) -> None:
    note = stage.note()
    async with stage.run() as node:
        job = stage.enqueue("nap", seconds=0.6, note=note)
        await began(job, note)
        job.cancel()
        job.retry()
        assert await job.aresult(20) == 0.6
        assert [word for word in said(note) if word.startswith("began")] == ["began 1", "began 1"]
        await until(lambda: not node.worker.runs)
        assert words(job)[1:] == ["succeeded"]
        assert words(job)[0] in ("lost", "cancelled")
        assert stage.queue.counts()["succeeded"] == 1


async def test_pausing_and_resuming_in_haste_loses_nothing(stage: Stage) -> None:
    note = stage.note()
    async with stage.run():
        job = stage.enqueue("inline_climb", steps=20, pause=0.03, note=note)
        for _ in range(6):
            await asyncio.sleep(0.08)
            try:
                job.pause()
                job.resume()
            except WrongState:
                break
        await job.aresult(20)
        steps = [int(line.split()[1]) for line in said(note)]
        assert sorted(set(steps)) == list(range(20))
        assert set(words(job)[:-1]) <= {"released"}


async def test_a_failed_job_that_is_retried_has_all_its_attempts_again(stage: Stage) -> None:
    async with stage.run():
        job = stage.enqueue("fail")
        await status(job, "failed")
        assert words(job) == ["failed"] * 3
        job.retry()
        await status(job, "failed")
        assert words(job) == ["failed"] * 6
        assert [attempt.number for attempt in job.attempts] == [1, 2, 3, 1, 2, 3]


async def test_a_cancel_at_any_moment_ends_the_job_for_good_or_is_refused(stage: Stage) -> None:
    """From before the claim to after the end: never cancelled for one and succeeded for another."""
    seed = time.time_ns()
    print(f"seed {seed}")
    rng = random.Random(seed)
    met: set[str] = set()
    async with stage.run(slots=4) as node:
        for task in TASKS:
            await stage.result(task, **TASKS[task])  # warm

        async def one(task: str) -> None:
            job = await stage.queue.aenqueue(task, TASKS[task])
            await asyncio.sleep(rng.uniform(0, 0.08))
            try:
                await job.acancel()
            except WrongState as refused:
                assert "has already succeeded" in str(refused)
                assert job.status == "succeeded"
                met.add("succeeded")
                return
            assert job.status == "cancelled"
            met.add("cancelled")
            await until(lambda: job.id not in node.worker.runs)
            cancelled.append(job)

        cancelled: list[Job[object]] = []
        for _ in range(40):
            await asyncio.gather(*map(one, TASKS))
        await until(lambda: node.worker.idle)
        for task in TASKS:
            assert await stage.result(task, **TASKS[task]) is not None
    for job in cancelled:
        assert (job.status, job.row.result_id) == ("cancelled", None)
        assert set(words(job)) <= {"cancelled", "succeeded"}, "a run that was ready in the last moment is kept, its job is not"
        assert len(words(job)) <= 1
    assert stage.queue.counts()["running"] == 0
    assert "cancelled" in met


@KINDS
async def test_a_job_that_is_cancelled_while_its_file_is_found_never_begins(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    found, go = asyncio.Event(), asyncio.Event()
    grants = Inputs.grants

    async def slow(self: Inputs, job: ClaimedJob, tell: Callable[[str], None]) -> dict[str, FileGrant]:
        granted = await grants(self, job, tell)
        found.set()
        await go.wait()
        return granted

    note, path = stage.note(), stage.folder / "file.txt"
    path.write_text("words")
    async with stage.run() as node:
        with monkeypatch.context() as patch:
            patch.setattr(Inputs, "grants", slow)
            for verb, then in (("pause", "paused"), ("cancel", "cancelled")):
                found.clear()
                go.clear()
                job = stage.enqueue(f"{kind}open_file", file=File(path), note=note)
                await found.wait()
                getattr(job, verb)()
                await until(lambda job=job: job.id not in node.worker.runs)  # type: ignore[misc]
                go.set()
                await until(lambda: node.worker.idle)
                assert (job.status, said(note)) == (then, [])
        assert await stage.result(f"{kind}open_file", file=File(path), note=note) == 5
    assert said(note) == ["began"]
