"""Who takes over the jobs of a worker that has fallen silent?

Whoever sees it: the job is queued again, or fails where no attempt is left. A restored home meets it too: what ran
on the lost device is taken over by the new one.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Hashable, Mapping, Sequence
from functools import partial

from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.job import Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.claimed import DEFAULT_ATTEMPTS
from p2pqueue.workers.lease import LeaseWatch, marks
from p2pqueue.workers.recovery import end_runs
from p2pqueue.workers.states import states_of

LOOKS = 8  # looks at the leases in the time after which one is stale

_log = logging.getLogger(__name__)


class Takeover:
    """Watches the leases of other workers by this device's own clock."""

    def __init__(self, store: Store, *, device_id: str, max_attempts: Mapping[str, int], stale_after: float) -> None:
        self._store = store
        self._device_id = device_id
        self._max_attempts = dict(max_attempts)
        self._pause = stale_after / LOOKS
        self._watch = LeaseWatch(stale_after)

    async def run(self) -> None:
        """Looks for ever; a pause that took far longer than it should was a sleep of this device, and nobody's silence."""
        last = time.monotonic()
        while True:
            now = time.monotonic()
            if now - last > 4 * self._pause:
                self._watch.restart(now)
            last = now
            self._watch.observe(await self._store.read(partial(foreign_leases, device_id=self._device_id)), now)
            stale = self._watch.stale(now)
            if stale:
                taken = await self._store.write(partial(take_over, ids=stale, max_attempts=self._max_attempts))
                for job_id in taken:
                    _log.warning("job %s: its worker has been silent for too long; taken over", job_id)
            await asyncio.sleep(self._pause)


def foreign_leases(connection: sqlite3.Connection, *, device_id: str) -> dict[str, Hashable]:
    """The marks of the jobs that other workers run by what this replica knows."""
    query = (
        "SELECT id, state_generation, claim, beat_hlc FROM jobs "
        "WHERE status = 'running' AND live = 1 AND worker_id <> ?"  # jobs_by_status
    )
    return marks(connection.execute(query, (device_id,)))


def take_over(writer: Writer, *, ids: Sequence[str], max_attempts: Mapping[str, int]) -> list[str]:
    """Queues these jobs again, or fails those without attempts left; their runs end as lost. Gives the ids."""
    taken: list[str] = []
    for job_id, state in states_of(writer.connection, ids).items():
        task, limit = writer.connection.execute("SELECT task, max_attempts FROM jobs WHERE id = ?", (job_id,)).fetchone()
        step = lattice.worker_lost(state, max_attempts=limit or max_attempts.get(task, DEFAULT_ATTEMPTS), now=writer.now)
        if isinstance(step, Transition) and state.worker_id != writer.device_id:
            writer.put_known("jobs", "state", [put_state(job_id, step)])
            attempts = f"{job_id}/{state.generation}"
            end_runs(writer, "id > ? AND id < ?", (f"{attempts}/", f"{attempts}0"), "its worker fell silent")
            taken.append(job_id)
    return taken
