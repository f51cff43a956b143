"""Which state may a job go to next, and which stamp carries the step there?

Pure: a state, who asks and the time go in; a `Transition`, or a `Refused` with its reason, comes out. The
`state` register merges by stamp = (generation, rank, claim, hlc, author), so a step is right exactly when its
stamp outranks the one before it::

    step          from                      to          generation  rank     claim  attempt  who may
    ------------  ------------------------  ----------  ----------  -------  -----  -------  ---------------------------
    claim         queued, due, not held     running     same        0        + 1    + 1      any worker
    claim(stale)  running, not held         running     same        0        + 1    + 1      any worker that saw it stale
    release       running                   queued      same        0        same   - 1      the holder
    recover       running                   queued (*)  same        0        same   same     the holder's own next start
    worker_lost   running, not held         queued (*)  same        0        same   same     any worker that saw it stale
    requeue       running                   queued      same        0        same   same     the holder
    fail          running                   failed      same        1        0      same     the holder
    exhausted     queued, no attempt left   failed      same        1        0      same     whoever sees it
    give_up       queued, not held          failed      same        1        0      same     whoever sees it
    succeed       running                   succeeded   same        2        0      same     the holder
    succeed       failed                    succeeded   same        2        0      same     a rival attempt that ends later
    cancel        queued, running           cancelled   same        3        0      same     anybody
    retry         succeeded failed cancelled  queued    + 1         0        0      0        anybody

    (*) failed ("worker lost") instead when no attempt is left and the job is not held.

Two steps with equal (generation, rank, claim) are ordered by hlc: the later wins at rank 0, the earlier among
terminal ones (their stamp carries the negated hlc: `Transition.earliest`). The column `claim` keeps the number
of the last claim also where the stamp carries 0. `held` is a register of its own: it blocks the steps marked
"not held", and is shown as *paused*. The values are named tuples: a worker makes several for each of its jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from p2pqueue.replica.stamp import RETRY_BITS

RANK: Final[Mapping[str, int]] = {"queued": 0, "running": 0, "failed": 1, "succeeded": 2, "cancelled": 3}
TERMINAL: Final = frozenset(status for status, rank in RANK.items() if rank)
MAX_RETRIES: Final = (1 << RETRY_BITS) - 1  # retries of one life: the low bits of the generation
WORKER_LOST: Final = "worker lost"


class JobState(NamedTuple):
    """The `state` register of a job, and the generation of its stamp.

    Times are milliseconds UTC. `claim` numbers the last claim of this generation.
    """

    generation: int
    status: str = "queued"
    attempt: int = 0
    claim: int = 0
    worker_id: str | None = None
    worker_label: str | None = None
    claimed_at: int | None = None
    finished_at: int | None = None
    retry_at: int | None = None
    result_id: str | None = None
    error: str | None = None
    checkpoint_stamp: str | None = None

    @property
    def rank(self) -> int:
        """The rank of this status in the merge order."""
        return RANK[self.status]

    @property
    def is_terminal(self) -> bool:
        """Says whether the job has ended in this generation."""
        return self.status in TERMINAL

    def values(self) -> dict[str, Any]:
        """The columns of the `state` register, by their names on the wire."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS: Final = JobState._fields[1:]


def read_state(spec_generation: int, state_generation: int | None, values: Mapping[str, Any]) -> JobState:
    """The state of a job from its row; `values` holds the columns of `state` by their names on the wire.

    A state of an earlier life than the job's `spec` counts for nothing: such a job is queued.
    """
    if state_generation is None or state_generation >> RETRY_BITS < spec_generation >> RETRY_BITS:
        return JobState(generation=spec_generation >> RETRY_BITS << RETRY_BITS)
    known = {name: values[name] for name in COLUMNS}
    return JobState(state_generation, **known | {"attempt": known["attempt"] or 0, "claim": known["claim"] or 0})


class Holder(NamedTuple):
    """A claim as its worker knows it: only the worker that still holds the job by it may end or release it."""

    generation: int
    claim: int
    worker_id: str

    @property
    def claimed(self) -> tuple[int, int]:
        """Generation and number of the claim."""
        return (self.generation, self.claim)


