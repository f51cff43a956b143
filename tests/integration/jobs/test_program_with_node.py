"""A program that enqueues, runs its own node, watches and takes the results: with real worker processes."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from p2pqueue import File, Job, JobFailed
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from p2pqueue.jobs.begun import kept
from tests.integration.jobs import app


@pytest_asyncio.fixture
async def node(home: Home, identity: Identity, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A running node of the application, in this program's loop."""
    monkeypatch.setenv("P2PQUEUE_HOME", str(home.path))
    monkeypatch.chdir(Path(__file__).parents[3])
    async with app.queue.node(slots=2):
        yield
    await app.queue.aclose()


class Bomb:
    def __reduce__(self) -> Any:
        return (print, ("a pickle was opened",))


VALUES: list[Any] = [
    None, True, -(2**63), 2**64 - 1, 0.1, float("inf"), "ü\0", b"\xff" * 65_000, "x" * 65_000, [[[]]],
    {"z": 1, "a": {2: b"two", b"k": []}}, datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=UTC),
    pickle.dumps(Bomb()), "os.system", "!!python/object/apply:os.system ['true']",
]  # fmt: skip


@pytest.mark.usefixtures("node")
async def test_arguments_and_results_are_the_same_on_the_worker(capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [task.enqueue(value) for value in VALUES for task in (app.echo, app.echo_inline)]
    results = await asyncio.gather(*(job.aresult(50) for job in jobs))
    for number, value in enumerate(VALUES):
        for result in results[2 * number : 2 * number + 2]:
            assert (result, type(result), repr(result)) == (value, type(value), repr(value))
    assert "a pickle was opened" not in capfd.readouterr().out


@pytest.mark.usefixtures("node")
async def test_progress_is_seen_while_it_happens_and_files_go_in_and_out(tmp_path: Path) -> None:
    job = await app.climb.aenqueue(10)
    seen = [(time.monotonic(), step) async for step in job.watch()]
    assert await job == 10
    climbed = [step.fraction for _, step in seen]
    assert climbed == sorted(climbed)
    assert len({step.phase for _, step in seen if step.phase is not None and step.phase.startswith("step")}) >= 5
    assert seen[-1][1].status == "succeeded"

    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    result = await app.shout.enqueue(File(tmp_path / "a.txt"), again=File(tmp_path / "b.txt"))
    assert result["count"] == 2
    assert [file.name for file in result["files"]] == ["0-a.txt", "1-b.txt"]
    assert [await asyncio.to_thread(file.bytes) for file in result["files"]] == [b"A.TXT", b"B.TXT"]
    alone = await app.shout.enqueue(File(tmp_path / "a.txt"))
    assert (await asyncio.to_thread(alone["files"][0].save, tmp_path / "out.txt")).read_text() == "A.TXT"


async def first_failure(job: Job[None]) -> float:
    """Seconds from the first failure of a job to its next attempt."""
    while True:
        row = await job.arow()
        if row.retry_at is not None:
            ended = job.attempts[0].ended_at
            assert ended is not None
            return row.retry_at / 1000 - ended.timestamp()
        await asyncio.sleep(0.05)


@pytest.mark.usefixtures("node")
async def test_jobs_that_fail_together_come_back_spread_out_and_fresh_ones_go_on() -> None:
    jobs = app.flaky.enqueue_many([()] * 40)
    async with asyncio.timeout(50):
        waits = [await first_failure(job) for job in jobs]
    assert all(-0.1 <= wait <= 1000.1 for wait in waits)
    quarters = [sum(250 * k <= wait < 250 * (k + 1) for wait in waits) for k in range(4)]
    assert max(quarters) < 30, quarters
    assert await app.echo.enqueue("fresh").aresult(20) == "fresh"
    with pytest.raises(JobFailed, match="ValueError: no outage"):
        await app.picky.enqueue().aresult(20)
    assert len(app.queue.jobs(task="picky")[0].attempts) == 1


@pytest.mark.usefixtures("node")
async def test_a_job_of_the_program_is_claimed_in_the_commit_that_enqueues_it() -> None:
    def read(connection: sqlite3.Connection) -> tuple[int, list[str]]:
        (commits,) = connection.execute("SELECT count(*) FROM commits").fetchone()
        return commits, [claim.job_id for claim in kept(connection)]

    job = await app.echo_inline.aenqueue("the node is at work")
    assert await job.aresult(20) == "the node is at work"
    before, _ = app.queue.access.read(read)
    job = await app.wait_inline.aenqueue(0.04)
    after, begun = app.queue.access.read(read)
    assert (after - before, begun) == (1, [job.id])
    await job.aresult(20)
    assert [attempt.status for attempt in job.attempts] == ["succeeded"]
