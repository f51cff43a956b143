"""What became of a handler decides how its attempt ends."""

from __future__ import annotations

from typing import Any

import pytest

from p2pqueue.jobs.job import Holder
from p2pqueue.workers.children.protocol import (
    Continued,
    Crashed,
    Failed,
    Outcome,
    RetryLater,
    Stopped,
    Succeeded,
    TaskDescription,
    TimedOut,
)
from p2pqueue.workers.claimed import ClaimedJob, Ending
from p2pqueue.workers.endings import ending_of

NOW = 1_700_000_000_000
TASK = TaskDescription("work", backoff='{"first": 10, "factor": 2, "cap": 60}', retry_on=("ConnectionError",))


def claimed(**changes: Any) -> ClaimedJob:
    values: dict[str, Any] = {
        "job_id": "j", "task": "work", "queue": "default", "args": b"\x80", "options": b"\x80", "title": None,
        "holder": Holder(0, 1, "me"), "attempt": 1, "max_attempts": 3, "claimed_at": NOW, "timeout": None, "stall_timeout": None,
        "backoff": None, "retry_on": None, "input_manifest": None, "has_input": False, "checkpoint": None, "error": None,
    }  # fmt: skip
    return ClaimedJob(**(values | changes))


def end(outcome: Outcome, job: ClaimedJob | None = None, task: TaskDescription | None = TASK) -> Ending:
    return ending_of(job or claimed(), outcome, task, author=b"a" * 16, now=NOW, duration=1.5, random=lambda: 0.5)


@pytest.mark.parametrize(
    ("outcome", "how"),
    [
        (Succeeded(b"\xc0"), "succeeded"),
        (Failed("ConnectionError: gone", kinds=("ConnectionError", "OSError", "Exception")), "retry"),
        (Failed("ValueError: bad", kinds=("ValueError", "Exception")), "failed"),  # not in retry_on: no further attempt
        (TimedOut("took longer than 5 s"), "retry"),
        (Crashed("killed by signal 9 (SIGKILL)"), "crashed"),
        (Continued(b"state"), "released"),
        (Stopped("cancelled"), "cancelled"),
        (Stopped("held"), "released"),
        (Stopped("shutdown"), "released"),  # an orderly stop gives the attempt back
        (Stopped("lost"), "lost"),
    ],
)
def test_each_outcome_has_its_ending(outcome: Outcome, how: str) -> None:
    assert end(outcome).how == how


def test_a_failure_that_no_attempt_can_mend_ends_the_job_whatever_is_retried() -> None:
    failed = Failed("TypeError: odd", kinds=("TypeError", "Exception"), final=True)
    assert end(failed, claimed(retry_on='["TypeError"]')).how == "failed"
    assert end(failed, task=None).how == "failed"


def test_a_retry_waits_by_the_backoff_of_the_task_with_jitter() -> None:
    assert end(Failed("ConnectionError", kinds=("ConnectionError",))).retry_at == NOW + 5_000


def test_the_backoff_of_the_job_goes_before_that_of_its_task() -> None:
    job = claimed(backoff='{"first": 100, "factor": 2, "cap": 600}', retry_on='["ValueError"]', attempt=2)
    ending = end(Failed("ValueError", kinds=("ValueError",)), job)
    assert (ending.how, ending.retry_at) == ("retry", NOW + 100_000)


def test_a_handler_that_names_a_delay_gets_it() -> None:
    assert end(RetryLater("later", delay=7.0)).retry_at == NOW + 7_000


def test_a_delay_beyond_a_year_or_below_nothing_is_bounded() -> None:
    assert end(RetryLater("later", delay=-5.0)).retry_at == NOW
    assert end(RetryLater("later", delay=1e18)).retry_at == NOW + 366 * 86_400_000
