"""Decides which jobs this worker may claim next. Pure: a job's demand and the worker's ability go in; a decision
with its reason comes out."""

from __future__ import annotations

from dataclasses import dataclass

from p2pqueue.jobs.waiting import Ability, Demand, unfit


@dataclass(frozen=True, slots=True)
class Take:
    """The worker may claim the job now."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The worker leaves the job queued, and why: as long as its node runs and nothing new is written of the job."""

    reason: str


Verdict = Take | Leave
_TAKE = Take()


def judge(demand: Demand, ability: Ability) -> Verdict:
    """Says whether this worker may claim a job of that demand now."""
    reason = unfit(demand, ability)
    return _TAKE if reason is None else Leave(reason)
