"""Do the devices of a test replicate, part and join as devices do?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue import Backoff, File, PayloadUnavailable, Queue, ResultTimeout, current_job, testing
from p2pqueue.errors import MisuseError
from p2pqueue.testing import Space

queue = Queue("spaced")


@queue.task
def double(n: int) -> int:
    return 2 * n


@queue.task(max_attempts=2, backoff=Backoff(30))
def second_time() -> int:
    if current_job().attempt == 1:
        raise ConnectionError("no line")
    return current_job().attempt


@queue.task
def twice(n: int) -> str:
    return current_job().enqueue(double, n)


@queue.task
def joined(first: File, second: File) -> File:
    target = current_job().workdir / "both.txt"
    target.write_text(first.path.read_text() + second.path.read_text())
    return File(target)


@pytest.fixture
def space() -> Iterator[Space]:
    with testing.space(queue) as space:
        yield space


def test_what_is_enqueued_while_apart_is_done_elsewhere_after(space: Space) -> None:
    a, b = space
    a.can(takes=False)
    space.cut()
    job = double.enqueue(4)
    assert job.status == "queued"
    with pytest.raises(ResultTimeout):
        job.result()
    space.join()
    assert (job.result(), job.device) == (8, "b")
    assert b.job(job).result() == 8


def test_while_joined_a_job_runs_on_whichever_is_able(space: Space) -> None:
    a, b = space
    a.can(tasks=["twice"])
    b.can(tasks=["double"])
    first = twice.enqueue(3)
    follow_up = a.job(first.result())
    assert (first.device, follow_up.device, follow_up.result()) == ("a", "b", 6)


def test_both_sides_work_while_apart_and_are_equal_after(space: Space) -> None:
    a, b = space
    space.cut()
    mine = double.enqueue(1)
    with b.here():
        theirs = double.enqueue(2)
        assert [job.id for job in queue.jobs()] == [theirs.id]
    space.join()
    assert a.job(theirs).device == "b"
    assert b.job(mine).device == "a"
    with b.here():
        assert {job.id for job in queue.jobs()} == {mine.id, theirs.id}


def test_a_cancel_from_elsewhere_counts_when_they_are_joined(space: Space) -> None:
    a, b = space
    for each in space:
        each.can(takes=False)
    job = double.enqueue(1)
    space.cut()
    b.job(job).cancel()
    assert job.status == "queued"
    space.join()
    a.can(takes=True)
    assert job.status == "cancelled"


def test_a_retry_may_run_on_another_device_at_its_time(space: Space) -> None:
    a, _ = space
    job = second_time.enqueue()
    a.can(takes=False)
    space.clock.advance(30)
    assert [attempt.device for attempt in job.attempts] == ["a", "b"]
    assert job.result() == 2


def test_one_of_three_is_parted_and_the_others_go_on() -> None:
    with testing.space(queue, devices=("laptop", "server", "phone")) as space:
        laptop, _, phone = space
        laptop.can(takes=False)
        phone.can(takes=False)
        space.cut(phone)
        job = double.enqueue(2)
        assert job.device == "server"
        with phone.here():
            assert queue.jobs() == []
        space.join(phone)
        assert phone.job(job).result() == 4


def test_no_queue_is_a_mistake_told_in_words() -> None:
    with pytest.raises(MisuseError, match=r"testing\.space"), testing.space():
        pass


def test_files_go_with_the_jobs_and_come_back_with_their_results(space: Space, tmp_path: Path) -> None:
    a, _ = space
    a.can(takes=False)
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    job = joined.enqueue(File(tmp_path / "one"), File(tmp_path / "two"))
    assert job.device == "b"
    space.cut()
    with pytest.raises(PayloadUnavailable, match="joined"):
        job.result().path.read_text()
    space.join()
    assert job.result().path.read_text() == "onetwo"


def test_a_job_waits_for_its_file_while_the_device_that_has_it_is_away(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("one")
    with testing.space(queue, devices=3) as space:
        a, b, c = space
        for each in space:
            each.can(takes=False)
        job = joined.enqueue(File(tmp_path / "one"), File(tmp_path / "one"))
        space.cut(a)
        c.can(takes=True)
        assert b.job(job).status == "queued"
        space.join(a)
        assert (job.status, job.device) == ("succeeded", "c")
        assert job.result().path.read_text() == "oneone"
