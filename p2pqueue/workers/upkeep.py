"""How do the rows of jobs keep telling that they run here?

What does not end at once is written down as running; from then on its lease is renewed, with its progress.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from functools import partial

from p2pqueue.errors import P2PQueueError
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.claiming.begun import RECORD_AFTER, write_begun
from p2pqueue.workers.run import Run
from p2pqueue.workers.settle import beat

LOOK_EVERY = 0.5  # seconds, at most, between two looks for leases to renew

_log = logging.getLogger(__name__)


async def renew(store: Store, runs: Mapping[str, Run], *, every: float) -> None:
    """Renews the leases of what runs, each after so many seconds and sooner where its progress moves; for ever."""
    pause = min(LOOK_EVERY, every / 4)
    while True:
        await asyncio.sleep(pause)
        now = time.monotonic()
        due = [run for run in runs.values() if run.is_due(now, every)]
        if not due:
            continue
        beats = [(run.job.holder, run.job.job_id, run.progress, run.phase) for run in due]
        for run in due:
            run.beaten, run.beaten_progress = now, run.progress
        try:
            await store.write(partial(beat, beats=beats), quiet=True)
        except P2PQueueError as error:
            _log.error("leases can't be renewed: %s", error)


async def record_late(store: Store, runs: Mapping[str, Run], unrecorded: asyncio.Event) -> None:
    """Writes into their rows that jobs run which did not end at once; looks whenever some run may be `unrecorded`."""
    while True:
        await unrecorded.wait()
        await asyncio.sleep(RECORD_AFTER)
        before = time.monotonic() - RECORD_AFTER
        late = [run for run in runs.values() if not run.recorded and run.started <= before]
        if late:
            try:
                await store.write(partial(_record, runs=late), quiet=True)
            except P2PQueueError as error:
                _log.error("what runs can't be written down: %s", error)
                continue
            for run in late:
                run.recorded = True
        if all(run.recorded for run in runs.values()):
            unrecorded.clear()


def _record(writer: Writer, runs: Collection[Run]) -> None:
    """Writes into the rows of these jobs that they run, and how far those are that went on from a checkpoint."""
    write_begun(writer, [run.begun for run in runs])
    resumed = [(run.job.holder, run.job.job_id, run.progress, run.phase) for run in runs if run.job.progress]
    if resumed:
        beat(writer, resumed)
