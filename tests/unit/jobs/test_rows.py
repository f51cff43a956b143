"""What a replica shows of its jobs and their attempts."""

from __future__ import annotations

import pytest

from p2pqueue.errors import AmbiguousId, NoSuchJob
from p2pqueue.jobs import local, rows
from p2pqueue.jobs.rows import JobFilter, JobRow
from p2pqueue.jobs.waiting import Ability
from p2pqueue.workers.claimed import How
from p2pqueue.workers.sealer import clear_problem, find_unsealed, note_problem
from tests.unit.jobs.desk import NOW, Desk, original, shared


@pytest.fixture
def desk() -> Desk:
    return Desk()


def select(desk: Desk, **wanted: object) -> list[str]:
    return [row.id for row in desk.replica.read(lambda connection: rows.select(connection, JobFilter(**wanted)))]  # type: ignore[arg-type]


def find(desk: Desk, prefix: str) -> JobRow:
    return desk.replica.read(lambda connection: rows.find(connection, prefix))


def node_starts(desk: Desk, *tasks: str, **ability: object) -> None:
    """Remembers what a node of this device can do."""
    known = Ability("here", tasks=frozenset(tasks), **ability)  # type: ignore[arg-type]
    descriptions = [{"name": task, "queue": "default"} for task in tasks]
    desk.write(lambda writer: local.remember_ability(writer.connection, known))
    desk.write(lambda writer: local.remember_tasks(writer.connection, descriptions))


# -- finding --------------------------------------------------------------------------------------------------


def test_a_job_is_found_by_any_beginning_that_is_its_own(desk: Desk) -> None:
    first, second = desk.enqueue(), desk.enqueue(unique_key="k")
    assert find(desk, first).id == first
    assert find(desk, second[:4].upper()).id == second
    assert find(desk, f"  {second[:6]} ").id == second


@pytest.mark.parametrize("prefix", ["", " ", "zz", "%", "_", "\0"])
def test_what_begins_no_id_is_no_job(desk: Desk, prefix: str) -> None:
    desk.enqueue()
    with pytest.raises(NoSuchJob):
        find(desk, prefix)


def test_a_beginning_that_several_share_is_refused_with_their_ids(desk: Desk) -> None:
    first, second = desk.enqueue(), desk.enqueue()
    with pytest.raises(AmbiguousId) as caught:
        find(desk, first[:8])
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_a_deleted_job_is_not_found(desk: Desk) -> None:
    first, second = desk.enqueue(), desk.enqueue()
    desk.delete(first)
    assert find(desk, second[:8]).id == second
    assert desk.find(first) is None


# -- listing --------------------------------------------------------------------------------------------------


def test_live_jobs_come_first_then_the_newest(desk: Desk) -> None:
    ids = []
    for _ in range(6):
        ids.append(desk.enqueue())
        desk.wait(10)
    a, b, c, d, e, f = ids
    desk.cancel(f)
    desk.cancel(b)
    desk.hold(a)
    assert desk.claim_one().job_id == c
    expected = [e, d, c, a, f, b]
    assert select(desk) == expected
    assert select(desk, limit=None) == expected
    for limit in range(8):
        assert select(desk, limit=limit) == expected[:limit]


@pytest.mark.parametrize("ended", [False, True], ids=["waiting", "ended"])
def test_the_newest_are_listed_whatever_their_ids_begin_with(desk: Desk, ended: bool) -> None:
    """The id of a job with a unique key tells nothing of its time."""
    ids = []
    for number in range(20):
        ids.append(desk.enqueue(unique_key=f"key {number}" if number % 4 else None))
        desk.wait(10)
    for job_id in ids if ended else ():
        desk.cancel(job_id)
    for limit in (1, 5, 13):
        assert select(desk, limit=limit) == ids[: -limit - 1 : -1]


def test_jobs_are_chosen_by_each_column(desk: Desk) -> None:
    first = desk.enqueue(queue="studio")
    desk.run("failed")
    desk.wait(1000)
    second = desk.enqueue("other", priority=1)
    third = desk.enqueue(queue="studio")
    held = desk.enqueue("other")
    desk.hold(held)
    assert select(desk, status="queued") == [third, second]
    assert select(desk, status="paused") == [held]
    assert select(desk, status="failed") == [first]
    assert select(desk, queue="studio") == [third, first]
    assert select(desk, task="other") == [held, second]
    assert select(desk, device="here") == select(desk, device=desk.me) == [first]
    assert select(desk, device="there") == []
    assert select(desk, since=NOW + 1) == [held, third, second]
    assert select(desk, queue="studio", status="queued", since=NOW) == [third]


