"""Waits between attempts: growing, spread, capped; and which failures are tried again."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from statistics import mean
from typing import Any

import pytest

from p2pqueue import Backoff, ConfigError
from p2pqueue.jobs.backoff import is_retried, kind_of, kinds_of


def test_the_bound_doubles_up_to_the_cap() -> None:
    assert [Backoff().bound(attempt) for attempt in (1, 2, 3, 7, 8, 9, 10_000)] == [5, 10, 20, 320, 600, 600, 600]


def test_five_hundred_jobs_that_fail_together_come_back_spread_out() -> None:
    """Celery and Payload retried all of them at the same instants."""
    random, backoff = Random(18), Backoff(first=5)
    means = []
    for attempt in range(1, 6):
        delays = [backoff.delay(attempt, random.random()) for _ in range(500)]
        bound = backoff.bound(attempt)
        assert all(0 <= delay <= bound for delay in delays)
        tenths = [sum(bound * k / 10 <= delay < bound * (k + 1) / 10 for delay in delays) for k in range(10)]
        assert max(tenths) < 100, "no tenth of the wait gets a fifth of the jobs"
        means.append(mean(delays))
    assert means == sorted(means)


def test_a_backoff_survives_its_column() -> None:
    backoff = Backoff(timedelta(minutes=1), factor=1.5, cap=timedelta(hours=1))
    assert Backoff.from_json(backoff.to_json()) == backoff == Backoff(60, factor=1.5, cap=3600)


def test_a_null_is_the_default_and_unknown_keys_are_ignored() -> None:
    assert Backoff.from_json(None) == Backoff()
    assert Backoff.from_json('{"first": 1, "curve": "spiral"}') == Backoff(first=1)


@pytest.mark.parametrize("text", ["", "[]", "5", '{"first": "soon"}', '{"factor": 0.5}'])
def test_what_is_no_backoff_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match="backoff"):
        Backoff.from_json(text)


@pytest.mark.parametrize("wrong", [{"first": -1}, {"factor": 0.9}, {"cap": -1}, {"first": float("nan")}, {"cap": float("inf")}])
def test_a_backoff_that_shrinks_or_never_ends_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="at least"):
        Backoff(**wrong)


@pytest.mark.parametrize("wrong", ["1h", None, True])
def test_a_wait_that_is_no_duration_is_refused_in_words(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a number of seconds or a timedelta, not"):
        Backoff(wrong)


class Flaky(ConnectionError):
    pass


KINDS = kinds_of(Flaky())


@pytest.mark.parametrize(
    ("retry_on", "retried", "reason"),
    [
        (None, True, "the default is every exception"),
        ((), False, "an empty list retries nothing"),
        (("ConnectionError",), True, "a base class"),
        (("OSError",), True, "a base of the base"),
        (("ValueError",), False, "another kind"),
        ((kind_of(Flaky),), True, "the class itself, with its module"),
        (("Flaky",), True, "the bare name, whatever module a worker loaded it as"),
        (("Error",), False, "no part of a name"),
    ],
)
def test_a_failure_is_retried_by_the_names_of_its_classes(retry_on: tuple[str, ...] | None, retried: bool, reason: str) -> None:
    assert is_retried(KINDS, retry_on) is retried, reason


def test_leaving_is_no_failure_to_retry() -> None:
    assert not is_retried(kinds_of(SystemExit()), None)
