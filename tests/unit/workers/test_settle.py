"""What a worker's transactions claim, and what becomes of the attempts that they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from p2pqueue.jobs.job import JobState, Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.workers.claimed import ClaimedJob, How, is_suspect
from p2pqueue.workers.claiming.scan import SCAN_LIMIT
from p2pqueue.workers.settle import look_anew, settle
from tests.unit.jobs.desk import NOW, Desk, original, shared


@pytest.fixture
def desk() -> Desk:
    return Desk(tasks=("work", "other"))


def taken_by_another(desk: Desk, job: ClaimedJob) -> None:
    """Another device claims the job that this one holds, as a merge would show it."""
    row = desk.row(job.job_id)
    state = JobState(row.generation, "running", row.attempt + 1, row.claim + 1, "them", "there", desk.clock.now)
    desk.write(lambda writer: writer.put_many("jobs", [put_state(job.job_id, Transition(state))]))


# -- the order of claims --------------------------------------------------------------------------------------


def test_the_most_urgent_comes_first_then_the_longest_due_then_the_oldest(desk: Desk) -> None:
    plain = desk.enqueue()
    desk.wait(10)
    later = desk.enqueue(run_at=NOW + 20)
    due_before = desk.enqueue(run_at=NOW - 5000)
    urgent = desk.enqueue(priority=1)
    unimportant = desk.enqueue(priority=-1)
    most_urgent = desk.enqueue(priority=9, run_at=NOW + 20)
    young = desk.enqueue()
    desk.wait(1000)
    order = [most_urgent, urgent, plain, young, due_before, later, unimportant]
    assert [job.job_id for job in desk.claim(slots=7)] == order


def test_a_retry_waits_behind_what_came_due_before_it(desk: Desk) -> None:
    failed = desk.enqueue()
    desk.end(desk.claim_one(), "retry", retry_at=NOW + 50)
    before, after = desk.enqueue(run_at=NOW + 49), desk.enqueue(run_at=NOW + 51)
    desk.wait(100)
    assert [job.job_id for job in desk.claim(slots=3)] == [before, failed, after]


def test_no_more_is_claimed_than_there_are_slots(desk: Desk) -> None:
    ids = [desk.enqueue() for _ in range(5)]
    assert desk.claim(slots=0) == []
    assert [job.job_id for job in desk.claim(slots=2)] == ids[:2]
    assert [job.job_id for job in desk.claim(slots=9)] == ids[2:]
    assert desk.claim(slots=9) == []


def test_a_slot_that_an_ending_frees_is_filled_in_the_same_transaction(desk: Desk) -> None:
    first, second = desk.enqueue(), desk.enqueue()
    job = desk.claim_one()
    (next_job,) = desk.settle(desk.ending(job), slots=1)
    assert (desk.status(first), next_job.job_id) == ("succeeded", second)


def test_a_claim_carries_all_that_its_run_needs(desk: Desk) -> None:
    desk.enqueue(
        args=b"\x81\xa1a\x01", title="clip", queue="studio", max_attempts=7, timeout=60.0, stall_timeout=9.5, backoff='{"first": 1}',
        retry_on='["OSError"]', files=(shared(),), manifest="p2pq1-shared", options={"parent": "x"},
    )  # fmt: skip
    job = desk.claim_one()
    assert (job.task, job.queue, job.title, job.args, job.attempt, job.max_attempts) == ("work", "studio", "clip", b"\x81\xa1a\x01", 1, 7)
    assert (job.timeout, job.stall_timeout, job.backoff, job.retry_on) == (60.0, 9.5, '{"first": 1}', '["OSError"]')
    assert (job.input_manifest, job.has_input, job.checkpoint, job.claimed_at) == ("p2pq1-shared", True, None, NOW)
    assert (job.holder.generation, job.holder.claim, job.holder.worker_id) == (0, 1, desk.me)


# -- what is not claimed --------------------------------------------------------------------------------------


def test_only_what_this_worker_can_do_is_claimed() -> None:
    desk = Desk(tasks=("work",), ability={"tags": frozenset({"gpu"}), "max_input": 100})
    unknown = desk.enqueue("unknown")
    needy = desk.enqueue(needs='["gpu", "cuda"]')
    large = desk.enqueue(files=(original(size=101),))
    program = desk.enqueue("exec")
    away = desk.enqueue(files=(original(size=10),))
    desk.write(lambda writer: writer.connection.execute("DELETE FROM inputs WHERE job_id = ?", (away,)))
    fit = [desk.enqueue(needs='["gpu"]'), desk.enqueue(files=(original(size=100),)), desk.enqueue()]
    assert [job.job_id for job in desk.claim(slots=9)] == fit
    assert {desk.status(job_id) for job_id in (unknown, needy, large, program, away)} == {"queued"}


def test_what_a_worker_leaves_alone_for_now_is_passed_over(desk: Desk) -> None:
    first, second = desk.enqueue(), desk.enqueue()
    (job,) = desk.settle(slots=2, skip=frozenset({first}))
    assert job.job_id == second


def test_a_paused_job_is_not_claimed_until_it_is_resumed(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.hold(job_id)
    assert desk.claim() == []
    desk.resume(job_id)
    assert desk.claim_one().job_id == job_id


@pytest.mark.parametrize("end", ["cancel", "delete"])
def test_what_has_ended_is_not_claimed(desk: Desk, end: str) -> None:
    getattr(desk, end)(desk.enqueue())
    assert desk.claim() == []


@pytest.mark.parametrize("kind", ["unknown task", "lacks a tag"])
def test_thousands_of_jobs_that_nobody_here_can_do_never_starve_one_that_can_be_done(desk: Desk, kind: str) -> None:
    for _ in range(SCAN_LIMIT * 2 + 10):
        desk.enqueue("unknown" if kind == "unknown task" else "work", priority=5, needs=None if kind == "unknown task" else '["gpu"]')
    fit = [desk.enqueue() for _ in range(3)]
    assert [job.job_id for job in desk.claim(slots=2)] == fit[:2]
    assert [job.job_id for job in desk.claim(slots=2)] == fit[2:]
    assert desk.counts()["queued"] == SCAN_LIMIT * 2 + 10


def test_what_one_node_could_not_do_the_next_may() -> None:
    desk = Desk(tasks=("work",))
    job_id = desk.enqueue("other")
    assert desk.claim() == desk.claim() == []
    desk.tasks = ("work", "other")
    desk.recover()  # a node's start
    assert desk.claim_one().job_id == job_id


def test_what_a_job_lacked_may_have_come_meanwhile() -> None:
    desk = Desk(tasks=("work",))
    job_id, unknown = desk.enqueue(needs='["ffmpeg"]'), desk.enqueue("unknown")
    assert desk.claim() == []
    desk.ability["programs"] = {"ffmpeg"}
    assert desk.claim() == [], "nobody looks at each claim"
    assert desk.write(lambda writer: look_anew(writer, desk.tasks)) == 1
    assert desk.claim_one().job_id == job_id
    assert desk.status(unknown) == "queued"


def test_a_job_that_was_set_aside_may_be_paused_resumed_and_cancelled() -> None:
    desk = Desk(tasks=("work",))
    job_id = desk.enqueue("other")
    assert desk.claim() == []
    desk.hold(job_id)
    desk.resume(job_id)
    assert desk.claim() == []
    assert desk.status(job_id) == "queued"
    desk.cancel(job_id)
    desk.tasks = ("other",)
    desk.recover()
    assert desk.claim() == []


# -- when a job is due ----------------------------------------------------------------------------------------


def test_a_job_is_claimed_at_its_time_and_not_before(desk: Desk) -> None:
    job_id = desk.enqueue(run_at=NOW + 1000)
    assert desk.claim() == []
    assert desk.next_due() == NOW + 1000
    desk.wait(999)
    assert desk.claim() == []
    desk.wait(1)
    assert desk.claim_one().job_id == job_id
    assert desk.next_due() is None


def test_a_retry_is_claimed_at_its_time_and_not_before(desk: Desk) -> None:
    desk.enqueue()
    desk.end(desk.claim_one(), "retry", retry_at=NOW + 1000)
    assert desk.claim() == []
    assert desk.next_due() == NOW + 1000
    desk.wait(1000)
    job = desk.claim_one()
    assert job.attempt == 2
    assert desk.row(job.job_id).retry_at is None


def test_the_next_due_job_is_the_one_to_wait_for(desk: Desk) -> None:
    for delay in (300, 100, 200):
        desk.enqueue(run_at=NOW + delay)
    cancelled = desk.enqueue(run_at=NOW + 50)
    desk.cancel(cancelled)
    desk.hold(desk.enqueue(run_at=NOW + 60))
    assert desk.next_due() == NOW + 100


def test_a_new_priority_leaves_a_job_where_its_time_puts_it(desk: Desk) -> None:
    job_id = desk.enqueue(run_at=NOW + 1000)
    desk.write(lambda writer: writer.put("jobs", job_id, "tune", {"title": None, "priority": 9}))
    assert desk.claim() == []
    assert desk.next_due() == NOW + 1000


def test_a_clock_that_was_set_back_makes_no_job_run_early_nor_forgets_it(desk: Desk) -> None:
    desk.enqueue()
    desk.end(desk.claim_one(), "retry", retry_at=NOW)
    desk.wait(-3_600_000)  # the hybrid clock stays where it was
    later = desk.enqueue(run_at=desk.clock.now + 10_000)
    assert desk.claim(slots=2) == []
    assert desk.next_due() == desk.clock.now + 10_000
    desk.wait(10_000)
    assert desk.claim_one().job_id == later
    assert desk.next_due() == NOW


# -- attempts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_job", "of_task", "limit"),
    [
        (None, None, 3),  # the default
        (None, 5, 5),
        (2, 5, 2),  # the job's own goes before the task's
        (1, None, 1),
    ],
)
def test_attempts_end_at_the_limit_of_the_job_its_task_or_the_default(of_job: int | None, of_task: int | None, limit: int) -> None:
    desk = Desk(limits={} if of_task is None else {"work": of_task})
    job_id = desk.enqueue(max_attempts=of_job)
    for attempt in range(1, limit + 1):
        job = desk.claim_one()
        assert (job.attempt, job.max_attempts) == (attempt, limit)
        desk.end(job, "retry", error=f"boom {attempt}")
    row = desk.row(job_id)
    assert (row.status, row.attempt, row.error) == ("failed", limit, f"boom {limit}")
    assert desk.run_words(job_id) == ["failed"] * limit
    assert row.result_id == desk.runs(job_id)[-1].id


def test_a_job_without_attempts_left_is_failed_by_whoever_sees_it(desk: Desk) -> None:
    job_id = desk.enqueue()
    for _ in range(2):
        desk.end(desk.claim_one(), "retry", error="boom")
    desk.limits["work"] = 2  # a new version of the application asks for less
    assert desk.claim() == []
    assert (desk.status(job_id), desk.row(job_id).error) == ("failed", "boom")
    assert desk.counts() == desk.recount()


def test_a_released_job_gets_its_attempt_back(desk: Desk) -> None:
    job_id = desk.enqueue()
    for _ in range(10):
        job = desk.claim_one()
        assert job.attempt == 1
        desk.end(job, "released", error="its payload is unreachable")
    assert (desk.status(job_id), desk.row(job_id).attempt, desk.row(job_id).claim) == ("queued", 0, 10)
    assert desk.run_words(job_id) == ["released"] * 10
    assert desk.run() == job_id


def test_a_claim_whose_handler_never_began_leaves_no_trace(desk: Desk) -> None:
    job_id, before = desk.enqueue(), desk.replica.heads()
    for _ in range(3):
        (job,) = desk.settle(slots=1)
        desk.end(job, "released", error="its payload is unreachable", unstarted=True)
    assert (desk.status(job_id), desk.row(job_id).claim, desk.runs(job_id)) == ("queued", 0, [])
    assert desk.replica.heads() == before
    assert desk.recover() == []
    assert desk.run() == job_id
    assert desk.run_words(job_id) == ["succeeded"]


def test_a_claim_that_the_row_tells_already_is_released_even_where_its_handler_never_began(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.end(desk.claim_one(), "released", unstarted=True)
    assert (desk.status(job_id), desk.row(job_id).attempt, desk.run_words(job_id)) == ("queued", 0, ["released"])


def test_a_job_that_is_given_back_goes_on_from_its_checkpoint(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.end(desk.claim_one(), "released", checkpoint=b"half")
    job = desk.claim_one()
    assert (job.job_id, job.attempt, job.checkpoint) == (job_id, 1, b"half")


def test_a_job_that_goes_on_from_its_checkpoint_starts_with_the_progress_it_had(desk: Desk) -> None:
    resumed, anew = desk.enqueue(), desk.enqueue()
    for job in desk.claim(slots=2):
        desk.beat(job, 0.6)
        if job.job_id == resumed:
            desk.checkpoint(job, b"half")
        desk.end(job, "released")
    assert {job.job_id: job.progress for job in desk.claim(slots=2)} == {resumed: 0.6, anew: 0.0}


def test_what_is_given_back_too_late_keeps_no_checkpoint(desk: Desk) -> None:
    desk.enqueue()
    job = desk.claim_one()
    desk.cancel(job.job_id)
    desk.retry(job.job_id)
    desk.end(job, "released", checkpoint=b"late")
    assert desk.claim_one().checkpoint is None


# -- crashes --------------------------------------------------------------------------------------------------


def test_a_crashed_job_is_queued_again_at_once(desk: Desk) -> None:
    job_id = desk.run_after_enqueue("crashed")
    assert (desk.status(job_id), desk.row(job_id).retry_at) == ("queued", None)
    assert desk.claim_one().attempt == 2


def test_the_second_crash_in_a_row_fails_the_job_whatever_attempts_remain(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=10)
    desk.run("crashed", error="killed by signal 9")
    desk.run("crashed", error="killed by signal 11")
    row = desk.row(job_id)
    assert (row.status, row.attempt, row.error) == ("failed", 2, "killed by signal 11")


def test_crashes_that_do_not_follow_each_other_are_ordinary_failures(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=20)
    for _ in range(6):  # more than nine claims: they are numbers, not texts
        desk.run("crashed")
        desk.run("retry")
        desk.wait(-1000)  # nor does the clock order them
    assert desk.status(job_id) == "queued"
    desk.run("crashed")
    desk.run("crashed")
    assert desk.status(job_id) == "failed"


def test_a_release_between_two_crashes_does_not_part_them(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=10)
    desk.run("crashed")
    desk.run("released")
    desk.run("crashed")
    assert desk.status(job_id) == "failed"


def test_a_retried_job_has_its_crashes_behind_it(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.run("crashed")
    desk.run("crashed")
    desk.retry(job_id)
    desk.run("crashed")
    assert desk.status(job_id) == "queued"


def test_a_crash_without_attempts_left_fails_the_job(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=1)
    desk.run("crashed", error="killed by signal 9")
    assert (desk.status(job_id), desk.row(job_id).error) == ("failed", "killed by signal 9")


# -- how runs end ---------------------------------------------------------------------------------------------

ENDINGS: list[tuple[How, dict[str, Any], str, str]] = [
    # ending, what it carries, the job's status, the run's status
    ("succeeded", {"result": b"\x01", "output_manifest": "p2pq1-out"}, "succeeded", "succeeded"),
    ("failed", {"error": "ValueError: no", "traceback": "Traceback …", "log_tail": "last words"}, "failed", "failed"),
    ("retry", {"error": "OSError: away", "traceback": "Traceback …"}, "queued", "failed"),
    ("crashed", {"error": "killed by signal 9", "log_tail": "last words"}, "queued", "failed"),
    ("released", {}, "queued", "released"),
    ("released", {"error": "the input is gone"}, "queued", "released"),
]


@pytest.mark.parametrize(("how", "carried", "status", "word"), ENDINGS)
def test_each_ending_is_written_down_with_its_run(desk: Desk, how: How, carried: dict[str, Any], status: str, word: str) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    (running,) = desk.runs(job_id)
    assert (running.status, running.ended_at, running.attempt, running.worker_label) == ("running", None, 1, "here")
    desk.wait(1500)
    desk.end(job, how, **carried)
    (run,) = desk.runs(job_id)
    assert (run.status, run.started_at, run.ended_at, run.duration) == (word, NOW, NOW + 1500, 1.5)
    for name, value in carried.items():
        assert getattr(run, name) == value
    row = desk.row(job_id)
    assert (row.status, row.error) == (status, carried.get("error"))
    assert row.result_id == (run.id if status in ("succeeded", "failed") else None)
    assert row.finished_at == (NOW + 1500 if status in ("succeeded", "failed") else None)
    assert desk.counts() == desk.recount()


def test_a_duration_is_the_workers_own(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    desk.wait(-5000)
    desk.end(job, duration=0.25)
    assert desk.runs(job_id)[0].duration == 0.25


def test_a_success_clears_the_error_of_the_attempt_before(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.run("retry", error="OSError: away")
    assert desk.row(job_id).error == "OSError: away"
    desk.run()
    assert desk.row(job_id).error is None


def test_many_endings_of_every_kind_share_a_transaction(desk: Desk) -> None:
    ends: tuple[How, ...] = ("succeeded", "failed", "retry", "crashed", "released", "cancelled", "lost")
    for _ in ends:
        desk.enqueue()
    jobs = desk.claim(slots=len(ends))
    desk.cancel(jobs[5].job_id)
    desk.settle(*(desk.ending(job, how) for job, how in zip(jobs, ends, strict=True)))
    words = ["succeeded", "failed", "failed", "failed", "released", "cancelled", "lost"]
    assert [desk.run_words(job.job_id) for job in jobs] == [[word] for word in words]
    assert [desk.status(job.job_id) for job in jobs] == ["succeeded", "failed", "queued", "queued", "queued", "cancelled", "running"]
    assert desk.counts() == desk.recount()


def test_a_short_job_is_written_once_with_its_end(desk: Desk) -> None:
    job_id = desk.enqueue()
    (job,) = desk.settle(slots=1)  # its row does not tell yet that it runs
    desk.end(job)
    assert (desk.status(job_id), desk.row(job_id).attempt, desk.row(job_id).claim) == ("succeeded", 1, 1)
    assert desk.run_words(job_id) == ["succeeded"]


# -- endings that come too late -------------------------------------------------------------------------------

LATE: list[How] = ["succeeded", "failed", "retry", "crashed", "released"]


@pytest.mark.parametrize("told", [True, False], ids=["long", "short"])
@pytest.mark.parametrize("how", LATE)
def test_what_ends_after_a_cancel_changes_nothing(desk: Desk, how: How, told: bool) -> None:
    job_id = desk.enqueue()
    (job,) = desk.claim() if told else desk.settle(slots=1)
    desk.cancel(job_id)
    before = desk.row(job_id)
    desk.end(job, how, result=b"\x01")
    assert desk.row(job_id) == before
    assert before.status == "cancelled"
    (run,) = desk.runs(job_id)
    assert (run.status, run.result) == ("succeeded" if how == "succeeded" else "cancelled" if how == "released" else "failed", b"\x01")
    assert desk.counts() == desk.recount()


@pytest.mark.parametrize("told", [True, False], ids=["long", "short"])
@pytest.mark.parametrize("how", LATE)
def test_what_ends_after_a_retry_does_not_touch_the_new_generation(desk: Desk, how: How, told: bool) -> None:
    job_id = desk.enqueue()
    (job,) = desk.claim() if told else desk.settle(slots=1)
    desk.cancel(job_id)
    desk.retry(job_id)
    desk.end(job, how)
    assert (desk.status(job_id), desk.row(job_id).attempt) == ("queued", 0)
    again = desk.claim_one()
    desk.end(job, how)
    assert desk.status(job_id) == "running"
    desk.end(again)
    assert desk.status(job_id) == "succeeded"
    assert len(desk.runs(job_id)) == 2


@pytest.mark.parametrize("told", [True, False], ids=["long", "short"])
@pytest.mark.parametrize("how", LATE)
def test_what_ends_after_a_deletion_brings_nothing_back(desk: Desk, how: How, told: bool) -> None:
    job_id = desk.enqueue()
    (job,) = desk.claim() if told else desk.settle(slots=1)
    desk.delete(job_id)
    desk.end(job, how)
    assert desk.find(job_id) is None
    assert desk.counts() == desk.recount() == dict.fromkeys(desk.counts(), 0)


@pytest.mark.parametrize("how", LATE)
def test_what_ends_after_its_claim_was_lost_is_marked_as_lost(desk: Desk, how: How) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    taken_by_another(desk, job)
    desk.end(job, how)
    row = desk.row(job_id)
    assert (row.status, row.worker_label, row.claim) == ("running", "there", 2)
    (run,) = desk.runs(job_id)
    assert (run.status, run.error) == ("lost", "lost to there (claim 2)")


def test_the_success_of_a_run_that_went_on_beside_a_newer_claim_ends_the_job(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    taken_by_another(desk, job)
    desk.end(job, rival=True)
    row = desk.row(job_id)
    assert (row.status, row.worker_id, row.claim, row.result_id) == ("succeeded", desk.me, 2, desk.runs(job_id)[0].id)


def test_a_run_that_was_stopped_for_a_newer_claim_says_to_whom_it_was_lost(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    taken_by_another(desk, job)
    desk.end(job, "lost", error="lost to a newer claim")
    (run,) = desk.runs(job_id)
    assert (desk.status(job_id), run.status, run.error) == ("running", "lost", "lost to there (claim 2)")


def test_a_success_beats_the_failure_of_a_rival(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    taken_by_another(desk, job)
    row = desk.row(job_id)
    failed = JobState(row.generation, "failed", 2, 2, "them", "there", NOW, NOW, None, None, "theirs failed")
    desk.write(lambda writer: writer.put_many("jobs", [put_state(job_id, Transition(failed))]))
    desk.end(job)
    row = desk.row(job_id)
    assert (row.status, row.error, row.result_id) == ("succeeded", None, desk.runs(job_id)[0].id)


def test_pausing_does_not_keep_an_attempt_that_ends_from_ending(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    desk.hold(job_id)
    desk.end(job)
    assert desk.status(job_id) == "succeeded"


def test_a_paused_job_that_is_released_waits_until_it_is_resumed(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    desk.checkpoint(job, b"half")
    desk.hold(job_id)
    desk.end(job, "released")
    assert (desk.status(job_id), desk.row(job_id).attempt) == ("paused", 0)
    assert desk.claim() == []
    desk.resume(job_id)
    assert desk.claim_one().checkpoint == b"half"


# -- beats and checkpoints ------------------------------------------------------------------------------------


def test_a_beat_renews_the_lease_with_progress(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    desk.wait(500)
    desk.beat(job, 0.5, "half")
    row = desk.row(job_id)
    assert (row.heartbeat_at, row.progress, row.phase) == (NOW + 500, 0.5, "half")


def test_a_checkpoint_is_kept_by_its_holder_alone(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    assert desk.checkpoint(job, b"one")
    taken_by_another(desk, job)
    assert not desk.checkpoint(job, b"two")
    desk.cancel(job_id)
    assert not desk.checkpoint(job, b"three")
    desk.delete(job_id)
    assert not desk.checkpoint(job, b"four")


def test_a_checkpoint_of_a_job_that_has_just_begun_is_kept(desk: Desk) -> None:
    job_id = desk.enqueue()
    (job,) = desk.settle(slots=1)
    assert desk.checkpoint(job, b"early")
    assert desk.status(job_id) == "running"
    desk.end(job, "retry")
    assert desk.claim_one().checkpoint == b"early"


# -- a node's start after a crash -----------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False], ids=["long", "short"])
def test_a_job_that_ran_when_its_node_died_is_queued_again_with_its_attempt_spent(desk: Desk, told: bool) -> None:
    job_id = desk.enqueue()
    (job,) = desk.claim() if told else desk.settle(slots=1)
    assert desk.recover() == [job_id]
    row = desk.row(job_id)
    assert (row.status, row.attempt, row.error, row.worker_label) == ("queued", 1, "worker lost", None)
    (run,) = desk.runs(job_id)
    assert (run.status, run.error, run.ended_at) == ("lost", "worker lost: its node stopped in the middle", NOW)
    assert desk.recover() == []
    assert desk.claim_one().attempt == 2
    desk.end(job)  # nobody is there to say so; even then
    assert desk.status(job_id) == "running"


@pytest.mark.parametrize("told", [True, False], ids=["long", "short"])
def test_a_job_that_kills_its_node_runs_out_of_attempts(desk: Desk, told: bool) -> None:
    job_id = desk.enqueue(max_attempts=2)
    for _ in range(2):
        assert desk.claim() if told else desk.settle(slots=1)
        assert desk.recover() == [job_id]
    row = desk.row(job_id)
    assert (row.status, row.attempt, row.error) == ("failed", 2, "worker lost")
    assert desk.claim() == []
    assert desk.run_words(job_id) == ["lost", "lost"]
    assert desk.counts() == desk.recount()


def test_the_limit_of_a_task_counts_at_the_recovery(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.claim_one()
    desk.recover(work=1)
    assert desk.status(job_id) == "failed"


@pytest.mark.parametrize("told", [True, False], ids=["long", "short"])
def test_a_paused_job_is_neither_failed_nor_run_at_the_recovery(desk: Desk, told: bool) -> None:
    job_id = desk.enqueue(max_attempts=1)
    assert desk.claim() if told else desk.settle(slots=1)
    desk.hold(job_id)
    desk.recover()
    assert (desk.status(job_id), desk.row(job_id).state_status, desk.row(job_id).attempt) == ("paused", "queued", 1)
    assert desk.claim() == []
    desk.resume(job_id)
    assert desk.claim() == []
    assert (desk.status(job_id), desk.row(job_id).error) == ("failed", "worker lost")


def test_the_jobs_of_other_devices_are_left_alone(desk: Desk) -> None:
    job_id = desk.enqueue()
    taken_by_another(desk, desk.claim_one())
    assert desk.recover() == []
    assert desk.row(job_id).worker_label == "there"
    assert desk.run_words(job_id) == ["lost"], "the own run is over all the same"


@pytest.mark.parametrize(("verb", "word"), [("cancel", "cancelled"), ("delete", "cancelled")])
def test_runs_of_jobs_that_ended_meanwhile_end_at_the_recovery(desk: Desk, verb: str, word: str) -> None:
    job_id = desk.enqueue()
    desk.claim_one()
    getattr(desk, verb)(job_id)
    assert desk.recover() == []
    assert desk.run_words(job_id) == [word]


def test_what_ended_before_the_crash_is_not_recovered(desk: Desk) -> None:
    jobs = []
    ends: tuple[How, ...] = ("succeeded", "retry", "released")
    for how in ends:
        job_id = desk.enqueue()
        (job,) = desk.settle(slots=1)
        desk.end(job, how, retry_at=NOW + 1000 if how == "retry" else None)
        if how == "released":
            desk.cancel(job_id)
        jobs.append(desk.row(job_id))
    assert desk.recover() == []
    assert [desk.row(row.id) for row in jobs] == jobs


# -- tasks that no device knows -------------------------------------------------------------------------------


def test_a_job_of_a_task_that_no_device_knows_fails_after_its_time(desk: Desk) -> None:
    old = desk.enqueue("unknown")
    desk.wait(500)
    young, known, program = desk.enqueue("unknown"), desk.enqueue("work"), desk.enqueue("exec")
    desk.wait(1000)
    assert desk.fail_unknown(1000) == 1
    row = desk.row(old)
    assert (row.status, row.error, row.finished_at) == ("failed", "unknown task: no device has 'unknown'", NOW + 1500)
    assert {desk.status(job_id) for job_id in (young, known, program)} == {"queued"}
    desk.wait(10_000)
    assert desk.fail_unknown(1000) == 1
    assert desk.counts() == desk.recount()


def test_a_paused_job_does_not_fail_for_its_unknown_task(desk: Desk) -> None:
    job_id = desk.enqueue("unknown")
    desk.hold(job_id)
    desk.wait(10_000)
    assert desk.fail_unknown(1000) == 0
    assert desk.status(job_id) == "paused"


def test_a_job_of_an_unknown_task_waits_from_when_it_is_due(desk: Desk) -> None:
    job_id = desk.enqueue("unknown", run_at=NOW + 5000)
    desk.wait(5999)
    assert desk.fail_unknown(1000) == 0
    desk.wait(2)
    assert desk.fail_unknown(1000) == 1
    assert desk.status(job_id) == "failed"


def test_a_retried_job_of_an_unknown_task_waits_again(desk: Desk) -> None:
    job_id = desk.enqueue("unknown")
    desk.wait(2000)
    assert desk.fail_unknown(1000) == 1
    desk.retry(job_id)
    assert desk.fail_unknown(1000) == 0
    desk.wait(1001)
    assert desk.fail_unknown(1000) == 1


def test_a_task_that_an_earlier_node_here_had_is_known(desk: Desk) -> None:
    from p2pqueue.jobs.local import remember_tasks

    desk.write(lambda writer: remember_tasks(writer.connection, [{"name": "earlier", "queue": "default"}]))
    job_id = desk.enqueue("earlier")
    desk.wait(10_000)
    assert desk.fail_unknown(1000) == 0
    assert desk.status(job_id) == "queued"


def test_beyond_free_slots_only_what_begins_for_the_first_time_and_needs_no_file_is_claimed(desk: Desk) -> None:
    tried = desk.run_after_enqueue("retry")
    desk.clock.now += 3_600_000
    first, second = desk.enqueue(), desk.enqueue()
    taker = replace(desk.taker, free=0)
    claimed = desk.write(lambda writer: settle(writer, (), taker, 10))
    assert {job.job_id for job in claimed} == {first, second}
    assert desk.status(tried) == "queued"
    assert [job.job_id for job in desk.settle(slots=10, skip=frozenset((first, second)))] == [tried]


def test_what_has_one_attempt_alone_is_not_claimed_ahead(desk: Desk) -> None:
    desk.enqueue(max_attempts=1)
    plain = desk.enqueue()
    taker = replace(desk.taker, free=0)
    assert [job.job_id for job in desk.write(lambda writer: settle(writer, (), taker, 10))] == [plain]


def test_jobs_whose_worker_was_lost_make_their_last_attempts_one_at_a_time(desk: Desk) -> None:
    jobs = [desk.enqueue(max_attempts=2) for _ in range(4)]
    assert len(desk.claim(slots=4)) == 4
    desk.recover()
    desk.clock.now += 3_600_000
    (first,) = desk.claim(slots=4)
    assert is_suspect(first.attempt, first.max_attempts, first.error)
    waits = replace(desk.taker, suspects=True)
    assert desk.write(lambda writer: settle(writer, (), waits, 4)) == []
    fresh = desk.enqueue()
    assert [job.job_id for job in desk.write(lambda writer: settle(writer, (), waits, 4))] == [fresh]
    desk.end(first)
    (second,) = desk.settle(slots=4, skip=frozenset((fresh,)))
    assert {first.job_id, second.job_id} < set(jobs)
