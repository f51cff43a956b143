"""What those who ask for jobs may do to them, transaction by transaction."""

from __future__ import annotations

import pytest

from p2pqueue import wire
from p2pqueue.errors import NoSuchJob, WrongState
from p2pqueue.jobs import ledger, rows
from p2pqueue.jobs.ledger import DAY_MS, unique_id
from p2pqueue.replica.retention import prune
from tests.unit.jobs.desk import NOW, SPACE, Desk, new_job, original, shared

# -- enqueueing -----------------------------------------------------------------------------------------------


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_new_job_is_queued_with_all_that_was_asked_of_it(desk: Desk) -> None:
    job_id = desk.enqueue(
        queue="studio", title="clip", priority=5, max_attempts=7, timeout=60.0, stall_timeout=9.5, backoff='{"first": 1}',
        retry_on='["OSError"]', run_at=NOW + 1, needs='["gpu"]', owner="me", options={"parent": "x"}, args=wire.pack({"a": 1}),
    )  # fmt: skip
    row = desk.row(job_id)
    assert (row.status, row.queue, row.task, row.title, row.priority) == ("queued", "studio", "work", "clip", 5)
    assert (row.max_attempts, row.timeout, row.stall_timeout, row.backoff) == (7, 60.0, 9.5, '{"first": 1}')
    assert (row.retry_on, row.run_at, row.needs, row.owner) == ('["OSError"]', NOW + 1, '["gpu"]', "me")
    assert (row.created_at, row.attempt, row.progress, row.phase) == (NOW, 0, 0.0, "Queued")
    args, options = desk.replica.read(lambda connection: rows.spec_of(connection, job_id))
    assert (wire.unpack(args), wire.unpack(options)) == ({"a": 1}, {"parent": "x"})


def test_many_jobs_are_made_in_one_transaction_in_their_order(desk: Desk) -> None:
    wanted = [new_job(priority=number % 2, title=f"{number}" if number % 3 else None) for number in range(20)]
    made = desk.write(lambda writer: ledger.enqueue_many(writer, wanted))
    assert all(each.created for each in made)
    assert [each.id for each in made] == sorted(each.id for each in made)
    found = [desk.row(each.id) for each in made]
    assert [(row.priority, row.title) for row in found] == [(new.priority, new.title) for new in wanted]
    assert desk.counts() == desk.recount()
    assert desk.counts()["queued"] == 20


def test_a_bulk_takes_jobs_of_every_kind(desk: Desk) -> None:
    wanted = [new_job(), new_job(unique_key="k"), new_job(files=(original(),)), new_job(unique_key="k"), new_job(priority=3)]
    made = desk.write(lambda writer: ledger.enqueue_many(writer, wanted))
    assert [each.created for each in made] == [True, True, True, False, True]
    assert made[1].id == made[3].id
    assert desk.row(made[2].id).input_name == "there"
    assert desk.row(made[4].id).priority == 3
    assert desk.counts()["queued"] == 4


def test_no_jobs_make_no_transaction_fail(desk: Desk) -> None:
    assert desk.write(lambda writer: ledger.enqueue_many(writer, [])) == []


# -- unique keys ----------------------------------------------------------------------------------------------


def test_the_id_of_a_unique_key_follows_from_space_task_and_key(desk: Desk) -> None:
    job_id = desk.enqueue(unique_key="k")
    assert job_id == unique_id(SPACE, "work", "k")
    others = {unique_id(SPACE, "work", "l"), unique_id(SPACE, "other", "k"), unique_id("other", "work", "k")}
    assert len(others | {job_id}) == 4


