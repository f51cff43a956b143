from __future__ import annotations

from typing import Any

import pytest

from p2pqueue import wire
from p2pqueue.jobs.waiting import EXEC_TASK, Ability, Demand, unfit
from p2pqueue.workers.claiming.presence import GONE_AFTER, GRACE_ALONE, GRACE_LINKED, Presence, Roster, read_presence

STUDIO = Presence(
    "s" * 32,
    Ability("studio", frozenset({"render", "mix"}), frozenset({"gpu"}), 5_000, {"mix": 100}, {"render": frozenset({"ffmpeg"})}, {"ffmpeg"}),
    score=240,
    slots=8,
    free=3,
    disk=10**11,
    version="1.2",
)


def told(presence: Presence) -> Presence:
    return read_presence(presence.device_id, wire.unpack(wire.pack(presence.to_fields())))


def test_a_presence_that_was_told_says_the_same_of_its_worker() -> None:
    heard = told(STUDIO)
    assert (heard.label, heard.score, heard.slots, heard.free, heard.native, heard.disk) == ("studio", 240, 8, 3, True, 10**11)
    assert heard.ability.tasks == {"render", "mix"}
    assert unfit(Demand("mix", frozenset(), 101, True), heard.ability) == "too large for studio: 101 bytes where it takes at most 100"
    assert unfit(Demand("render", frozenset({"gpu", "ffmpeg"}), 4_000, True), heard.ability) is None


def test_a_task_whose_needs_are_not_met_is_not_told() -> None:
    lacking = Presence("s" * 32, STUDIO.ability._replace(programs=frozenset()), 240, 8, 3)
    assert told(lacking).ability.tasks == {"mix"}


def test_programs_run_only_where_the_owner_allows_them() -> None:
    ability = Ability("studio", frozenset({EXEC_TASK, "encode"}), allow_exec=True, exec_tasks=frozenset({"encode"}))
    allowed, forbidden = (told(Presence("s" * 32, ability._replace(allow_exec=allow), 1, 1, 1)) for allow in (True, False))
    for task in (EXEC_TASK, "encode"):
        assert unfit(Demand(task, frozenset(), None, True), allowed.ability) is None
        assert unfit(Demand(task, frozenset(), None, True), forbidden.ability) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"label": 7, "tasks": "render", "tags": {"a": 1}, "score": "many", "slots": -4, "free": True, "max_inputs": [1], "disk": "big"},
        {"tasks": [["render"], None, "x" * 300], "max_inputs": {1: 2, "a": -1, "b": "c"}, "native": None},
    ],
)
def test_odd_fields_count_as_not_told(fields: dict[str, Any]) -> None:
    heard = read_presence("d" * 32, fields)
    assert (heard.label, heard.ability.tasks, heard.ability.max_input_by_task) == ("d" * 8, frozenset(), {})
    assert (heard.score, heard.slots, heard.free) == (0, 0, 0)


def test_a_worker_that_is_not_heard_any_more_is_gone() -> None:
    roster = Roster(started=0.0, others=True)
    assert roster.heard(STUDIO, 1.0)
    assert not roster.heard(STUDIO, 5.0)  # nothing new
    assert roster.live(5.0 + GONE_AFTER - 0.1) == [STUDIO]
    assert roster.live(5.0 + GONE_AFTER) == []


def test_a_worker_that_says_goodbye_is_gone_at_once() -> None:
    roster = Roster(started=0.0, others=True)
    roster.heard(STUDIO, 1.0)
    roster.gone(STUDIO.device_id)
    assert roster.live(1.0) == []


def test_a_device_without_others_holds_nothing_off() -> None:
    assert Roster(started=0.0, others=False).waits_until(0.0) is None
    assert Roster(started=0.0, others=False).holds_off("box", 0.0) is None


def test_a_device_without_a_network_holds_nothing_off_until_it_has_one() -> None:
    roster = Roster(started=0.0, others=True, hears=False)
    assert roster.waits_until(0.0) is None
    roster.hears = True
    assert roster.waits_until(1.0) == GRACE_ALONE


def test_after_the_start_the_first_presence_is_waited_for_but_not_for_ever() -> None:
    roster = Roster(started=10.0, others=True)
    assert roster.waits_until(10.0) == 10.0 + GRACE_ALONE
    assert roster.holds_off("box", 10.0) == "box has just started, and hears first what other devices did (7 s at most)"
    roster.linked(11.0)
    roster.linked(12.0)  # the first counts
    assert roster.waits_until(11.0) == 11.0 + GRACE_LINKED
    assert roster.waits_until(11.0 + GRACE_LINKED) is None
    roster.heard(STUDIO, 11.5)
    assert roster.waits_until(11.5) is None
    assert roster.holds_off("box", 11.5) is None


def test_after_the_start_what_became_of_jobs_is_waited_for_too_but_not_for_ever() -> None:
    behind = True
    roster = Roster(started=10.0, others=True, behind=lambda since: behind)
    roster.linked(11.0)
    roster.heard(STUDIO, 11.1)
    until = roster.waits_until(11.1)
    assert until is not None
    assert 11.1 < until < 11.3
    assert roster.waits_until(11.0 + GRACE_LINKED) is None
    behind = False
    assert roster.waits_until(11.2) is None
    behind = True  # as when the link is lost: it has been told once
    assert roster.waits_until(11.3) is None


@pytest.mark.parametrize("wall", [3_600.0, 8 * 3_600.0], ids=["a clock that went on", "a clock that stood still"])
def test_after_a_sleep_a_worker_hears_first_what_others_did(wall: float) -> None:
    synced = 11.0
    roster = Roster(started=10.0, others=True, behind=lambda since: synced < since)
    roster.linked(10.5)
    roster.heard(STUDIO, 10.6)
    for second in range(4):
        roster.look(11.0 + second, 1_000.0 + second)
    assert roster.waits_until(14.0) is None
    woke = 14.5 if wall > 3_600.0 else 14.5 + wall  # a monotonic clock may stand still meanwhile
    roster.look(woke, 1_003.0 + wall)
    assert roster.live(woke) == []
    assert roster.waits_until(woke) == woke + GRACE_ALONE
    assert "box has just woken" in (roster.holds_off("box", woke) or "")
    roster.linked(woke + 1)
    roster.heard(STUDIO, woke + 1)
    assert roster.waits_until(woke + 1) is not None
    synced = woke + 1.2
    assert roster.waits_until(woke + 1.3) is None


def test_a_pause_of_a_busy_loop_is_no_sleep() -> None:
    roster = Roster(started=10.0, others=True)
    roster.heard(STUDIO, 10.0)
    for second in range(5):
        roster.look(10.0 + 2.5 * second, 1_000.0 + 2.5 * second)
    assert roster.waits_until(20.0) is None
    assert roster.live(20.0) == [STUDIO]
