"""How does a claimed job get to its handler: in a child process, or in the node's own loop?"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from p2pqueue import wire
from p2pqueue.config import Home, Settings
from p2pqueue.jobs.waiting import EXEC_TASK
from p2pqueue.workers.inputs import Inputs
from p2pqueue.workers.pool import Pool
from p2pqueue.workers.protocol import Assignment, Outcome, Succeeded, TaskDescription, Why
from p2pqueue.workers.report import Report
from p2pqueue.workers.settle import ClaimedJob
from p2pqueue.workers.workdir import make_workdir, remove_workdir

_log = logging.getLogger(__name__)


class ChildRunner:
    """Runs jobs in warm child processes: prepares what a handler needs, and keeps what it made."""

    def __init__(self, pool: Pool, home: Home, settings: Settings, inputs: Inputs) -> None:
        self._pool = pool
        self._home = home
        self._settings = settings
        self._inputs = inputs
        self.tasks: dict[str, TaskDescription] = {}

    async def run(self, job: ClaimedJob, report: Report) -> tuple[Outcome, str | None]:
        """Runs the job to its end; gives the outcome and the manifest of its outputs. Raises `Unreachable`."""
        grants = await self._inputs.grants(job)
        workdir = await asyncio.to_thread(make_workdir, self._home.work_dir, job.key)
        try:
            assignment = self._assignment(job, workdir, grants)
            outcome = await self._pool.run(
                assignment, on_progress=report.progress, on_checkpoint=report.checkpoint, on_request=report.request
            )
            if isinstance(outcome, Succeeded) and outcome.outputs:
                return outcome, await self._inputs.keep(outcome.outputs)
            return outcome, None
        finally:
            await asyncio.to_thread(remove_workdir, workdir)

    def stop(self, key: str, why: Why) -> None:
        """Stops a run: its outcome will be `Stopped(why)`."""
        self._pool.stop(key, why)

    def _assignment(self, job: ClaimedJob, workdir: Path, grants: dict[str, Any]) -> Assignment:
        task = self.tasks.get(job.task)
        log_file = self._home.log_file(job.job_id, job.holder.generation, job.holder.claim)
        return Assignment(
            key=job.key,
            job_id=job.job_id,
            task=job.task,
            attempt=job.attempt,
            args=job.args,
            workdir=str(workdir),
            log_file=str(log_file),
            files=grants,
            deadline=job.timeout if job.timeout is not None else task and task.timeout,
            stall_timeout=job.stall_timeout if job.stall_timeout is not None else task and task.stall_timeout,
            resume_from=job.checkpoint,
            command=_command(job, task),
            memory_limit=task and task.memory_limit,
        )


def _command(job: ClaimedJob, task: TaskDescription | None) -> dict[str, Any] | None:
    if job.task == EXEC_TASK:
        command: dict[str, Any] | None = wire.unpack(job.options).get("command")
        return command
    return task.command if task else None
