"""What a worker remembers of jobs that others may do earlier."""

from __future__ import annotations

import pytest

from p2pqueue.jobs.waiting import Ability, Demand
from p2pqueue.workers.claiming import contest as module
from p2pqueue.workers.claiming.contest import Contest, Survey
from p2pqueue.workers.claiming.presence import Presence
from p2pqueue.workers.claiming.ranking import BACKSTOP, STEP, TURNOVER, Decision, Go, Wait

RENDER = Demand("render", frozenset(), None, True)
JOBS = [f"job-{number}" for number in range(40)]


def worker(name: str, score: int = 60, *, free: int = 1, slots: int = 2) -> Presence:
    return Presence(name * 32, Ability(name, frozenset({"render"})), score, slots=slots, free=free)


TAKERS = ["b" * 32, None]  # who has what can't be claimed any more
ME, STRONG = worker("a"), worker("b", 600)


def look(survey: Survey, *jobs: str) -> dict[str, Decision]:
    return {job: survey.decide(job, RENDER, shared=True, holders=frozenset()) for job in jobs}


def see(contest: Contest, at: float, *jobs: str, others: list[Presence], turned: dict[str, float] | None = None) -> dict[str, Decision]:
    survey = contest.begin(ME, others, at, turned or {})
    found = look(survey, *jobs)
    survey.end([job for job, decision in found.items() if isinstance(decision, Go)], complete=True, takers=lambda jobs: TAKERS)
    return found


def test_a_job_waits_from_when_it_was_seen_first_and_not_anew_at_each_look() -> None:
    contest = Contest()
    assert isinstance(see(contest, 10.0, "one", others=[STRONG])["one"], Wait)
    assert contest.until == 10.0 + STEP
    assert isinstance(see(contest, 10.0 + STEP / 2, "one", "two", others=[STRONG])["one"], Wait)
    later = see(contest, 10.0 + STEP, "one", "two", others=[STRONG])
    assert later["one"] == Go(contested=True, last=1)
    assert isinstance(later["two"], Wait)
    assert contest.until == 10.0 + STEP / 2 + STEP


def test_a_job_that_another_began_is_a_new_sight_when_it_is_free_again() -> None:
    contest = Contest()
    see(contest, 10.0, "one", "two", others=[STRONG])
    contest.lose_sight({"one": (STRONG.device_id, 10.1), "other": (STRONG.device_id, 10.1)})
    found = see(contest, 10.2 + STEP, "one", "two", others=[STRONG])
    assert isinstance(found["one"], Wait)
    assert isinstance(found["two"], Go)


def test_who_tells_that_it_begins_something_is_at_work() -> None:
    busy, contest = worker("b", 600, free=0), Contest()
    see(contest, 10.0, *JOBS, others=[busy])
    contest.lose_sight({JOBS[0]: (busy.device_id, 10.0 + BACKSTOP)})
    assert all(isinstance(each, Wait) for each in see(contest, 10.1 + BACKSTOP, *JOBS[1:], others=[busy]).values())


def test_why_a_job_is_left_can_be_asked() -> None:
    contest = Contest()
    see(contest, 10.0, "one", others=[STRONG])
    assert contest.reasons == {"one": ("left to b, which is expected to finish it earlier", 10.0 + STEP)}
    see(contest, 11.0, others=[STRONG])
    assert (contest.reasons, contest.until, contest.waiting) == ({}, None, 0)


def test_a_worker_that_goes_from_job_to_job_is_left_its_share_of_a_backlog() -> None:
    contest, busy = Contest(), worker("b", free=0)
    first = see(contest, 10.0, *JOBS, others=[busy], turned={busy.device_id: 10.0})
    mine = [job for job, decision in first.items() if isinstance(decision, Go)]
    theirs = [job for job in JOBS if job not in mine]
    assert 10 < len(mine) < 30
    again = see(contest, 10.2, *theirs[1:], others=[busy])  # it took one: the others stay left to it
    assert all(isinstance(decision, Wait) for decision in again.values())
    after = see(contest, 10.2 + STEP + 0.01, *theirs[1:], others=[busy])
    assert [job for job, decision in after.items() if isinstance(decision, Wait)] == theirs[1:3]  # those that it takes next
    assert all(isinstance(decision, Go) for decision in see(contest, 10.2 + TURNOVER, *theirs[1:3], others=[busy]).values())


def test_what_a_busy_worker_would_take_next_is_taken_after_the_rest() -> None:
    busy = worker("b", free=0)
    found = see(Contest(), 10.0, *JOBS, others=[busy])  # it has taken nothing for long: nothing is left to it
    assert [decision for decision in found.values() if isinstance(decision, Wait)] == []
    assert [decision.last for decision in found.values() if isinstance(decision, Go)].count(2) == busy.slots


def test_nobody_is_waited_for_longer_than_the_back_stop() -> None:
    contest, busy = Contest(), worker("b", free=0)
    for tenth in range(int(BACKSTOP * 10)):
        see(contest, 10.0 + tenth / 10, "one", others=[busy, worker("c", 6000, free=0)], turned={busy.device_id: 10.0 + tenth / 10})
    assert contest.waiting == 1
    assert isinstance(see(contest, 10.0 + BACKSTOP, "one", others=[busy, worker("c", 6000, free=0)])["one"], Go)


def test_a_look_that_did_not_come_to_the_end_forgets_nothing() -> None:
    contest = Contest()
    see(contest, 10.0, "one", "two", others=[STRONG])
    survey = contest.begin(ME, [STRONG], 10.1, {})
    look(survey, "two")
    survey.end([], complete=False, takers=lambda jobs: [])
    assert isinstance(see(contest, 10.0 + STEP, "one", others=[STRONG])["one"], Go)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    contest = Contest()
    see(contest, 10.0, *JOBS, others=[STRONG])
    assert contest.waiting == 10
