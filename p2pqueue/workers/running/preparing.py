"""How are the files of a job made ready before its handler is called, and how does that end where the job shall stop?"""

from __future__ import annotations

import asyncio
from typing import Any

from p2pqueue.workers.children.protocol import FileGrant
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.inputs import Inputs
from p2pqueue.workers.running.report import Report, fetching


class Preparing:
    """Grants the files of jobs; what has to be fetched for one may take hours."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._under_way: dict[str, asyncio.Task[Any]] = {}

    async def grants(self, job: ClaimedJob, report: Report) -> dict[str, FileGrant]:
        """The files of a job by their parameters; none where it was stopped meanwhile. Raises `Unreachable`."""
        if not job.has_input:
            return {}
        preparing = asyncio.get_running_loop().create_task(self._inputs.grants(job, fetching(report, job)))
        self._under_way[job.key] = preparing
        try:
            await asyncio.wait((preparing,))
        finally:
            del self._under_way[job.key]
            preparing.cancel()
        if report.stopped is None:
            return preparing.result()
        if not preparing.cancelled():
            preparing.exception()  # whatever it was: the job stops
        return {}

    def stop(self, key: str) -> None:
        """Ends what is under way for that attempt."""
        preparing = self._under_way.get(key)
        if preparing is not None:
            preparing.cancel()