@pytest.mark.parametrize("state", ["queued", "running", "paused", "paused while it runs"])
def test_a_unique_key_whose_job_has_not_ended_gives_that_job(desk: Desk, state: str) -> None:
    job_id = desk.enqueue(unique_key="k", title="first")
    if state != "queued":
        if "run" in state:
            desk.claim_one()
        if "paused" in state:
            desk.hold(job_id)
    again = desk.write(lambda writer: ledger.enqueue(writer, new_job(unique_key="k", title="second")))
    assert (again.id, again.created) == (job_id, False)
    assert desk.row(job_id).title == "first"
    assert desk.counts() == desk.recount()


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "deleted"])
def test_a_unique_key_whose_job_has_ended_opens_a_new_life(desk: Desk, end: str) -> None:
    job_id = desk.enqueue(unique_key="k", title="first", priority=9, files=(original("a"),))
    job = desk.claim_one()
    desk.checkpoint(job, b"half")
    desk.beat(job, 0.5)
    if end in ("cancelled", "deleted"):
        desk.hold(job_id)
        desk.cancel(job_id) if end == "cancelled" else desk.delete(job_id)
    else:
        desk.end(job, "succeeded" if end == "succeeded" else "failed")
    again = desk.write(lambda writer: ledger.enqueue(writer, new_job(unique_key="k")))
    assert (again.id, again.created) == (job_id, True)
    row = desk.row(job_id)
    assert (row.status, row.attempt, row.title, row.priority, row.progress, row.error) == ("queued", 0, None, 0, 0.0, None)
    assert (row.input_name, row.result_id, row.held, desk.files(job_id)) == (None, None, 0, [])
    assert desk.counts() == desk.recount()
    reborn = desk.claim_one()
    assert (reborn.attempt, reborn.checkpoint, reborn.has_input) == (1, None, False)
    desk.end(job)  # of the first life, and late
    assert desk.status(job_id) == "running"
    desk.end(reborn)
    assert desk.status(job_id) == "succeeded"


def test_a_unique_key_whose_job_was_dropped_after_retention_opens_a_new_life(desk: Desk) -> None:
    job_id = desk.enqueue(unique_key="k")
    desk.run()
    desk.wait(8 * DAY_MS)
    desk.write(lambda writer: prune(writer, "jobs", 7 * DAY_MS, writer.now))
    assert desk.find(job_id) is None
    assert desk.enqueue(unique_key="k") == job_id
    assert desk.status(job_id) == "queued"
    assert desk.claim_one().attempt == 1


def test_a_unique_key_may_live_many_times(desk: Desk) -> None:
    for life in range(5):
        desk.enqueue(unique_key="k", title=f"{life}")
        if life % 2:
            desk.delete(desk.enqueue(unique_key="k"))
        else:
            desk.run()
    assert desk.counts() == desk.recount()


def test_who_enqueues_a_key_again_attaches_an_input_where_the_job_has_none(desk: Desk) -> None:
    job_id = desk.enqueue(unique_key="k")
    assert desk.row(job_id).input_name is None
    desk.enqueue(unique_key="k", files=(shared(),), manifest="p2pq1-shared")
    assert (desk.row(job_id).input_manifest, desk.row(job_id).input_size) == ("p2pq1-shared", 10)
    desk.enqueue(unique_key="k", files=(original(),))
    assert desk.row(job_id).input_manifest == "p2pq1-shared", "an input that is there is not replaced"
    assert [file.capability for file in desk.files(job_id)] == ["p2pq1-shared"]


# -- inputs ---------------------------------------------------------------------------------------------------


def test_an_input_is_named_before_it_is_sealed_and_its_original_is_remembered(desk: Desk) -> None:
    job_id = desk.enqueue(files=(original("a"), shared("b")))
    row = desk.row(job_id)
    assert (row.input_manifest, row.input_name, row.input_size) == (None, "2 files", 110)
    assert [(file.parameter, file.path, file.capability, file.mtime_ns) for file in desk.files(job_id)] == [
        ("a", "/there", None, 7),
        ("b", None, "p2pq1-shared", None),
    ]


def test_a_path_that_is_no_text_comes_back_as_it_was(desk: Desk) -> None:
    job_id = desk.enqueue(files=(original("a", path="/caf\udce9"),))
    assert desk.files(job_id)[0].path == "/caf\udce9"


# -- cancelling, pausing, retrying, deleting ------------------------------------------------------------------


def state(desk: Desk, wanted: str) -> str:
    """A job in that state; gives its id."""
    job_id = desk.enqueue()
    if wanted == "paused":
        desk.hold(job_id)
    elif wanted == "cancelled":
        desk.cancel(job_id)
    elif wanted != "queued":
        job = desk.claim_one()
        if wanted != "running":
            desk.end(job, "succeeded" if wanted == "succeeded" else "failed")
    assert desk.status(job_id) == wanted
    return job_id


