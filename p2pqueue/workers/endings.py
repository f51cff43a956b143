"""How does what became of a handler end its attempt?

Nothing is read or written: the outcome, the job and the options of its task go in; an `Ending` comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from p2pqueue.errors import ConfigError
from p2pqueue.jobs.backoff import Backoff, is_retried
from p2pqueue.jobs.waiting import texts_in
from p2pqueue.workers.children.protocol import (
    Continued,
    Crashed,
    Failed,
    Outcome,
    RetryLater,
    Stopped,
    Succeeded,
    TaskDescription,
    TimedOut,
)
from p2pqueue.workers.claimed import ClaimedJob, Ending, How

_STOPPED: dict[str, How] = {"cancelled": "cancelled", "held": "released", "shutdown": "released", "lost": "lost"}
_WORDS = {"cancelled": None, "held": None, "shutdown": None, "lost": "lost to a newer claim"}


def ending_of(
    job: ClaimedJob, outcome: Outcome, task: TaskDescription | None, *, author: bytes, now: int, duration: float,
    random: Callable[[], float], output_manifest: str | None = None, unwritten: bool = False,
) -> Ending:  # fmt: skip
    """The ending of an attempt; `now` is in milliseconds UTC, `duration` in seconds, `random` gives 0 to 1."""
    if isinstance(outcome, Succeeded):
        return Ending(job, "succeeded", author, outcome.result, output_manifest, duration=duration, unwritten=unwritten)
    known: dict[str, Any] = {"author": author, "duration": duration}
    if isinstance(outcome, Stopped):
        return Ending(job, _STOPPED[outcome.why], error=_WORDS[outcome.why], **known)
    if isinstance(outcome, Continued):
        return Ending(job, "released", checkpoint=outcome.state, **known)
    if isinstance(outcome, Crashed):
        return Ending(job, "crashed", error=outcome.reason, log_tail=outcome.log_tail, **known)
    return _failure(job, outcome, task, now, random, known)


def _failure(
    job: ClaimedJob, outcome: Failed | RetryLater | TimedOut, task: TaskDescription | None, now: int, random: Callable[[], float],
    known: dict[str, Any],
) -> Ending:  # fmt: skip
    backoff = _backoff(job, task)
    if isinstance(outcome, RetryLater):
        wait = backoff.delay(job.attempt, random()) if outcome.delay is None else outcome.delay
        return Ending(job, "retry", error=outcome.reason, retry_at=_later(now, wait), **known)
    retry_at = _later(now, backoff.delay(job.attempt, random()))
    if isinstance(outcome, TimedOut):
        return Ending(job, "retry", error=outcome.reason, log_tail=outcome.log_tail, retry_at=retry_at, **known)
    how: How = "retry" if not outcome.final and is_retried(outcome.kinds, _retry_on(job, task)) else "failed"
    return Ending(job, how, error=outcome.error, traceback=outcome.traceback, log_tail=outcome.log_tail, retry_at=retry_at, **known)


def _later(now: int, seconds: float) -> int:
    if not seconds > 0:  # nor where it is no number
        return now
    return now + int(min(seconds, 366 * 86_400.0) * 1000)


def _backoff(job: ClaimedJob, task: TaskDescription | None) -> Backoff:
    try:
        return Backoff.from_json(job.backoff or (task.backoff if task else None))
    except ConfigError:  # any device may have written the job
        return Backoff()


def _retry_on(job: ClaimedJob, task: TaskDescription | None) -> tuple[str, ...] | None:
    if job.retry_on is not None:
        return texts_in(job.retry_on)
    return task.retry_on if task else None