# -- attempts -------------------------------------------------------------------------------------------------


def test_attempts_are_in_the_order_of_their_claims_whatever_the_clock(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=30)
    for _ in range(11):
        desk.run("retry", retry_at=None)
        desk.wait(-1000)
    desk.run("failed")
    desk.retry(job_id)
    desk.run()
    found = desk.runs(job_id)
    assert [run.attempt for run in found] == [*range(1, 13), 1]
    assert found[-1].status == "succeeded"
    assert [run.log_key[1:] for run in found] == [(0, claim) for claim in range(1, 13)] + [(1, 1)]


def test_attempts_of_one_job_never_show_at_another(desk: Desk) -> None:
    ids = [desk.enqueue() for _ in range(3)]
    for _ in ids:
        desk.run()
    for job_id in ids:
        (run,) = desk.runs(job_id)
        assert run.job_id == job_id


def test_a_run_is_found_by_its_id(desk: Desk) -> None:
    job_id = desk.enqueue()
    desk.run(result=b"\x2a")
    result_id = desk.row(job_id).result_id or ""
    run = desk.replica.read(lambda connection: rows.run(connection, result_id))
    assert run is not None
    assert (run.job_id, run.result, run.status) == (job_id, b"\x2a", "succeeded")
    assert desk.replica.read(lambda connection: rows.run(connection, "nobody")) is None


# -- progress -------------------------------------------------------------------------------------------------


def test_progress_shows_while_it_counts(desk: Desk) -> None:
    job_id = desk.enqueue()
    job = desk.claim_one()
    desk.beat(job, 0.25, "reading")
    assert (desk.row(job_id).progress, desk.row(job_id).phase) == (0.25, "reading")
    desk.end(job, "retry")
    assert (desk.row(job_id).progress, desk.row(job_id).phase) == (0.0, "Queued"), "nobody is at it"
    again = desk.claim_one()
    assert (desk.row(job_id).progress, desk.row(job_id).phase) == (0.0, "Queued"), "a beat of an earlier claim doesn't count"
    desk.beat(job, 0.9)
    assert desk.row(job_id).progress == 0.0, "a worker that lost the job can't touch its progress"
    desk.end(again)
    assert (desk.row(job_id).progress, desk.row(job_id).phase) == (1.0, "Done")


def test_a_job_that_has_ended_says_so_as_its_phase(desk: Desk) -> None:
    cancelled = desk.enqueue()
    desk.cancel(cancelled)
    failed = desk.enqueue()
    job = desk.claim_one()
    desk.beat(job, 0.25, "reading")
    desk.end(job, "failed")
    assert (desk.row(cancelled).phase, desk.row(failed).phase) == ("Cancelled", "Failed")


# -- counting -------------------------------------------------------------------------------------------------


def test_every_status_is_counted(desk: Desk) -> None:
    ends: tuple[How, ...] = ("succeeded", "failed")
    for how in ends:
        desk.enqueue()
        desk.run(how)
    desk.cancel(desk.enqueue())
    desk.delete(desk.enqueue())
    desk.enqueue()
    desk.claim_one()
    desk.hold(desk.enqueue())
    desk.enqueue()
    assert desk.counts() == {"queued": 1, "running": 1, "paused": 1, "succeeded": 1, "failed": 1, "cancelled": 1}
    assert desk.counts() == desk.recount()


# -- why it waits ---------------------------------------------------------------------------------------------


def test_a_job_says_why_it_waits(desk: Desk) -> None:
    job_id = desk.enqueue()
    assert desk.why(job_id, node_running=False) == "no node runs here: start one with `p2pqueue run`"
    node_starts(desk, "other")
    assert desk.why(job_id) == "no running node here has the task 'work'"
    node_starts(desk, "work")
    assert desk.why(job_id) == "waiting for a free slot"
    desk.hold(job_id)
    assert (desk.why(job_id) or "").startswith("paused")
    desk.cancel(job_id)
    assert desk.why(job_id) is None


