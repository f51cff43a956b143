"""Leases are judged by the watcher's own clock, by changes that it saw."""

from __future__ import annotations

from p2pqueue.workers.lease import LeaseWatch


def test_a_lease_that_changes_is_never_stale() -> None:
    watch = LeaseWatch(stale_after=45.0)
    for beat in range(20):
        watch.observe({"job": beat}, now=beat * 10.0)
        assert watch.stale(now=beat * 10.0 + 9.9) == []


def test_a_lease_that_stands_still_is_stale_after_the_limit_since_it_was_last_seen_to_change() -> None:
    watch = LeaseWatch(stale_after=45.0)
    watch.observe({"job": 1}, now=100.0)
    watch.observe({"job": 1}, now=144.0)
    assert watch.stale(now=144.9) == []
    assert watch.stale(now=145.0) == ["job"]
    assert watch.due(now=140.0) == 5.0


def test_a_job_that_ends_is_no_longer_watched() -> None:
    watch = LeaseWatch(stale_after=45.0)
    watch.observe({"job": 1}, now=0.0)
    watch.observe({}, now=1.0)
    assert watch.stale(now=1000.0) == []
    assert watch.due(now=1000.0) is None


def test_after_a_sleep_of_the_watcher_nobody_is_stale_at_once() -> None:
    watch = LeaseWatch(stale_after=45.0)
    watch.observe({"job": 1}, now=0.0)
    watch.restart(now=30_000.0)
    assert watch.stale(now=30_000.0) == []
    assert watch.stale(now=30_045.0) == ["job"]
