"""How does a claimed job get to its handler: in a child process, or in the node's own loop?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p2pqueue import wire
from p2pqueue.home import Home
from p2pqueue.jobs.waiting import EXEC_TASK
from p2pqueue.workers.children.protocol import Assignment, Failed, Outcome, Stopped, Succeeded, TaskDescription, Why
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.inputs import Inputs
from p2pqueue.workers.running.pool import Pool
from p2pqueue.workers.running.preparing import Preparing
from p2pqueue.workers.running.report import Report
from p2pqueue.workers.running.workdir import folder_of, remove


class ChildRunner:
    """Runs jobs in warm child processes: prepares what a handler needs, and keeps what it made."""

    def __init__(self, pool: Pool, home: Home, tasks: Mapping[str, TaskDescription], inputs: Inputs) -> None:
        self._pool = pool
        self._home = home
        self._tasks = tasks
        self._inputs = inputs
        self._preparing = Preparing(inputs)

    async def run(self, job: ClaimedJob, report: Report) -> tuple[Outcome, str | None]:
        """Runs the job to its end; gives the outcome and the manifest of its outputs. Raises `Unreachable`."""
        grants = await self._preparing.grants(job, report)
        if report.stopped is not None:
            return Stopped(report.stopped), None
        workdir = folder_of(self._home.work_dir, job.key)
        try:
            assignment = self._assignment(job, workdir, grants)
            outcome = await self._pool.run(
                assignment, on_progress=report.progress, on_checkpoint=report.checkpoint, on_request=report.request
            )
            if isinstance(outcome, Succeeded) and outcome.outputs:
                return outcome, await self._inputs.keep(outcome.outputs)
            if isinstance(outcome, Failed):
                await self._inputs.check(job, outcome)
            return outcome, None
        finally:
            if workdir.exists():  # made by the child, when its handler asks for it
                await asyncio.to_thread(remove, workdir)

    def stop(self, key: str, why: Why) -> None:
        """Stops a run: its outcome will be `Stopped(why)`."""
        self._preparing.stop(key)
        self._pool.stop(key, why)

    def _assignment(self, job: ClaimedJob, workdir: Path, grants: dict[str, Any]) -> Assignment:
        task = self._tasks.get(job.task) or TaskDescription(job.task)
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
            deadline=job.timeout if job.timeout is not None else task.timeout,
            stall_timeout=job.stall_timeout if job.stall_timeout is not None else task.stall_timeout,
            resume_from=job.checkpoint,
            command=_command(job, task),
            memory_limit=task.memory_limit,
        )


def _command(job: ClaimedJob, task: TaskDescription) -> dict[str, Any] | None:
    if job.task == EXEC_TASK:
        command: dict[str, Any] | None = wire.unpack(job.options).get("command")
        return command
    return task.command
