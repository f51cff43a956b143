"""What a worker tells others of what it begins."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from p2pqueue.jobs.job import Holder
from p2pqueue.jobs.waiting import Ability
from p2pqueue.workers.claiming.company import TOLD_AT_ONCE, Company
from p2pqueue.workers.claiming.presence import Presence, Roster

ME = Presence("aa" * 16, Ability("here"), 30, slots=1, free=1)
AUTHOR = bytes(16)
JOB: Any = SimpleNamespace(job_id="job", holder=Holder(0, 3, ME.device_id), attempt=2)
BACK: Any = SimpleNamespace(job=SimpleNamespace(job_id="back"), unstarted=True)
ENDED: Any = SimpleNamespace(job=SimpleNamespace(job_id="ended"), unstarted=False)


class Told:
    """A worker's company, and what it told."""

    def __init__(self, *, others: bool = True) -> None:
        self.said: list[tuple[Any, Any]] = []
        roster = Roster(started=time.monotonic(), others=others)
        self.company = Company(roster, lambda: ME, lambda: None, lambda begun, back: self.said.append((begun, back)))


@pytest.mark.parametrize(
    ("claimed", "endings", "said"),
    [
        ([JOB], [], [([("job", 0, 3, 2, AUTHOR)], [])]),
        ([], [BACK, ENDED], [([], ["back"])]),
        ([], [ENDED], []),
    ],
    ids=["what begins", "what is given back and had not begun", "what has ended is told by its row"],
)
def test_others_are_told(claimed: list[Any], endings: list[Any], said: list[Any]) -> None:
    told = Told()
    told.company.begins(claimed, AUTHOR, endings)
    assert told.said == said


def test_a_device_by_itself_tells_nobody() -> None:
    told = Told(others=False)
    told.company.begins([JOB], AUTHOR, [])
    assert told.said == []


def test_so_many_claims_as_nobody_could_hear_are_told_in_part() -> None:
    told = Told()
    for _ in range(1_000):
        told.company.begins([JOB], AUTHOR, [])
    assert TOLD_AT_ONCE <= len(told.said) < 3 * TOLD_AT_ONCE
