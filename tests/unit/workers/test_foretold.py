"""What others told that they begin is left to them, and counts if they die of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.claiming.foretold import HELD, KNOWN, MOST, Foretold, Told, read_told
from p2pqueue.workers.claiming.takeover import count_foretold
from p2pqueue.workers.settle import settle
from tests.unit.jobs.desk import Desk

THERE, ELSEWHERE, AUTHOR = "11" * 16, "22" * 16, bytes(16)
FIRST = Told("job", 0, 1, 1, AUTHOR)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def claims(desk: Desk, foretold: Foretold, now: float = 0.0) -> list[ClaimedJob]:
    taker = replace(desk.taker, foretold=foretold.taken(now))
    return desk.write(lambda writer: settle(writer, (), taker, 9))


def die(desk: Desk, *told: Told, device_id: str = THERE, **limits: int) -> list[str]:
    return desk.write(lambda writer: count_foretold(writer, device_id=device_id, told=told, max_attempts=limits))


def test_what_a_device_begins_is_left_to_it_until_its_row_must_have_come() -> None:
    foretold = Foretold()
    assert not foretold.heard(THERE, [FIRST], (), 10.0)
    assert foretold.taken(10.0 + HELD) == {"job": (0, 1)}
    assert foretold.until(10.0) == 10.0 + HELD
    assert foretold.taken(10.1 + HELD) == {}
    assert foretold.until(10.1 + HELD) is None


def test_nobody_waits_for_a_job_whose_row_has_come_but_its_claim_is_still_known() -> None:
    foretold = Foretold()
    foretold.heard(THERE, [FIRST], (), 10.0)
    foretold.written(["other", "job"])
    assert foretold.until(10.0) is None
    assert foretold.taken(10.0) == {"job": (0, 1)}


def test_what_was_told_is_new_once() -> None:
    foretold = Foretold()
    foretold.heard(THERE, [FIRST], (), 10.0)
    assert foretold.heard_lately() == {"job": (THERE, 10.0)}
    assert foretold.heard_lately() == {}


def test_what_is_given_back_is_free_at_once() -> None:
    foretold = Foretold()
    foretold.heard(THERE, [FIRST], (), 10.0)
    assert not foretold.heard(ELSEWHERE, (), ["job"], 10.0)
    assert foretold.heard(THERE, (), ["job"], 10.0)
    assert foretold.taken(10.0) == {}


def test_of_a_device_that_left_in_order_nothing_is_kept() -> None:
    foretold = Foretold()
    foretold.heard(THERE, [FIRST], (), 10.0)
    foretold.heard(ELSEWHERE, [FIRST._replace(job_id="theirs")], (), 10.0)
    foretold.forget(THERE)
    assert foretold.of(THERE) == []
    assert foretold.taken(10.0) == {"theirs": (0, 1)}


def test_what_a_device_tells_takes_little_memory() -> None:
    foretold = Foretold()
    for number in range(3 * MOST):
        foretold.heard(THERE, [FIRST._replace(job_id=str(number))], (), 10.0)
    assert len(foretold.taken(10.0)) == MOST
    foretold.heard(THERE, [FIRST], (), 11.0 + KNOWN)
    assert foretold.of(THERE) == [FIRST]


@pytest.mark.parametrize(
    "told",
    [
        None,
        ["job", 0, 1, 1],
        [b"job", 0, 1, 1, AUTHOR],
        ["job", 0, 1, 1, b"short"],
        ["job", -1, 1, 1, AUTHOR],
        ["job", 0, 1 << 40, 1, AUTHOR],
        ["job", 0, True, 1, AUTHOR],
        ["job", 0, 1, 0, AUTHOR],  # an attempt that is none
        ["job", 0, 1, 2, AUTHOR],  # more attempts than claims
    ],
)
def test_what_is_no_claim_is_not_heard(told: Any) -> None:
    assert read_told(told) is None


def test_a_claim_is_read_as_it_was_told() -> None:
    assert read_told(list(FIRST)) == FIRST


def test_a_job_that_another_begins_is_not_claimed_before_its_row_tells_of_it(desk: Desk) -> None:
    job_id, foretold = desk.enqueue(max_attempts=3), Foretold()
    foretold.heard(THERE, [FIRST._replace(job_id=job_id)], (), 0.0)
    assert claims(desk, foretold) == []
    die(desk, FIRST._replace(job_id=job_id))
    assert [(job.job_id, job.attempt) for job in claims(desk, foretold)] == [(job_id, 2)]


def test_what_a_device_had_begun_that_died_counts_as_an_attempt_and_is_seen(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=2)
    assert die(desk, FIRST._replace(job_id=job_id)) == [job_id]
    assert desk.run_words(job_id) == ["lost"]
    (second,) = claims(desk, Foretold())
    assert (second.attempt, second.holder.claim) == (2, 2)


def test_without_attempts_left_the_job_fails(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=2)
    assert die(desk, Told(job_id, 0, 2, 2, AUTHOR)) == [job_id]  # the first one died as well, and nobody had the time to write it
    assert (desk.status(job_id), desk.row(job_id).error) == ("failed", "worker lost")


def test_a_claim_spends_one_attempt_at_most_whatever_is_told(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=3)
    desk.end(desk.claim_one(), "released")
    assert desk.row(job_id).claim == 1
    die(desk, Told(job_id, 0, 2, 2, AUTHOR))
    assert desk.row(job_id).attempt == 1


@pytest.mark.parametrize("told", [Told("", 0, 1, 1, AUTHOR), Told("", 1, 2, 1, AUTHOR)], ids=["a row tells of it", "another generation"])
def test_what_is_known_already_or_of_another_generation_counts_no_more(desk: Desk, told: Told) -> None:
    job_id = desk.enqueue(max_attempts=3)
    desk.end(desk.claim_one(), "retry", retry_at=desk.clock.now)
    before = desk.row(job_id)
    assert die(desk, told._replace(job_id=job_id)) == []
    assert desk.row(job_id) == before


def test_a_paused_job_and_one_that_is_not_here_are_left_as_they_are(desk: Desk) -> None:
    job_id = desk.enqueue(max_attempts=1)
    desk.hold(job_id)
    assert die(desk, FIRST._replace(job_id=job_id), FIRST) == []
    assert desk.status(job_id) == "paused"


def test_saying_it_again_and_again_keeps_a_job_from_others_no_longer() -> None:
    foretold = Foretold()
    blocked = 0
    for second in range(30):
        foretold.heard(THERE, [FIRST], (), float(second))
        blocked += "job" in foretold.taken(float(second))
    assert blocked <= HELD + 1


def test_a_claim_far_ahead_of_what_is_known_of_a_job_spends_nothing(desk: Desk) -> None:
    job_id = desk.enqueue()
    assert die(desk, Told(job_id, 0, 1 << 39, 1 << 39, AUTHOR)) == []
    assert (desk.status(job_id), desk.row(job_id).attempt) == ("queued", 0)
