"""What does a run make of what has become of its job? Whether it goes on, goes on beside a newer claim, or stops.

Two may run one job: a partition has healed, or two claimed at the same moment. The one that holds the newer claim goes
on; the other stops, unless it is so much further on that its success is likely to come first. Pure.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from p2pqueue.jobs.job import Holder

AHEAD: Final = 0.01  # of the whole, by which an outranked run must be further on

Course = Literal["holds", "beside", "cancelled", "held", "lost"]  # the last three, and "cancelled", stop it


class Found(NamedTuple):
    """A job as its row shows it now; `status` is None where it was deleted."""

    status: str | None
    generation: int
    claim: int
    worker_id: str | None
    progress: float


def course(holder: Holder, found: Found, *, progress: float, recorded: bool) -> Course:
    """What a run goes on to do whose claim is `holder`; `recorded`: its claim stands in the row, if nothing outranked it."""
    if found.status in (None, "cancelled"):
        return "cancelled"
    if found.generation != holder.generation or found.status == "succeeded":
        return "lost"
    if found.status == "paused":
        return "held"
    if (found.claim, found.worker_id) == (holder.claim, holder.worker_id):
        return "holds"
    if found.status == "running":
        return "beside" if progress >= found.progress + AHEAD else "lost"
    return "beside" if recorded else "holds"
