"""Enqueueing, finding and acting, with no node running."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from p2pqueue import AmbiguousId, ArgumentError, ConfigError, Job, NoSuchJob, NotInitialised, Queue, WrongState
from p2pqueue.home import Home
from p2pqueue.jobs.arguments import decode
from p2pqueue.jobs.queue import find_application
from tests.unit.jobs.hand import Hand

module_queue = Queue("module")


def test_a_home_without_a_space_names_init(home: Home) -> None:
    queue = Queue(home=home.path)
    with pytest.raises(NotInitialised, match="`p2pqueue init`"):
        queue.enqueue("anything")
    with pytest.raises(NotInitialised):
        queue.jobs()


def test_the_home_is_found_when_it_is_first_used(queue: Queue, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Queue("studio")
    monkeypatch.setenv("P2PQUEUE_HOME", str(home.path))
    job = elsewhere.enqueue("double", {"n": 1})
    assert queue.get(job.id) == job
    elsewhere.close()


def test_a_job_is_there_when_enqueue_returns(queue: Queue) -> None:
    job = queue.tasks["double"].options(priority=5, title="Twice").enqueue(21, times=2)
    row = job.row
    assert (row.status, row.queue, row.task, row.title, row.priority) == ("queued", "studio", "double", "Twice", 5)
    assert (job.progress, job.phase, job.error, job.attempts, job.done) == (0, "Queued", None, [], False)
    assert abs(job.created_at - datetime.now(UTC)) < timedelta(seconds=30)


def test_what_the_task_says_is_left_to_the_worker(queue: Queue) -> None:
    row = queue.tasks["double"].enqueue(1).row
    assert (row.max_attempts, row.timeout, row.backoff, row.retry_on, row.needs) == (None, None, None, None, None)


def test_options_go_into_the_job(queue: Queue) -> None:
    row = queue.tasks["double"].options(max_attempts=7, timeout=timedelta(minutes=1)).enqueue(1).row
    assert (row.max_attempts, row.timeout) == (7, 60.0)


def test_the_owner_is_the_spaces_own(queue: Queue) -> None:
    assert queue.tasks["double"].enqueue(1).row.owner == queue.access.identity.owner


def test_a_task_known_here_is_enqueued_by_name_with_its_checks(queue: Queue, hand: Hand) -> None:
    job = queue.enqueue("double", {"n": 1}, priority=3)
    assert (job.row.priority, decode(hand.take_one().args)) == (3, {"n": 1})
    with pytest.raises(ArgumentError, match="has no parameter 'm'"):
        queue.enqueue("double", {"n": 1, "m": 2})


@pytest.mark.parametrize("task", ["double", "nobody_knows"])
@pytest.mark.parametrize("args", ["n", 1, [1], ""])
def test_arguments_that_are_no_map_make_no_job(queue: Queue, task: str, args: Any) -> None:
    with pytest.raises(ArgumentError, match="are a map"):
        queue.enqueue(task, args)
    assert queue.jobs() == []


def test_an_unknown_task_waits_and_is_logged(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="p2pqueue"):
        job = queue.enqueue("nobody_knows", {"x": 1})
    assert "no device has had the task 'nobody_knows'" in caplog.text
    assert job.status == "queued"


@pytest.mark.parametrize("name", ["", "\0", "\ud800", "n" * 256, 5])
def test_what_is_no_name_of_a_task_makes_no_job(queue: Queue, name: Any) -> None:
    with pytest.raises(ArgumentError, match="the name of a task"):
        queue.enqueue(name)
    assert queue.jobs() == []


FAR = datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))


@pytest.mark.parametrize("options", [{"run_at": FAR}, {"timeout": 2**70}, {"delay": 10**5000}])
def test_times_that_nobody_lives_to_see_make_no_job(queue: Queue, options: Any) -> None:
    with pytest.raises(ArgumentError):
        queue.tasks["double"].options(**options)


def test_an_argument_that_cant_be_carried_makes_no_job(queue: Queue) -> None:
    with pytest.raises(ArgumentError, match="argument 'n' is a set"):
        queue.tasks["double"].enqueue({1})
    assert queue.jobs() == []


def test_a_bulk_is_checked_before_anything_is_written(queue: Queue) -> None:
    with pytest.raises(ArgumentError, match="argument 'n' is a set"):
        queue.tasks["double"].enqueue_many([{"n": 1}, {"n": {2}}])
    assert queue.jobs() == []


def test_a_bulk_keeps_its_order(queue: Queue, hand: Hand) -> None:
    jobs = queue.tasks["double"].enqueue_many([*({"n": n} for n in range(1100)), (1100,)])
    assert len({job.id for job in jobs}) == 1101
    assert [job.job_id for job in hand.take(1101)] == [job.id for job in jobs]


def test_a_delayed_job_is_not_claimed_before_its_time(queue: Queue, hand: Hand) -> None:
    later = queue.tasks["double"].options(delay=3600).enqueue(1)
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    soon = queue.tasks["double"].options(run_at=due).enqueue(2)
    now = queue.tasks["double"].enqueue(3)
    assert [job.job_id for job in hand.take(3)] == [now.id]
    time.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()) + 0.01)
    assert [job.job_id for job in hand.take(3)] == [soon.id]
    assert later.status == "queued"


def test_a_higher_priority_goes_first(queue: Queue, hand: Hand) -> None:
    jobs = [queue.tasks["double"].options(priority=priority).enqueue(1) for priority in (0, 5, -1, 5)]
    assert [job.job_id for job in hand.take(4)] == [jobs[1].id, jobs[3].id, jobs[0].id, jobs[2].id]


def test_a_unique_key_whose_job_has_not_ended_gives_that_job(queue: Queue, hand: Hand) -> None:
    task = queue.tasks["double"].options(unique_key="clip@720")
    first = task.enqueue(1)
    assert task.enqueue(2) == first
    hand.succeed(hand.take_one())
    again = task.enqueue(3)
    assert again == first, "the id is the key's own"
    assert again.status == "queued", "a finished one opens a new life"
    assert decode(hand.take_one().args) == {"n": 3}


def test_jobs_are_listed_live_ones_first_then_the_newest(queue: Queue, hand: Hand) -> None:
    done, running, old, new = (queue.tasks["double"].enqueue(n) for n in range(4))
    hand.succeed(hand.take_one())
    hand.take_one()
    assert queue.jobs() == [new, old, running, done]
    assert queue.jobs(limit=2) == [new, old]
    assert queue.jobs(status="queued") == [new, old]
    assert queue.jobs(status="running", task=queue.tasks["double"]) == [running]
    assert queue.jobs(task="other") == []
    assert queue.jobs(since=60, device=queue.access.identity.label) == [running, done]
    assert queue.jobs(since=datetime.now(UTC)) == []
    assert queue.counts()["queued"] == 2


def test_a_queue_lists_its_own_jobs_only(queue: Queue, home: Home) -> None:
    other = Queue("other", home=home)
    job = other.enqueue("double", {"n": 1})
    assert queue.jobs() == []
    assert other.jobs() == [job]
    other.close()


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"status": "done"}, "there is no status 'done'"),
        ({"limit": -1}, "a limit is 0 or more"),
        ({"since": datetime(2026, 1, 1)}, "since needs a time zone"),
    ],
)
def test_a_question_that_cant_be_answered_is_refused(queue: Queue, question: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        queue.jobs(**question)  # type: ignore[arg-type]


def test_canceled_is_cancelled(queue: Queue) -> None:
    job = queue.tasks["double"].enqueue(1)
    job.cancel()
    assert queue.jobs(status="canceled") == [job]


def test_a_job_is_found_by_a_prefix_that_is_its_own(queue: Queue) -> None:
    first, second = queue.tasks["double"].enqueue_many([{"n": 1}, {"n": 2}])
    common = next(first.id[:end] for end in range(36, 0, -1) if second.id.startswith(first.id[:end]))
    assert queue.get(first.id[: len(common) + 1]) == first
    with pytest.raises(AmbiguousId):
        queue.get(common)
    with pytest.raises(NoSuchJob):
        queue.get("zzz")


def test_acting_by_id_is_acting_on_the_job(queue: Queue, hand: Hand) -> None:
    job = queue.tasks["double"].enqueue(1)
    queue.pause(job.id)
    assert job.status == "paused"
    assert hand.take() == []
    queue.resume(job.id)
    queue.cancel(job.id)
    assert job.status == "cancelled"
    assert queue.retry(job.id, fresh=True) == job
    assert job.status == "queued"
    queue.delete(job.id)
    with pytest.raises(NoSuchJob):
        queue.get(job.id)


async def test_every_verb_that_touches_the_disk_has_an_async_twin(queue: Queue, hand: Hand) -> None:
    job = await queue.tasks["double"].aenqueue(1)
    assert await queue.ajobs() == [job] == [await queue.aget(job.id)]
    await queue.apause(job.id)
    await job.aresume()
    await job.apause()
    await queue.aresume(job.id)
    assert (await job.arow()).status == "queued"
    await job.acancel()
    await (await job.aretry()).acancel()
    await queue.aretry(job.id)
    await queue.acancel(job.id)
    await queue.adelete(job.id)
    made = await queue.tasks["double"].aenqueue_many([{"n": n} for n in range(3)])
    assert await queue.ajobs(limit=None) == made[::-1]
    assert (await queue.aenqueue("double", {"n": 1})).status == "queued"
    await queue.aclose()


async def test_an_error_reaches_the_coroutine_that_made_it_alone(queue: Queue) -> None:
    done = queue.tasks["double"].enqueue(1)
    done.cancel()
    outcomes = await asyncio.gather(
        done.acancel(), *(queue.tasks["double"].aenqueue(n) for n in range(20)), done.apause(), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [WrongState, *[Job] * 20, WrongState]


async def test_a_cancelled_await_leaves_the_others_alone(queue: Queue) -> None:
    double = queue.tasks["double"]
    tasks = [asyncio.create_task(double.aenqueue(n)) for n in range(30)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(outcome, Job) for outcome in outcomes) >= 20
    assert all(outcome.status == "queued" for outcome in outcomes if isinstance(outcome, Job))


def test_many_threads_enqueue_at_once(queue: Queue) -> None:
    made: list[Job[int]] = []

    def produce() -> None:
        for n in range(20):
            made.append(queue.tasks["double"].enqueue(n))  # noqa: PERF401

    threads = [threading.Thread(target=produce) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job.id for job in made}) == 320 == queue.counts()["queued"]


def _produce(queue: Queue, numbers: range) -> None:
    for n in numbers:
        queue.tasks["double"].enqueue(n)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_queue_works_on_in_a_forked_child_and_in_its_parent(queue: Queue) -> None:
    queue.tasks["double"].enqueue(0)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_produce, args=(queue, range(10))) for _ in range(3)]
    for child in children:
        child.start()
    _produce(queue, range(10))
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert queue.counts()["queued"] == 41


def test_a_closed_queue_opens_again(queue: Queue) -> None:
    job = queue.tasks["double"].enqueue(1)
    queue.close()
    assert job.status == "queued"


def test_a_queue_of_a_module_is_found_by_worker_processes() -> None:
    assert find_application(module_queue) == f"{__name__}:module_queue"


def test_a_queue_of_no_module_says_so(queue: Queue) -> None:
    with pytest.raises(ConfigError, match="stands in no module"):
        find_application(queue)


def test_a_queue_may_be_a_block(home: Home, queue: Queue, tmp_path: Path) -> None:
    with Queue(home=str(home.path)) as other:
        assert other.counts()["queued"] == 0