TABLE = [
    # verb, from, then; or the words of the refusal
    ("cancel", "queued", "cancelled"),
    ("cancel", "running", "cancelled"),
    ("cancel", "paused", "cancelled"),
    ("cancel", "succeeded", "has already succeeded"),
    ("cancel", "failed", "has already failed"),
    ("cancel", "cancelled", "has already been cancelled"),
    ("hold", "queued", "paused"),
    ("hold", "running", "paused"),
    ("hold", "paused", "paused"),  # once more is no error
    ("hold", "succeeded", "has already succeeded"),
    ("hold", "failed", "has already failed"),
    ("hold", "cancelled", "has already been cancelled"),
    ("resume", "paused", "queued"),
    ("resume", "queued", "is queued, not paused"),
    ("resume", "running", "is running, not paused"),
    ("resume", "succeeded", "has already succeeded"),
    ("resume", "failed", "has already failed"),
    ("resume", "cancelled", "has already been cancelled"),
    ("retry", "succeeded", "queued"),
    ("retry", "failed", "queued"),
    ("retry", "cancelled", "queued"),
    ("retry", "queued", "is queued; only a job that has ended can be retried"),
    ("retry", "running", "is running; only a job that has ended can be retried"),
    ("retry", "paused", "is queued; only a job that has ended can be retried"),
    ("delete", "queued", None),
    ("delete", "running", None),
    ("delete", "paused", None),
    ("delete", "succeeded", None),
    ("delete", "failed", None),
    ("delete", "cancelled", None),
]


@pytest.mark.parametrize(("verb", "start", "then"), TABLE)
def test_each_verb_does_its_work_or_is_refused_in_words(desk: Desk, verb: str, start: str, then: str | None) -> None:
    job_id = state(desk, start)
    if then is not None and " " in then:
        with pytest.raises(WrongState) as caught:
            getattr(desk, verb)(job_id)
        assert str(caught.value) == f"job {job_id} {then}"
        assert desk.status(job_id) == start
    else:
        getattr(desk, verb)(job_id)
        found = desk.find(job_id)
        assert (found.status if found else None) == then
    assert desk.counts() == desk.recount()


@pytest.mark.parametrize("verb", ["cancel", "hold", "resume", "retry", "delete"])
def test_a_job_that_is_not_there_is_named(desk: Desk, verb: str) -> None:
    gone = desk.enqueue()
    desk.delete(gone)
    for job_id in (gone, "nobody"):
        with pytest.raises(NoSuchJob, match=f"no job has the id '{job_id}'"):
            getattr(desk, verb)(job_id)


def test_a_cancel_ends_a_pause_for_good(desk: Desk) -> None:
    job_id = state(desk, "paused")
    desk.cancel(job_id)
    assert desk.status(job_id) == "cancelled"
    desk.retry(job_id)
    assert desk.status(job_id) == "queued", "a retry clears the hold"
    assert desk.claim_one().job_id == job_id


