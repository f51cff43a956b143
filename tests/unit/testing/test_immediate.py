"""Does a job run at once in a test, by the same path as in life?"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from p2pqueue import ArgumentError, Backoff, File, JobCancelled, JobFailed, Queue, ResultTimeout, Retry, current_job, testing
from p2pqueue.errors import MisuseError
from p2pqueue.home import HOME_VARIABLE
from p2pqueue.testing import Device

queue = Queue("tested")
ran: list[Any] = []


@queue.task
def double(n: int) -> int:
    ran.append(n)
    return 2 * n


@queue.task(max_attempts=3, backoff=Backoff(10, factor=3))
def flaky(good_at: int) -> int:
    job = current_job()
    before = job.resume_from or 0
    job.checkpoint(before + 1)
    print("try", job.attempt)
    if job.attempt < good_at:
        raise ConnectionError("the line is dead")
    return before


@queue.task(max_attempts=3)
def later() -> int:
    if current_job().attempt == 1:
        raise Retry("not yet", delay=60)
    return current_job().attempt


@queue.task(max_attempts=1)
def broken() -> None:
    print("on the way")
    raise ValueError("boom")


@queue.task(max_attempts=1)
def odd_result() -> Any:
    return object()


@queue.task
def copy(source: File) -> File:
    target = current_job().workdir / "copy.txt"
    target.write_text(source.path.read_text() + "!")
    return File(target)


@queue.task
def chain(n: int) -> None:
    ran.append(f"begins {n}")
    if n:
        current_job().enqueue(chain, n - 1)
    double.enqueue(n)
    ran.append(f"ends {n}")


@queue.task
async def gentle(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


@queue.task(inline=True)
async def inline(n: int) -> int:
    current_job().checkpoint(n)
    current_job().set_progress(0.5, "half")
    await double.aenqueue(n)
    return n + 1


@queue.task(max_attempts=1)
async def cancels_itself() -> None:
    await queue.acancel(current_job().id)
    await asyncio.sleep(30)


@queue.task(max_attempts=1, timeout=0.05)
async def waits_for_ever() -> None:
    await asyncio.sleep(30)


@queue.task(inline=True, max_attempts=1)
async def cancels_itself_inline() -> None:
    await queue.acancel(current_job().id)
    await asyncio.sleep(30)


@pytest.fixture
def device() -> Iterator[Device]:
    ran.clear()
    with testing.immediate(queue) as device:
        yield device


def test_a_job_has_run_when_enqueue_returns(device: Device) -> None:
    job = double.enqueue(4)
    assert ran == [4]
    assert (job.status, job.result(), job.device) == ("succeeded", 8, "test")
    assert [attempt.status for attempt in job.attempts] == ["succeeded"]


def test_the_handler_runs_in_the_thread_of_the_test(device: Device) -> None:
    @queue.task
    def thread() -> str:
        return f"{threading.get_ident()} {os.getpid()}"

    try:
        assert thread.enqueue().result() == f"{threading.get_ident()} {os.getpid()}"
    finally:
        del queue.tasks["thread"]


def test_an_argument_that_can_not_be_carried_is_refused(device: Device) -> None:
    with pytest.raises(ArgumentError):
        double.enqueue(object())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        queue.enqueue("double", {"m": 1})
    assert ran == []


def test_arguments_come_as_they_would_through_the_wire(device: Device) -> None:
    @queue.task
    def kind(value: Any) -> str:
        return type(value).__name__

    try:
        assert kind.enqueue((1, 2)).result() == "list"
    finally:
        del queue.tasks["kind"]


def test_a_result_that_can_not_be_carried_fails_the_job(device: Device) -> None:
    with pytest.raises(JobFailed, match="ArgumentError"):
        odd_result.enqueue().result()


def test_a_failure_is_kept_with_its_traceback_and_the_end_of_its_log(device: Device) -> None:
    job = broken.enqueue()
    (attempt,) = job.attempts
    assert (job.status, job.error) == ("failed", "ValueError: boom")
    assert attempt.traceback is not None
    assert 'raise ValueError("boom")' in attempt.traceback
    assert "stage.py" not in attempt.traceback
    assert attempt.log_tail == "on the way\n"
    with pytest.raises(JobFailed, match="boom"):
        job.result()


def test_a_retry_comes_due_by_the_clock_of_the_test_and_goes_on_from_its_checkpoint(device: Device) -> None:
    job = flaky.enqueue(3)
    assert (job.status, job.error) == ("queued", "ConnectionError: the line is dead")
    device.clock.advance(9.9)
    assert len(job.attempts) == 1
    device.clock.advance(0.1)
    assert len(job.attempts) == 2
    device.clock.advance(30)
    assert job.result() == 2
    began = [attempt.started_at for attempt in job.attempts]
    assert [(two - one).total_seconds() for one, two in pairwise(began)] == [10, 30]


def test_one_long_step_of_the_clock_runs_all_attempts_at_their_times(device: Device) -> None:
    job = flaky.enqueue(9)
    device.clock.advance(3600)
    assert [attempt.status for attempt in job.attempts] == ["failed"] * 3
    assert job.finished_at is not None
    assert (job.finished_at - job.created_at).total_seconds() == 40


def test_a_handler_says_when_it_is_tried_again(device: Device) -> None:
    job = later.enqueue()
    device.clock.advance(59)
    assert job.status == "queued"
    device.clock.advance(1)
    assert job.result() == 2


def test_who_waits_for_a_job_that_has_to_wait_is_told_so_at_once(device: Device) -> None:
    job = double.options(delay=60).enqueue(1)
    with pytest.raises(ResultTimeout, match="advance the clock"):
        job.result()
    device.clock.advance(60)
    assert job.result() == 2
    assert [step.status for step in job.watch()] == ["succeeded"]


def test_delayed_jobs_run_in_the_order_of_their_times(device: Device) -> None:
    double.options(delay=20).enqueue(2)
    double.options(run_at=device.clock.now + timedelta(seconds=15)).enqueue(1)
    double.options(delay=10).enqueue(0)
    device.clock.advance(timedelta(minutes=1))
    assert ran == [0, 1, 2]


def test_files_go_in_and_come_out(device: Device, tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("hello")
    made = copy.enqueue(File(source)).result()
    assert made.path.read_text() == "hello!"
    assert source.read_text() == "hello"


def test_follow_ups_run_after_the_job_that_made_them_and_in_order(device: Device) -> None:
    chain.enqueue(1)
    assert ran == ["begins 1", "ends 1", "begins 0", "ends 0", 1, 0]
    assert {job.status for job in queue.jobs()} == {"succeeded"}


def test_a_unique_key_makes_one_job_of_two(device: Device) -> None:
    one = double.options(unique_key="k", delay=5).enqueue(1)
    assert double.options(unique_key="k", delay=5).enqueue(2) == one
    device.clock.advance(5)
    assert ran == [1]


def test_coroutines_run_and_so_do_inline_tasks(device: Device) -> None:
    assert gentle.enqueue(1).result() == 2
    assert inline.enqueue(3).result() == 4
    assert ran == [3]


async def test_a_test_that_is_a_coroutine_can_enqueue_in_both_ways(device: Device) -> None:
    assert gentle.enqueue(1).result() == 2
    assert await (await gentle.aenqueue(2)) == 3
    assert await (await double.aenqueue(2)) == 4
    assert await (await inline.aenqueue(2)) == 3


def test_a_timeout_counts_by_the_clock_of_the_test(device: Device) -> None:
    @queue.task(timeout=60, max_attempts=1)
    def slow() -> None:
        device.clock.advance(60)

    try:
        job = slow.enqueue()
    finally:
        del queue.tasks["slow"]
    assert (job.status, job.error) == ("failed", "it took longer than its timeout of 60 s")


def test_a_handler_that_makes_no_progress_is_stopped_at_its_next_word(device: Device) -> None:
    @queue.task(stall_timeout=60, max_attempts=1)
    def stalls() -> None:
        device.clock.advance(59)
        current_job().set_progress(0.1)
        device.clock.advance(61)
        current_job().set_progress(0.2)
        ran.append("went on")

    try:
        job = stalls.enqueue()
    finally:
        del queue.tasks["stalls"]
    assert (job.status, job.error, ran) == ("failed", "it made no progress for 60 s", [])


def test_a_handler_that_awaits_is_stopped_by_its_timeout_and_by_a_cancel(device: Device) -> None:
    began = time.monotonic()
    assert waits_for_ever.enqueue().error == "it took longer than its timeout of 0.05 s"
    for task in (cancels_itself, cancels_itself_inline):
        with pytest.raises(JobCancelled):
            task.enqueue().result()
    assert time.monotonic() - began < 25


def test_a_handler_that_awaits_without_a_word_is_stopped(device: Device) -> None:
    @queue.task(stall_timeout=0.05, max_attempts=1)
    async def silent() -> None:
        current_job().set_progress(0.1)
        await asyncio.sleep(30)

    try:
        assert silent.enqueue().error == "it made no progress for 0.05 s"
    finally:
        del queue.tasks["silent"]


def test_jobs_of_several_threads_run_each_once(device: Device) -> None:
    def enqueue(first: int) -> None:
        for n in range(first, first + 10):
            double.enqueue(n)

    threads = [threading.Thread(target=enqueue, args=(first,)) for first in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ran) == list(range(30))
    assert {job.status for job in queue.jobs()} == {"succeeded"}


def test_a_clock_begins_where_the_test_says_and_goes_forward_alone() -> None:
    with testing.immediate(queue, clock=testing.Clock(datetime(2030, 1, 1, tzinfo=UTC))) as device:
        assert double.enqueue(1).created_at == datetime(2030, 1, 1, tzinfo=UTC)
        with pytest.raises(MisuseError, match="forward"):
            device.clock.advance(-1)
    with pytest.raises(MisuseError, match="time zone"):
        testing.Clock(datetime(2030, 1, 1))


def test_a_running_job_shows_its_progress(device: Device) -> None:
    seen: list[Any] = []

    @queue.task
    def looks() -> None:
        job = current_job()
        job.set_progress(0.25, "a quarter")
        row = queue.get(job.id)
        seen.extend([row.status, row.progress, row.phase])

    try:
        assert looks.enqueue().status == "succeeded"
    finally:
        del queue.tasks["looks"]
    assert seen == ["running", 0.25, "a quarter"]


def test_what_ended_long_ago_is_dropped(device: Device) -> None:
    double.enqueue(1)
    device.clock.advance(6 * 86_400)
    assert len(queue.jobs()) == 1
    device.clock.advance(2 * 86_400)
    assert queue.jobs() == []


def test_a_task_that_needs_a_tag_waits_until_the_device_offers_it(device: Device) -> None:
    @queue.task(needs={"telescope"})
    def look() -> str:
        return "stars"

    try:
        job = look.enqueue()
        assert job.status == "queued"
        device.can(tags={"telescope"})
        assert job.result() == "stars"
    finally:
        del queue.tasks["look"]


def test_a_failed_job_can_be_retried_and_runs_at_once(device: Device) -> None:
    job = broken.enqueue()
    job.retry()
    assert [attempt.status for attempt in job.attempts] == ["failed", "failed"]


def test_many_jobs_run_each(device: Device) -> None:
    jobs = double.enqueue_many([(n,) for n in range(20)])
    assert [job.result() for job in jobs] == [2 * n for n in range(20)]


def test_an_interrupt_of_the_test_goes_through(device: Device) -> None:
    @queue.task
    def interrupted() -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted.enqueue()
    finally:
        del queue.tasks["interrupted"]
    assert double.enqueue(1).result() == 2


def test_nothing_is_written_to_the_home_of_the_user_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "own"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    with testing.immediate(queue) as device:
        assert double.enqueue(2).result() == 4
        assert str(tmp_path / "tmp") in str(device.access.home.path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["tmp"]


def test_afterwards_the_queue_is_what_it_was(tmp_path: Path) -> None:
    own = Queue("own", home=tmp_path)
    before = own.access
    with testing.immediate(own):
        assert own.access is not before
    assert own.access is before
