"""What does the log tell of attempts, where somebody wants to read it? Nothing is worked out where nobody does."""

from __future__ import annotations

import logging

from p2pqueue.workers.claimed import ClaimedJob, Ending

_SHOWN = 13  # characters of a job's id: those of its time
_LONGEST = 200  # characters of an error in one line of the log

_log = logging.getLogger(__name__)


def tell_start(job: ClaimedJob) -> None:
    """Tells that an attempt starts."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("job %s %s: attempt %d of %d started", job.job_id[:_SHOWN], job.task, job.attempt, job.max_attempts)


def tell_end(ending: Ending) -> None:
    """Tells how an attempt ended."""
    if _log.isEnabledFor(logging.INFO):
        job, error = ending.job, (ending.error or "")[:_LONGEST]
        taken = "" if ending.duration is None else f" after {ending.duration:.2f} s"
        how = "failed" if ending.how == "retry" else ending.how
        _log.info("job %s %s: attempt %d %s%s%s", job.job_id[:_SHOWN], job.task, job.attempt, how, taken, f": {error}" if error else "")