def test_a_job_says_until_when_it_waits(desk: Desk) -> None:
    node_starts(desk, "work")
    later = desk.enqueue(run_at=NOW + 60_000)
    assert desk.why(later) == "scheduled for 2027-01-15T08:01:00Z"
    failed = desk.enqueue()
    desk.end(desk.claim_one(), "retry", error="OSError: away", retry_at=NOW + 30_000)
    assert desk.why(failed) == "runs again at 2027-01-15T08:00:30Z, after: OSError: away"
    desk.wait(60_000)
    assert desk.why(later) == desk.why(failed) == "waiting for a free slot"


def test_a_job_says_what_its_device_lacks(desk: Desk) -> None:
    node_starts(desk, "work", max_input=99)
    needy = desk.enqueue(needs='["gpu", "cuda"]')
    assert desk.why(needy) == "here lacks cuda, gpu"
    large = desk.enqueue(files=(original(size=100),))
    assert desk.why(large) == "too large for here: 100 bytes where it takes at most 99"
    away = desk.enqueue(files=(shared(),))
    desk.write(lambda writer: writer.connection.execute("DELETE FROM inputs"))
    assert desk.why(away) == "its input is on another device, which has not shared it yet"


def test_a_job_says_what_the_node_knows_of_other_workers(desk: Desk) -> None:
    node_starts(desk, "work", max_input=99)
    left, unshared = desk.enqueue(), desk.enqueue(files=(original(size=100),))
    large = desk.enqueue(files=(original(size=100),), manifest="p2pq1-shared")
    studio = Ability("studio", frozenset({"work"}))
    desk.write(lambda writer: local.remember_others(writer.connection, {"s" * 32: studio}, {left: "left to studio"}))
    assert desk.why(left) == "left to studio"
    assert desk.why(large) == "too large for here, waiting for studio"
    assert desk.why(unshared) == "too large for here: 100 bytes where it takes at most 99, and no other device that is linked can take it"
    assert desk.why(left, node_running=False) == "no node runs here: start one with `p2pqueue run`"


def test_a_job_whose_input_stands_in_the_way_says_so(desk: Desk) -> None:
    node_starts(desk, "work")
    job_id = desk.enqueue(files=(original(),))
    desk.write(lambda writer: writer.connection.execute("UPDATE inputs SET problem = 'the input /there is gone'"))
    assert desk.why(job_id) == "the input /there is gone"


def test_a_device_that_could_not_run_the_job_anyway_says_first_what_is_wrong_with_its_input(desk: Desk) -> None:
    node_starts(desk, "other")
    job_id = desk.enqueue(files=(original(),))
    assert "changed" not in (desk.why(job_id) or "")
    desk.write(lambda writer: writer.connection.execute("UPDATE inputs SET problem = 'the input /there changed'"))
    assert desk.why(job_id) == "the input /there changed"


@pytest.mark.parametrize("end", ["succeeded", "deleted"])
def test_the_attempts_of_a_job_are_those_since_its_unique_key_was_enqueued_anew(desk: Desk, end: str) -> None:
    job_id = desk.enqueue(unique_key="k")
    desk.end(desk.claim_one(), "failed")
    desk.retry(job_id)
    job = desk.claim_one()
    assert desk.run_words(job_id) == ["failed", "running"], "a retry goes on with the same job"
    desk.end(job, "succeeded")
    if end == "deleted":
        desk.delete(job_id)
    assert desk.enqueue(unique_key="k") == job_id
    assert desk.run_words(job_id) == []
    desk.claim_one()
    assert desk.run_words(job_id) == ["running"]


def test_why_the_input_of_another_devices_job_cant_be_had_is_told_and_makes_no_input_of_its_own(desk: Desk) -> None:
    node_starts(desk, "work")
    job_id = desk.enqueue()
    desk.write(lambda writer: note_problem(writer, job_id, "", "no device has shard ab"))
    assert desk.why(job_id) == "no device has shard ab"
    assert desk.files(job_id) == []
    assert not desk.row(job_id).input_here
    assert desk.replica.read(find_unsealed) == []
    desk.write(lambda writer: clear_problem(writer, job_id))
    assert desk.row(job_id).problem is None
