"""A worker takes what it can do, and says why it leaves the rest."""

from __future__ import annotations

import pytest

from p2pqueue.jobs.waiting import Ability, Demand, Situation, reason
from p2pqueue.workers.claiming.claim import Leave, Take, judge

LAPTOP = Ability(
    label="laptop",
    tasks=frozenset({"transcode", "render", "shrink"}),
    tags=frozenset({"quiet"}),
    max_input=1000,
    max_input_by_task={"shrink": 10},
    needs_by_task={"render": frozenset({"gpu"})},
    programs=frozenset({"ffmpeg"}),
    exec_tasks=frozenset({"shrink"}),
)


def demand(task: str = "transcode", *needs: str, size: int | None = None, ready: bool = True) -> Demand:
    return Demand(task, frozenset(needs), size, ready)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (demand("upscale"), "no running node here has the task 'upscale'"),  # not registered
        (demand("render"), "laptop lacks gpu"),  # what the task itself needs
        (demand("transcode", "gpu", "quiet"), "laptop lacks gpu"),  # one need of two is met
        (demand("transcode", size=1001), "too large for laptop: 1,001 bytes where it takes at most 1,000"),  # an input may change
        (demand("exec"), "laptop runs no programs: start its node with --allow-exec"),
        (demand("shrink"), "laptop runs no programs: start its node with --allow-exec"),  # a command task is a program too
        (demand("transcode", size=5, ready=False), "its input is on another device"),
    ],
)
def test_a_worker_leaves_what_it_can_not_do_and_says_why(wanted: Demand, words: str) -> None:
    assert judge(wanted, LAPTOP) == Leave(words)


@pytest.mark.parametrize(
    "wanted",
    [
        demand("transcode"),
        demand("transcode", "ffmpeg"),  # met by a program on PATH, without a tag
        demand("transcode", "quiet"),
        demand("transcode", size=1000),  # exactly the limit
        demand("transcode", size=None),  # unknown size passes
    ],
)
def test_a_worker_takes_what_it_can_do(wanted: Demand) -> None:
    assert judge(wanted, LAPTOP) == Take()


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("status", "run_at", "retry_at", "ability", "words"),
    [
        ("running", None, None, LAPTOP, None),
        ("succeeded", None, None, LAPTOP, None),
        ("paused", None, None, LAPTOP, "paused: `p2pqueue resume` lets it run"),
        ("queued", NOW + 1000, None, LAPTOP, "scheduled for 2023-11-14T22:13:21Z"),
        ("queued", None, NOW + 1000, LAPTOP, "runs again at 2023-11-14T22:13:21Z, after: it broke"),
        ("queued", None, None, None, "no node runs here: start one with `p2pqueue run`"),
        ("queued", NOW - 1, NOW - 1, LAPTOP, "waiting for a free slot"),
    ],
)
def test_a_job_says_why_it_waits(status: str, run_at: int | None, retry_at: int | None, ability: Ability | None, words: str | None) -> None:
    situation = Situation(status, demand(), run_at, retry_at, "it broke", None)
    assert reason(situation, ability, NOW) == words


def test_a_task_that_no_node_ever_had_is_named() -> None:
    situation = Situation("queued", demand("transcod"), None, None, None, None)
    words = reason(situation, None, NOW, known_tasks={"transcode"})
    assert words == "no node runs here, and none has had the task 'transcod': start one with `p2pqueue run`"


def test_what_stood_in_the_way_of_the_last_try_is_told() -> None:
    situation = Situation("queued", demand(), None, None, None, "the input /x changed since it was enqueued")
    assert reason(situation, LAPTOP, NOW) == "the input /x changed since it was enqueued"


STUDIO = Ability("studio", frozenset({"transcode", "render", "upscale"}), frozenset({"gpu"}))
NAS = Ability("nas", frozenset({"transcode"}), max_input=10)


@pytest.mark.parametrize(
    ("wanted", "others", "shared", "words"),
    [
        (demand("transcode", size=2000), {"s": STUDIO, "n": NAS}, True, "too large for laptop, waiting for studio"),
        (demand("transcode", size=2000), {"n": NAS}, True, "too large for laptop: 2,000 bytes where it takes at most 1,000, "
         "and no other device that is linked can take it"),
        (demand("render"), {"s": STUDIO}, True, "laptop lacks gpu, waiting for studio"),
        (demand("render"), {"n": NAS}, True, "laptop lacks gpu, and no other device that is linked can take it"),
        (demand("upscale"), {"s": STUDIO}, True, "laptop has no task 'upscale', waiting for studio"),
        (demand("paint"), {"s": STUDIO, "n": NAS}, True, "no device that is linked has the task 'paint'"),
        (demand("transcode", size=5, ready=False), {"s": STUDIO, "n": NAS}, False, "its input is on another device, waiting for studio"),
        (demand("transcode", size=500, ready=False), {"n": NAS}, False, "its input is on another device, which has not shared it yet"),
    ],
)  # fmt: skip
def test_a_job_says_for_which_other_device_it_waits(wanted: Demand, others: dict[str, Ability], shared: bool, words: str) -> None:
    situation = Situation("queued", wanted, None, None, None, None, shared, source="s")
    assert reason(situation, LAPTOP, NOW, others=others) == words


def test_a_job_that_could_run_here_says_to_whom_it_is_left() -> None:
    situation = Situation("queued", demand(), None, None, None, None)
    assert reason(situation, LAPTOP, NOW, others={"s": STUDIO}, left="left to studio") == "left to studio"
    assert reason(situation, LAPTOP, NOW, others={"s": STUDIO}) == "waiting for a free slot"
