"""Which job comes when: priorities, times, storms of retries, and what waits because nobody can do it."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from p2pqueue import wire
from p2pqueue.jobs import rows
from p2pqueue.jobs.ledger import NewJob, enqueue_many
from p2pqueue.node import node as nodes
from p2pqueue.replica.writer import Writer
from p2pqueue.workers import turns
from tests.integration.node.stage import Stage, said, status, until


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "waiting"])
async def test_with_one_slot_the_urgent_go_first_and_then_the_oldest(stage: Stage, waits: bool) -> None:
    wanted = [(0, "a"), (5, "b"), (-3, "c"), (5, "d"), (0, "e"), (9, "f")]
    told = {"note": stage.note(), "waits": waits}
    jobs = [stage.enqueue("inline_tell", word=name, **told, options={"priority": priority}) for priority, name in wanted]
    async with stage.run(slots=1):
        await asyncio.gather(*(job.aresult(20) for job in jobs))
    assert "".join(said(stage.note())) == "fbdaec"


async def test_what_was_claimed_ahead_is_left_to_a_free_slot_when_a_handler_waits(stage: Stage) -> None:
    brief = [stage.enqueue("inline_tell", note=stage.note(), word="brief") for _ in range(40)]
    slow = [stage.enqueue("inline_nap", seconds=0.05, note=stage.note(f"slow-{number}")) for number in range(6)]
    async with stage.run(slots=2):
        await asyncio.gather(*(job.aresult(20) for job in (*brief, *slow)))
    assert len(said(stage.note())) == 40
    assert [said(stage.note(f"slow-{number}")) for number in range(6)] == [["began 1", "left False"]] * 6
    assert [len(job.attempts) for job in (*brief, *slow)] == [1] * 46


async def test_a_job_starts_at_its_time_and_not_before(stage: Stage) -> None:
    async with stage.run(slots=1):
        await stage.result("inline_echo")
        soon = stage.enqueue("inline_echo", value="soon", options={"delay": timedelta(seconds=0.6)})
        at = datetime.now(UTC) + timedelta(seconds=0.8)
        later = stage.enqueue("inline_echo", value="later", options={"run_at": at})
        assert await stage.result("inline_echo", value="now") == "now"
        assert (soon.status, later.status) == ("queued", "queued")
        assert await later.aresult(20) == "later"
        assert soon.status == "succeeded"
        for job in (soon, later):
            late = job.attempts[0].started_at.timestamp() - (job.row.run_at or 0) / 1000
            assert -0.002 <= late < 1


async def test_a_job_starts_at_its_time_by_a_clock_that_was_set_or_went_on_while_the_machine_slept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LOOK_AT_CLOCK", 0.2)
    async with stage.run(slots=1):
        job = stage.enqueue("inline_echo", value="late", options={"delay": timedelta(hours=1)})
        await asyncio.sleep(1)  # the node waits for it now, and its own changes wake nobody
        assert job.status == "queued"
        as_it_is, as_it_is_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: as_it_is() + 7200)
        monkeypatch.setattr(time, "time_ns", lambda: as_it_is_ns() + 7200 * 10**9)
        assert await job.aresult(10) == "late"


async def test_a_job_that_is_enqueued_for_before_wakes_the_node_that_waits_for_later(stage: Stage) -> None:
    async with stage.run(slots=1):
        far = stage.enqueue("inline_echo", options={"delay": 60})
        await asyncio.sleep(0.2)
        assert await stage.enqueue("inline_echo", value="near", options={"delay": 0.2}).aresult(10) == "near"
        assert far.status == "queued"


async def test_five_hundred_jobs_that_fail_together_come_back_spread_and_starve_nobody(stage: Stage) -> None:
    jobs = stage.queue.access.write(_enqueue_outages)
    async with stage.run(slots=16) as node:
        await until(lambda: _least_attempts(stage) >= 1, within=40)
        for number in range(3):
            began = time.monotonic()
            assert await stage.result("inline_echo", value=number) == number
            assert time.monotonic() - began < 5, "fresh jobs are not starved"
        node.hurry()
    waits = []
    for job_id in jobs:
        row, runs = stage.read(rows.get, job_id), stage.read(rows.runs_of, job_id)
        assert row is not None
        assert (row.status, row.error) == ("queued", "ConnectionError: the service is away")
        if row.retry_at is not None and runs[-1].ended_at is not None:
            wait, limit = (row.retry_at - runs[-1].ended_at) / 1000, min(4.0, 2.0 ** (runs[-1].attempt - 1))
            assert -0.5 <= wait <= limit + 0.1, f"after attempt {runs[-1].attempt}"  # it is written down a moment later
            waits.append(wait / limit)
    assert len(waits) > 250
    quarters = [sum(k / 4 <= wait < (k + 1) / 4 for wait in waits) for k in range(4)]
    assert min(quarters) > len(waits) / 12, quarters


def _enqueue_outages(writer: Writer) -> list[str]:
    new = NewJob(task="outage", args=wire.pack({}), queue="node-tests")
    return [each.id for each in enqueue_many(writer, [new] * 500)]


def _least_attempts(stage: Stage) -> int:
    query = "SELECT min(coalesce(attempt, 0)) FROM jobs WHERE task = 'outage'"
    least: int = stage.read(lambda connection: connection.execute(query).fetchone()[0])
    return least


async def test_a_job_of_an_unknown_task_waits_visibly_and_fails_after_its_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "TIDY_FIRST", 0.1)
    monkeypatch.setattr(nodes, "TIDY_EVERY", 0.1)
    job = stage.enqueue("nobody-has-this")
    old = stage.enqueue("nor-this")
    old.pause()
    async with stage.run(unknown_task_after=1.5):
        assert await stage.result("echo", value=1) == 1
        assert job.status == "queued"
        reason = stage.why(job)
        assert reason == "no running node here has the task 'nobody-has-this'"
        await status(job, "failed")
        assert job.error == "unknown task: no device has 'nobody-has-this'"
        assert old.status == "paused"
        assert time.time() - job.created_at.timestamp() >= 1.5


async def test_a_job_waits_for_a_node_with_the_tag_that_it_needs(stage: Stage) -> None:
    job = stage.enqueue("needy")
    async with stage.run():
        assert await stage.result("echo", value=1) == 1
        assert job.status == "queued"
        reason = stage.why(job)
        assert reason is not None
        assert reason.endswith("lacks a-tag-that-is-given")
    async with stage.run(tags=["a-tag-that-is-given"]):
        assert await job.aresult(20) == "had it"


async def test_a_program_that_is_installed_meanwhile_meets_a_need(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "TIDY_FIRST", 0.1)
    monkeypatch.setattr(nodes, "TIDY_EVERY", 0.1)
    monkeypatch.setenv("PATH", f"{stage.folder}{os.pathsep}{os.environ['PATH']}")
    job = stage.enqueue("needy")
    async with stage.run():
        assert await stage.result("echo", value=1) == 1
        assert job.status == "queued"
        program = stage.folder / "a-tag-that-is-given"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert await job.aresult(20) == "had it"


async def test_a_node_that_takes_no_jobs_leaves_them(stage: Stage) -> None:
    job = stage.enqueue("inline_echo", value=1)
    async with stage.run(work=False):
        await asyncio.sleep(0.5)
        assert job.status == "queued"
    async with stage.run():
        assert await job.aresult(20) == 1