class Transition(NamedTuple):
    """A step that may be taken: the new state, and how to write it.

    `clears_hold` and `clears_checkpoint`: the same transaction writes these registers too, `hold` as 0, and
    `checkpoint` as null at the new generation.
    """

    state: JobState
    clears_hold: bool = False
    clears_checkpoint: bool = False

    @property
    def status(self) -> str:
        """The status the job goes to."""
        return self.state.status

    @property
    def generation(self) -> int:
        """The generation of the stamp."""
        return self.state.generation

    @property
    def rank(self) -> int:
        """The rank of the stamp."""
        return self.state.rank

    @property
    def claim(self) -> int:
        """The claim of the stamp: 0 at every terminal state."""
        return 0 if self.state.is_terminal else self.state.claim

    @property
    def earliest(self) -> bool:
        """Says whether the stamp carries the negated hlc, so that the first of equals wins."""
        return self.state.is_terminal

    @property
    def values(self) -> dict[str, Any]:
        """The columns of the `state` register, by their names on the wire."""
        return self.state.values()


@dataclass(frozen=True, slots=True)
class Refused:
    """A step that may not be taken, and why, in words that follow the job's name ("has already succeeded")."""

    reason: str

    def about(self, job_id: str) -> str:
        """The whole sentence."""
        return f"job {job_id} {self.reason}"


Decision = Transition | Refused


def claim(
    state: JobState, worker_id: str, *, worker_label: str | None, max_attempts: int, now: int,
    due_at: int = 0, held: bool = False, stale: bool = False,
) -> Decision:  # fmt: skip
    """A worker takes the job; with `stale`, from a holder whose lease it has seen run out."""
    if state.status != "queued" and not (stale and state.status == "running"):
        return _unexpected(state)
    if held:
        return Refused("is paused; resume it first")
    if max(due_at, state.retry_at or 0) > now:
        return Refused("is not due yet")
    if state.attempt >= max_attempts:
        return Refused(f"has no attempts left ({state.attempt} of {max_attempts})")
    return Transition(
        JobState(
            state.generation, "running", state.attempt + 1, state.claim + 1, worker_id, worker_label, now, None, None, None,
            state.error, state.checkpoint_stamp,
        )
    )  # fmt: skip


def release(state: JobState, holder: Holder, *, reason: str | None = None, retry_at: int | None = None) -> Decision:
    """The holder hands the job back unrun, or unfinished through no fault of its own: the attempt is given back."""
    refused = check_holder(state, holder)
    return refused or _queued(state, attempt=max(0, state.attempt - 1), error=reason, retry_at=retry_at)


def requeue(state: JobState, holder: Holder, *, error: str, max_attempts: int, retry_at: int | None = None) -> Decision:
    """An attempt failed and another shall follow, not before `retry_at`; the attempt stays spent."""
    refused = check_holder(state, holder)
    if refused:
        return refused
    if state.attempt >= max_attempts:
        return Refused(f"has no attempts left ({state.attempt} of {max_attempts})")
    return _queued(state, attempt=state.attempt, error=error, retry_at=retry_at)


def recover(state: JobState, worker_id: str, *, max_attempts: int, now: int, held: bool = False, reason: str = WORKER_LOST) -> Decision:
    """A worker finds its own job running at its start: the run died with it, and the attempt stays spent."""
    if state.status != "running":
        return _unexpected(state)
    if state.worker_id != worker_id:
        return Refused(_held_by(state))
    return _lost(state, max_attempts=max_attempts, now=now, held=held, reason=reason)


def worker_lost(state: JobState, *, max_attempts: int, now: int, held: bool = False, reason: str = WORKER_LOST) -> Decision:
    """A worker has seen the lease of another run out: the job is queued again, or fails where no attempt is left."""
    if state.status != "running":
        return _unexpected(state)
    if held:
        return Refused("is paused; nothing is taken over while it is")
    return _lost(state, max_attempts=max_attempts, now=now, held=held, reason=reason)


def succeed(state: JobState, holder: Holder, *, now: int, result_id: str | None, rival: bool = False) -> Decision:
    """An attempt succeeded.

    It ends the job if its holder still holds it, or if a rival attempt failed before; with `rival`, also while
    another worker runs it or it waits (a worker that was outranked but was further on, and ran on).
    """
    refused = check_holder(state, holder)
    if refused:
        same_generation = state.generation == holder.generation
        overruled = state.status == "failed" or (rival and not state.is_terminal)
        if not (same_generation and overruled):
            return refused
    label = state.worker_label if state.worker_id == holder.worker_id else None
    return Transition(
        JobState(
            state.generation, "succeeded", state.attempt, max(state.claim, holder.claim), holder.worker_id, label,
            state.claimed_at, now, None, result_id, None, state.checkpoint_stamp,
        )
    )  # fmt: skip


