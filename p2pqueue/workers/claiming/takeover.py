"""Who takes over the jobs of a worker that has fallen silent?

Whoever sees it: the job is queued again, or fails where no attempt is left. A restored home meets it too: what ran
on the lost device is taken over by the new one. Silence counts from when this device itself saw the lease change last,
and only while it could have heard: not before it has learned from a linked device what there is to learn, and not
without a network.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial

from p2pqueue.jobs import job as lattice
from p2pqueue.jobs.job import JobState, Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Put, Writer
from p2pqueue.workers.claimed import DEFAULT_ATTEMPTS, run_id
from p2pqueue.workers.claiming.foretold import Foretold, Told
from p2pqueue.workers.claiming.lease import LeaseWatch, Vigil, marks
from p2pqueue.workers.claiming.presence import Roster
from p2pqueue.workers.recovery import end_runs
from p2pqueue.workers.states import states_of

UNSEEN = 8  # claims of one job of which no row may have come; whoever tells of more is not believed
LOOKS = 8  # looks at the leases in the time after which one is stale
DIED = f"{lattice.WORKER_LOST}: it died as the job began"

_log = logging.getLogger(__name__)


class Takeover:
    """Watches the leases of other workers by this device's own clock.

    :param usable: says whether this device has a network, or needs none as it knows of no other device.
    :param synced: monotonic time at which a round of replication with a linked device was finished last; None while
        none is linked, minus infinity while no round is finished.
    """

    def __init__(
        self, store: Store, *, device_id: str, max_attempts: Mapping[str, int], stale_after: float, roster: Roster | None = None,
        usable: Callable[[], bool] = lambda: True, synced: Callable[[], float | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._store = store
        self._device_id = device_id
        self._max_attempts = dict(max_attempts)
        self._pause = stale_after / LOOKS
        self._watch = LeaseWatch(stale_after)
        self._vigil = Vigil(self._watch, since=time.monotonic())
        self._roster = roster
        self._usable = usable
        self._synced = synced
        self._gone: set[str] = set()  # devices that said goodbye and were not heard of again
        self._wake = asyncio.Event()

    def gone(self, device_id: str) -> None:
        """A device has said goodbye: what it still holds is stale at once."""
        self._gone.add(device_id)
        self._wake.set()

    async def run(self) -> None:
        """Looks for ever; a pause that took far longer than it should was a sleep of this device, and nobody's silence."""
        last = time.monotonic()
        while True:
            now = time.monotonic()
            if now - last > 4 * self._pause:
                self._vigil.woke(now)
            last = now
            await self._look(now)
            self._wake.clear()
            try:
                async with asyncio.timeout(self._pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self, now: float) -> None:
        leases, workers = await self._store.read(partial(foreign_leases, device_id=self._device_id))
        self._watch.observe(leases, now)
        if not self._vigil.may_judge(now, usable=self._usable(), synced=self._synced()):
            return
        if self._roster is not None and self._gone:
            self._gone -= {presence.device_id for presence in self._roster.live(now)}
        stale = {job_id: leases[job_id] for job_id in self._watch.stale(now)}
        left = {job_id: leases[job_id] for job_id, worker in workers.items() if worker in self._gone}
        await self._count_foretold()
        taken = await self._store.write(partial(take_over, leases=stale | left, max_attempts=self._max_attempts)) if stale or left else []
        for job_id in taken:
            why = "its worker has left" if job_id in left else "its worker has been silent for too long"
            _log.warning("job %s: %s; taken over", job_id, why)

    async def _count_foretold(self) -> None:
        """Counts what devices that died had begun, as they told, and had no time to write."""
        foretold = Foretold() if self._roster is None else self._roster.foretold
        for device_id in self._gone:
            told = foretold.of(device_id)
            if told:
                write = partial(count_foretold, device_id=device_id, told=told, max_attempts=self._max_attempts)
                for job_id in await self._store.write(write):
                    _log.warning("job %s: its worker died as it began; the attempt counts", job_id)
                foretold.forget(device_id)


