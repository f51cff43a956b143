"""First attempts end without a look at their rows: what others wrote there meanwhile counts none the less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from p2pqueue.jobs import ledger
from p2pqueue.jobs.job import JobState, Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.workers.claimed import ClaimedJob
from tests.unit.jobs.desk import Desk, new_job
from tests.unit.replica.kit import everything


def delete_and_make_anew(desk: Desk, job: ClaimedJob) -> None:
    desk.delete(job.job_id)
    desk.write(lambda writer: ledger.enqueue(writer, new_job(unique_key="one")))


def cancel_and_retry(desk: Desk, job: ClaimedJob) -> None:
    desk.cancel(job.job_id)
    desk.retry(job.job_id)


def take_elsewhere(desk: Desk, job: ClaimedJob) -> None:
    put(desk, job, JobState(0, "running", 1, 1, "them", "there", desk.clock.now))


def take_elsewhere_and_give_back(desk: Desk, job: ClaimedJob) -> None:
    put(desk, job, JobState(0, "queued", 0, 1))


def put(desk: Desk, job: ClaimedJob, state: JobState) -> None:
    desk.write(lambda writer: writer.put_many("jobs", [put_state(job.job_id, Transition(state))]))


MEANWHILE: dict[str, Callable[[Desk, ClaimedJob], Any]] = {
    "nothing": lambda desk, job: None,
    "cancelled": lambda desk, job: desk.cancel(job.job_id),
    "paused": lambda desk, job: desk.hold(job.job_id),
    "paused and resumed": lambda desk, job: (desk.hold(job.job_id), desk.resume(job.job_id)),
    "deleted": lambda desk, job: desk.delete(job.job_id),
    "made anew": delete_and_make_anew,
    "retried": cancel_and_retry,
    "taken elsewhere": take_elsewhere,
    "given back elsewhere": take_elsewhere_and_give_back,
    "written as running": lambda desk, job: desk.record(job),
    "with a checkpoint": lambda desk, job: desk.checkpoint(job, b"half"),
}


def ended(meanwhile: Callable[[Desk, ClaimedJob], Any], *, unwritten: bool) -> list[Any]:
    """All that stands in the rows after three jobs were claimed, something happened to the second, and all have ended."""
    desk = Desk()
    desk.enqueue(title="first")
    desk.enqueue(unique_key="one")
    desk.enqueue()
    jobs = desk.settle(slots=3)
    desk.wait(10)
    meanwhile(desk, jobs[1])
    desk.wait(10)
    desk.settle(*(desk.ending(job, result=b"\xc0", duration=0.5, unwritten=unwritten) for job in jobs))
    assert desk.counts() == desk.recount()
    rows = [desk.find(job.job_id) for job in jobs]
    runs = [[(run.status, run.attempt, run.error, run.ended_at, run.duration, run.result) for run in desk.runs(job.job_id)] for job in jobs]
    plain = [row and (row.status, row.attempt, row.claim, row.error, row.finished_at, bool(row.result_id)) for row in rows]
    return [plain, runs, desk.counts()]


@pytest.mark.parametrize("case", MEANWHILE)
def test_a_first_attempt_ends_as_if_its_row_had_been_read(case: str) -> None:
    assert ended(MEANWHILE[case], unwritten=True) == ended(MEANWHILE[case], unwritten=False)


@pytest.mark.parametrize("case", ["cancelled", "paused", "deleted", "taken elsewhere"])
def test_what_became_of_one_job_does_not_keep_the_others_of_its_transaction_from_ending(case: str) -> None:
    (first, _, third), _, _ = ended(MEANWHILE[case], unwritten=True)
    assert (first[0], third[0]) == ("succeeded", "succeeded")


def test_first_attempts_of_several_lives_end_together() -> None:
    desk = Desk()
    old = desk.write(lambda writer: ledger.enqueue(writer, new_job(unique_key="one"))).id
    desk.delete(old)
    desk.write(lambda writer: ledger.enqueue(writer, new_job(unique_key="one")))
    desk.enqueue()
    jobs = desk.settle(slots=2)
    assert sorted({job.holder.generation for job in jobs}) == [0, 1 << 16]
    desk.settle(*map(desk.ending, jobs))
    assert {desk.status(job.job_id) for job in jobs} == {"succeeded"}
    assert desk.counts() == desk.recount()


def test_the_end_of_a_first_attempt_is_passed_on_like_any_other() -> None:
    desk = Desk()
    desk.enqueue()
    (job,) = desk.settle(slots=1)
    desk.settle(desk.ending(job))
    writes = {(write.table, write.register): write for write in everything(desk.replica)}
    state, run = writes["jobs", "state"], writes["runs", "run"]
    assert (state.key, state.values[0], state.stamp.rank) == (job.job_id, "succeeded", 2)
    assert state.stamp.hlc < 0  # the first of two successes counts
    assert (run.key, run.values[0], run.values[6]) == (job.run_id(desk.replica.author), job.job_id, "succeeded")
    assert state.values[8] == run.key


@pytest.mark.parametrize("results", [(b"\x01", b"\x02", b"\x03"), (b"\xc0",) * 3])
def test_each_of_many_runs_keeps_its_own_result_and_duration(results: tuple[bytes, ...]) -> None:
    desk = Desk()
    for _ in results:
        desk.enqueue()
    jobs = desk.settle(slots=3)
    durations = [0.1, 1 / 3, 1.5e-5]
    desk.settle(*(desk.ending(job, result=result, duration=took) for job, result, took in zip(jobs, results, durations, strict=True)))
    runs = [run for job in jobs for run in desk.runs(job.job_id)]
    assert [(run.result, run.duration) for run in runs] == list(zip(results, durations, strict=True))
    assert [desk.row(job.job_id).result_id for job in jobs] == [run.id for run in runs]


def test_first_attempts_that_were_claimed_at_several_times_end_together() -> None:
    desk = Desk()
    desk.enqueue()
    early = desk.settle(slots=1)
    desk.wait(1000)
    desk.enqueue()
    late = desk.settle(slots=1, skip=frozenset({early[0].job_id}))
    desk.settle(*map(desk.ending, [*late, *early]))
    claimed = [desk.row(job.job_id).claimed_at for job in (*early, *late)]
    assert claimed == [early[0].claimed_at, early[0].claimed_at + 1000]


def test_ends_that_are_written_together_have_numbers_of_their_own() -> None:
    desk = Desk()
    for _ in range(30):
        desk.enqueue()
    jobs = desk.settle(slots=30)
    desk.settle(*map(desk.ending, jobs))
    writes = everything(desk.replica)
    numbers = sorted(write.seq for write in writes if write.stamp.author == desk.replica.author)
    assert len(numbers) == len(set(numbers))
    assert numbers[-60:] == list(range(numbers[-1] - 59, numbers[-1] + 1))
    ends = {(write.table, write.key) for write in writes if write.seq in numbers[-60:]}
    assert ends == {("jobs", job.job_id) for job in jobs} | {("runs", job.run_id(desk.replica.author)) for job in jobs}


def test_a_cancel_ends_the_attempt_that_is_at_work_though_its_row_does_not_tell_yet() -> None:
    desk = Desk()
    waiting, mine = desk.enqueue(), desk.enqueue(priority=1)
    (job,) = desk.settle(slots=1)
    for job_id in (waiting, mine):
        desk.cancel(job_id)
    row = desk.row(mine)
    assert (row.status, row.attempt, row.claim, row.worker_id, row.claimed_at) == ("cancelled", 1, 1, desk.me, job.claimed_at)
    assert (desk.row(waiting).status, desk.row(waiting).attempt, desk.row(waiting).worker_id) == ("cancelled", 0, None)
    desk.settle(desk.ending(job, "cancelled"))
    assert [(run.status, run.attempt) for run in desk.runs(mine)] == [("cancelled", 1)]
    assert desk.row(mine) == row
    desk.retry(mine)
    assert desk.row(mine).attempt == 0
    assert desk.counts() == desk.recount()


def test_an_attempt_that_was_given_back_is_not_counted_by_a_cancel() -> None:
    desk = Desk()
    job_id = desk.enqueue()
    (job,) = desk.settle(slots=1)
    desk.end(job, "released")
    desk.cancel(job_id)
    assert (desk.row(job_id).attempt, desk.run_words(job_id)) == (0, ["released"])