def fail(state: JobState, holder: Holder, *, now: int, error: str, result_id: str | None = None) -> Decision:
    """An attempt failed and none shall follow."""
    refused = check_holder(state, holder)
    return refused or _failed(state, now=now, error=error, result_id=result_id)


def exhausted(state: JobState, *, max_attempts: int, now: int, held: bool = False) -> Decision:
    """A queued job without attempts left fails, by whoever sees it."""
    if state.status == "queued" and state.attempt < max_attempts:
        return Refused(f"has attempts left ({state.attempt} of {max_attempts} spent)")
    return give_up(state, now=now, held=held, reason=state.error or WORKER_LOST)


def give_up(state: JobState, *, now: int, reason: str, held: bool = False) -> Decision:
    """A queued job fails without being run, by whoever sees that it can't be ("unknown task")."""
    if state.status != "queued":
        return _unexpected(state)
    if held:
        return Refused("is paused; it doesn't fail while it is")
    return _failed(state, now=now, error=reason, result_id=None)


def cancel(state: JobState, *, now: int) -> Decision:
    """Ends a job that has not ended; a result that arrives later is discarded."""
    if state.is_terminal:
        return _unexpected(state)
    return Transition(state._replace(status="cancelled", finished_at=now, retry_at=None, error=None))


def retry(state: JobState, *, fresh: bool = False) -> Decision:
    """Makes a job that ended run again, from its checkpoint unless `fresh`, with all its attempts."""
    if not state.is_terminal:
        return Refused(f"is {state.status}; only a job that has ended can be retried")
    if state.generation & MAX_RETRIES == MAX_RETRIES:
        return Refused(f"was retried {MAX_RETRIES} times; enqueue it anew")
    again = JobState(state.generation + 1, checkpoint_stamp=None if fresh else state.checkpoint_stamp)
    return Transition(again, clears_hold=True, clears_checkpoint=fresh)


def check_hold(state: JobState) -> Refused | None:
    """Says why a job can't be paused; one that is paused already may be again."""
    return _unexpected(state) if state.is_terminal else None


def check_resume(state: JobState, *, held: bool) -> Refused | None:
    """Says why a job can't be resumed."""
    if state.is_terminal:
        return _unexpected(state)
    return None if held else Refused(f"is {state.status}, not paused")


def check_holder(state: JobState, holder: Holder) -> Refused | None:
    """Says why a worker may no longer end, release, beat for or checkpoint the job that it once claimed."""
    if state.generation != holder.generation:
        return Refused("was retried or made anew since" if state.generation > holder.generation else "is of an earlier generation")
    if state.status != "running":
        return _unexpected(state)
    if (state.claim, state.worker_id) != (holder.claim, holder.worker_id):
        return Refused(_held_by(state))
    return None


def _queued(state: JobState, *, attempt: int, error: str | None, retry_at: int | None) -> Transition:
    return Transition(
        state._replace(
            status="queued", attempt=attempt, worker_id=None, worker_label=None, claimed_at=None,
            error=error or state.error, retry_at=retry_at,
        )
    )  # fmt: skip


def _failed(state: JobState, *, now: int, error: str, result_id: str | None) -> Transition:
    return Transition(state._replace(status="failed", finished_at=now, retry_at=None, error=error, result_id=result_id))


def _lost(state: JobState, *, max_attempts: int, now: int, held: bool, reason: str) -> Transition:
    if state.attempt >= max_attempts and not held:
        return _failed(state, now=now, error=reason, result_id=None)
    return _queued(state, attempt=state.attempt, error=reason, retry_at=None)


def _unexpected(state: JobState) -> Refused:
    if state.is_terminal:
        verb = "been cancelled" if state.status == "cancelled" else state.status
        return Refused(f"has already {verb}")
    return Refused(f"is {state.status}")


def _held_by(state: JobState) -> str:
    return f"was lost to {state.worker_label or state.worker_id or 'another worker'} (claim {state.claim})"
