"""What does a worker know of a job that it holds, and of how an attempt at it ended? Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from p2pqueue import wire
from p2pqueue.jobs.begun import Begun
from p2pqueue.jobs.job import WORKER_LOST, Holder
from p2pqueue.jobs.waiting import Ability
from p2pqueue.workers.claiming.contest import Survey

CRASHED: Final = wire.pack({"crash": True})  # metadata of a run whose child died; two in a row fail the job
DEFAULT_ATTEMPTS: Final = 3  # where neither the job nor a known task says otherwise


class ClaimedJob(NamedTuple):
    """A job that this worker holds, with all that its run needs. Durations in seconds, times milliseconds UTC."""

    job_id: str
    task: str
    queue: str
    args: bytes
    options: bytes
    title: str | None
    holder: Holder
    attempt: int
    max_attempts: int
    claimed_at: int
    timeout: float | None
    stall_timeout: float | None
    backoff: str | None
    retry_on: str | None
    input_manifest: str | None
    has_input: bool
    checkpoint: bytes | None
    error: str | None
    recorded: bool = False  # its row tells already that it runs
    progress: float = 0.0  # how far an earlier run had come, where this one goes on from its checkpoint
    first: bool = False  # its row had no state at all

    @property
    def key(self) -> str:
        """One attempt's name, unique on this device: job, generation and claim."""
        return f"{self.job_id}/{self.holder.generation}/{self.holder.claim}"

    def run_id(self, author: bytes) -> str:
        """The key of this attempt's row in `runs`."""
        return run_id(self.job_id, self.holder.generation, self.holder.claim, author)


def run_id(job_id: str, generation: int, claim: int, author: bytes) -> str:
    """The key of an attempt's row in `runs`. Half of the author tells its devices apart well enough."""
    return f"{job_id}/{generation}/{claim}/{author[:8].hex()}"


How = Literal["succeeded", "failed", "retry", "crashed", "released", "cancelled", "lost"]


class Ending(NamedTuple):
    """How an attempt ended. `retry_at` is in milliseconds UTC; `author` the one that claimed it."""

    job: ClaimedJob
    how: How
    author: bytes
    result: bytes | None = None
    output_manifest: str | None = None
    error: str | None = None
    traceback: str | None = None
    log_tail: str | None = None
    retry_at: int | None = None
    checkpoint: bytes | None = None  # from which the job goes on, where the handler gave it back
    duration: float | None = None  # by the monotonic clock of the worker
    rival: bool = False  # it went on beside another worker's claim, being further on: the first success counts
    unstarted: bool = False  # its handler never began: where only this device knows of the claim, nothing is written of it
    unwritten: bool = False  # its row had no state at all when it was claimed, and this worker has written none since


def is_suspect(attempt: int, max_attempts: int, error: str | None) -> bool:
    """Says whether this is the last attempt of a job whose worker was lost in the one before, perhaps by its doing."""
    return attempt == max_attempts and error is not None and error.startswith(WORKER_LOST)


@dataclass(frozen=True)
class Taker:
    """Who claims: what it can do, how many attempts its tasks have, and the jobs that it leaves alone for now."""

    device_id: str
    label: str
    ability: Ability
    max_attempts: dict[str, int] = field(default_factory=dict)
    skip: frozenset[str] = frozenset()
    begun: tuple[Begun, ...] = ()  # what runs here while its row does not say so yet
    survey: Survey | None = None  # asked whether another worker is better placed, where there are others
    free: int | None = None  # its free slots; beyond them it takes only what begins for the first time and needs no file (None: all)
    suspects: bool = False  # a suspect runs here
    foretold: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # what others begin, by generation and claim