def test_a_cancelled_job_tells_when_it_ended(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.wait(500)
    desk.cancel(job_id)
    assert desk.row(job_id).finished_at == NOW + 500


def test_deleting_forgets_the_inputs_here(desk: Desk) -> None:
    job_id = desk.enqueue(files=(original(),))
    desk.delete(job_id)
    assert desk.files(job_id) == []
    assert desk.claim() == []


def test_a_retry_starts_at_the_first_attempt_of_the_next_generation(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.run("failed")
    before = desk.row(job_id)
    assert desk.retry(job_id) == job_id
    row = desk.row(job_id)
    assert (row.status, row.attempt, row.error, row.finished_at, row.result_id) == ("queued", 0, None, None, None)
    assert row.generation == before.generation + 1
    assert desk.run() == job_id
    assert desk.run_words(job_id) == ["failed", "succeeded"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_retry_keeps_the_checkpoint_unless_told_otherwise(desk: Desk, fresh: bool) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    assert desk.checkpoint(job, b"half")
    desk.end(job, "failed")
    desk.retry(job_id, fresh=fresh)
    again = desk.claim_one()
    assert again.checkpoint == (None if fresh else b"half")
    assert desk.checkpoint(again, b"more"), "the new attempt keeps its own"
    desk.end(again, "failed")
    desk.retry(job_id)
    assert desk.claim_one().checkpoint == b"more"


def test_a_job_may_be_retried_again_and_again(desk: Desk) -> None:
    job_id = desk.enqueue()
    for _ in range(10):
        desk.run("failed")
        desk.retry(job_id)
    desk.run()
    assert desk.run_words(job_id) == ["failed"] * 10 + ["succeeded"]
    assert desk.counts() == desk.recount()


def test_a_retry_brings_back_only_the_first_of_two(desk: Desk) -> None:
    job_id = state(desk, "failed")
    desk.retry(job_id)
    with pytest.raises(WrongState, match="is queued; only a job that has ended can be retried"):
        desk.retry(job_id)


# -- retrying what ended long ago -----------------------------------------------------------------------------


def test_a_retry_within_retention_but_its_last_day_is_the_same_job(desk: Desk) -> None:
    job_id = state(desk, "failed")
    desk.wait(6 * DAY_MS)
    assert desk.retry(job_id) == job_id


def test_a_retry_of_what_may_be_gone_elsewhere_enqueues_a_new_job(desk: Desk) -> None:
    job_id = desk.enqueue(
        args=wire.pack({"n": 1}), title="clip", priority=4, max_attempts=2, timeout=5.0, needs='["gpu"]', queue="studio",
        files=(original("a"), shared("b")), options={"parent": "x"}, run_at=NOW - 5, owner="me",
    )  # fmt: skip
    desk.cancel(job_id)
    desk.wait(6 * DAY_MS + 1)
    new_id = desk.retry(job_id)
    assert new_id != job_id
    assert desk.status(job_id) == "cancelled"
    old, new = desk.row(job_id), desk.row(new_id)
    for name in ("queue", "task", "title", "priority", "max_attempts", "timeout", "needs", "owner", "input_name", "input_size"):
        assert getattr(new, name) == getattr(old, name), name
    assert (new.status, new.attempt, new.run_at, new.created_at) == ("queued", 0, None, desk.clock.now)
    assert desk.files(new_id) == desk.files(job_id)
    assert desk.replica.read(lambda connection: rows.spec_of(connection, new_id)) == (wire.pack({"n": 1}), wire.pack({"parent": "x"}))


def test_retention_decides_from_when_a_retry_is_a_new_job(desk: Desk) -> None:
    job_id = state(desk, "failed")
    desk.wait(2 * DAY_MS + 1)
    assert desk.retry(job_id, retention_ms=3 * DAY_MS) != job_id


def test_a_late_retry_keeps_an_input_that_came_from_another_device(desk: Desk) -> None:
    job_id = desk.enqueue(files=(shared(),), manifest="p2pq1-shared")
    desk.cancel(job_id)
    desk.write(lambda writer: writer.connection.execute("DELETE FROM inputs"))  # another device keeps no such rows of it
    desk.wait(7 * DAY_MS)
    row = desk.row(desk.retry(job_id))
    assert (row.input_manifest, row.input_name, row.input_size) == ("p2pq1-shared", "shared", 10)
    job = desk.claim_one()
    assert (job.has_input, job.input_manifest) == (True, "p2pq1-shared")


def test_a_late_retry_of_a_unique_key_is_its_next_life(desk: Desk) -> None:
    job_id = desk.enqueue(unique_key="k", files=(original(),))
    desk.run("failed")
    desk.wait(7 * DAY_MS)
    assert desk.retry(job_id) == job_id
    row = desk.row(job_id)
    assert (row.status, row.unique_key, row.created_at, row.input_name) == ("queued", "k", desk.clock.now, "there")
    assert desk.enqueue(unique_key="k") == job_id, "its key still stands for it"
    assert desk.counts()["queued"] == 1


def test_a_late_retry_of_what_has_not_ended_is_refused(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.wait(30 * DAY_MS)
    with pytest.raises(WrongState, match="is queued"):
        desk.retry(job_id)