def foreign_leases(connection: sqlite3.Connection, *, device_id: str) -> tuple[dict[str, Hashable], dict[str, str]]:
    """The marks of the jobs that other workers run by what this replica knows, and the workers."""
    query = (
        "SELECT id, state_generation, claim, beat_hlc, worker_id FROM jobs "
        "WHERE status = 'running' AND live = 1 AND worker_id <> ?"  # jobs_by_status
    )
    rows = connection.execute(query, (device_id,)).fetchall()
    return marks(row[:4] for row in rows), {row[0]: row[4] for row in rows}


def take_over(writer: Writer, *, leases: Mapping[str, Hashable], max_attempts: Mapping[str, int]) -> list[str]:
    """Queues these jobs again, or fails those without attempts left; their runs end as lost. Gives the ids.

    A job whose lease has changed meanwhile, or that is paused, is left as it is.
    """
    ids = json.dumps(list(leases))
    query = (
        "SELECT id, state_generation, claim, beat_hlc, task, max_attempts FROM jobs "
        "WHERE id IN (SELECT value FROM json_each(?)) AND status = 'running' AND live = 1 AND worker_id <> ?"
    )
    rows = writer.connection.execute(query, (ids, writer.device_id)).fetchall()
    rows = [row for row in rows if marks([row[:4]])[row[0]] == leases[row[0]]]
    states = states_of(writer.connection, [row[0] for row in rows])
    taken: list[str] = []
    for job_id, *_, task, limit in rows:
        state = states[job_id]
        step = lattice.worker_lost(state, max_attempts=limit or max_attempts.get(task, DEFAULT_ATTEMPTS), now=writer.now)
        if isinstance(step, Transition):
            writer.put_known("jobs", "state", [put_state(job_id, step)])
            attempts = f"{job_id}/{state.generation}"
            end_runs(writer, "id > ? AND id < ?", (f"{attempts}/", f"{attempts}0"), "its worker fell silent")
            taken.append(job_id)
    return taken


def count_foretold(writer: Writer, *, device_id: str, told: Collection[Told], max_attempts: Mapping[str, int]) -> list[str]:
    """Writes what a dead device had begun, and lost by its death, where no row tells of it. Gives the ids of the jobs."""
    label = writer.connection.execute("SELECT label FROM devices WHERE id = ?", (device_id,)).fetchone()
    worker = device_id, label[0] if label else None
    query = "SELECT id, task, max_attempts, coalesce(held, 0) FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND live = 1"
    rows = {row[0]: row[1:] for row in writer.connection.execute(query, (json.dumps([each.job_id for each in told]),))}
    states = states_of(writer.connection, list(rows))
    counted = []
    for each in told:
        state = states.get(each.job_id)
        if state is None or state.status != "queued" or state.generation != each.generation:
            continue
        if not state.claim < each.claim <= state.claim + UNSEEN:
            continue
        task, limit, held = rows[each.job_id]
        step = lattice.worker_lost(
            _as_told(state, each, worker, writer.now), max_attempts=limit or max_attempts.get(task, DEFAULT_ATTEMPTS),
            now=writer.now, held=bool(held),
        )  # fmt: skip
        if isinstance(step, Transition):
            writer.put_known("jobs", "state", [put_state(each.job_id, step)])
            name = run_id(each.job_id, each.generation, each.claim, each.author)
            attempt = each.job_id, step.state.attempt, *worker, writer.now, writer.now, "lost", None, None, DIED
            writer.put_many("runs", [Put(name, "run", (*attempt, None, None, None, None, None), generation=0)])
            counted.append(each.job_id)
    return counted


def _as_told(state: JobState, told: Told, worker: tuple[str, str | None], now: int) -> JobState:
    """The state that a job would have had; each claim spends one attempt at most."""
    attempt = min(max(told.attempt, state.attempt + 1), state.attempt + told.claim - state.claim)
    return JobState(
        state.generation, "running", attempt, told.claim, *worker, now, None, None, None, state.error, state.checkpoint_stamp
    )  # fmt: skip
