"""Leases are judged by the watcher's own clock, by changes that it saw."""

from __future__ import annotations

import math

from p2pqueue.workers.claiming.lease import LeaseWatch, Vigil


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


def vigil() -> Vigil:
    """One that has judged alone, since its start at 0."""
    made = Vigil(LeaseWatch(45.0), since=0.0)
    assert made.may_judge(1.0, usable=True, synced=None)
    return made


def test_a_round_that_was_finished_before_the_next_look_lets_judge() -> None:
    assert vigil().may_judge(100.0, usable=True, synced=98.0)


def test_a_link_without_a_finished_round_is_waited_for_as_long_as_a_lease_lasts() -> None:
    watching = vigil()
    assert not watching.may_judge(100.0, usable=True, synced=-math.inf)
    assert not watching.may_judge(144.0, usable=True, synced=-math.inf)
    assert watching.may_judge(145.0, usable=True, synced=-math.inf)


def test_a_round_after_such_a_wait_lets_judge() -> None:
    watching = vigil()
    assert not watching.may_judge(100.0, usable=True, synced=-math.inf)
    assert watching.may_judge(103.0, usable=True, synced=102.0)


def test_after_a_wake_only_a_later_round_counts() -> None:
    watching = vigil()
    assert watching.may_judge(10.0, usable=True, synced=9.0)
    watching.woke(50.0)
    assert not watching.may_judge(51.0, usable=True, synced=9.0)
    assert watching.may_judge(53.0, usable=True, synced=52.0)


def test_without_a_network_nothing_is_judged() -> None:
    assert not vigil().may_judge(10.0, usable=False, synced=None)
