"""Who takes jobs on this device, and what keeps them going?

One loop ends what has ended and claims for the free slots in the same transaction; each claimed job runs in a task
of its own; another loop renews the leases; a third reads what others did to the jobs that run here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import random
from typing import Any

from p2pqueue.errors import ConfigError, P2PQueueError, WorldError
from p2pqueue.jobs import rows
from p2pqueue.jobs.waiting import Ability
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.begun import RECORD_AFTER
from p2pqueue.workers.claimed import ClaimedJob, Ending, Taker
from p2pqueue.workers.endings import ending_of
from p2pqueue.workers.inputs import Unreachable
from p2pqueue.workers.live import Live
from p2pqueue.workers.protocol import Continued, Failed, Outcome, Stopped, Succeeded, TaskDescription, Why
from p2pqueue.workers.report import Runner
from p2pqueue.workers.run import Reporter, Run, event_of, record
from p2pqueue.workers.settle import beat, checkpoint, next_due, settle
from p2pqueue.workers.telling import tell_end, tell_start

UNREACHABLE_FIRST = 1.0  # seconds until a job whose payload can't be reached is tried again; doubles
UNREACHABLE_LONGEST = 60.0  # seconds
LOOK_AT_CLOCK = 5.0  # seconds between two looks at the clock: it may be set, and stands apart from the loop's while a machine sleeps
WRITE_AGAIN = 1.0  # seconds until what could not be written is tried again: a full disk is not emptied at once

_log = logging.getLogger(__name__)


@dataclass
class Worker:
    """Claims, runs and ends the jobs of one device."""

    store: Store
    live: Live
    device_id: str
    label: str
    slots: int
    ability: Ability
    tasks: Mapping[str, TaskDescription]
    runners: Callable[[str], Runner]  # the runner of a task
    beat_every: float = 10.0
    grace: float = 10.0
    on_request: Callable[[ClaimedJob, str, dict[str, Any]], Awaitable[Any]] | None = None
    runs: dict[str, Run] = field(default_factory=dict)  # by job id
    done: int = 0  # attempts ended since the start
    _endings: list[Ending] = field(default_factory=list)
    _meanwhile: set[str] | None = None  # jobs that others wrote while this worker's transaction was under way
    _skip: dict[str, float] = field(default_factory=dict)  # jobs that are left alone, until that monotonic time
    _patience: dict[str, float] = field(default_factory=dict)  # how long each was left alone the last time
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _work: bool = True  # there may be something to claim
    _due: int | None = None
    _unrecorded: asyncio.Event = field(default_factory=asyncio.Event)  # some run may not be recorded yet
    _stopping: bool = False
    _give_up_at: float = math.inf  # monotonic time after which a stop waits for no disk any more
    _empty: asyncio.Event = field(default_factory=asyncio.Event)  # nothing runs
    _group: asyncio.TaskGroup | None = None

    def __post_init__(self) -> None:
        self._limits = {name: task.max_attempts for name, task in self.tasks.items()}
        self._empty.set()

    # -- outside ----------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Works until `stop`, and on until every run has ended and is written down."""
        async with asyncio.TaskGroup() as beats:
            looping = [beats.create_task(self._beat()), beats.create_task(self._record())]
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._turn()
            for loop in looping:
                loop.cancel()

    async def stop(self, *, grace: float | None = None) -> None:
        """Takes nothing new, gives the running handlers `grace` seconds, then stops and releases them."""
        grace = self.grace if grace is None else grace
        self._stopping, self._give_up_at = True, time.monotonic() + grace
        self._wake.set()
        try:
            async with asyncio.timeout(grace):
                await self._empty.wait()
        except TimeoutError:
            self.hurry()

    def hurry(self) -> None:
        """Stops what still runs, without waiting for its grace."""
        self._give_up_at = min(self._give_up_at, time.monotonic())
        for run in list(self.runs.values()):
            self._stop_run(run, "shutdown")

    @property
    def idle(self) -> bool:
        """Says whether nothing runs here, and nothing could be claimed now or later by itself."""
        return not self.runs and not self._endings and not self._work and self._due is None

    def rung(self) -> None:
        """Takes in that another process has written something: what there is to claim need not wait for what it was."""
        self._work = True
        self._wake.set()

    async def changed(self, touched: Collection[str] | None) -> None:
        """Takes in that others wrote these jobs (None: it is not known which)."""
        self._work = True
        self._wake.set()
        if self._meanwhile is not None:
            self._meanwhile.update(self.runs if touched is None else touched)
        await self._look([job_id for job_id in (self.runs if touched is None else touched) if job_id in self.runs])

    # -- claiming and ending ----------------------------------------------------------------------------------

    async def _turn(self) -> None:
        while not (self._stopping and not self.runs and not self._endings):
            self._wake.clear()
            endings, self._endings = self._endings, []
            free = 0 if self._stopping else self.slots - len(self.runs)
            if endings or (free > 0 and self._work):
                await self._settle(endings, free)
            else:
                await self._wait()

    async def _settle(self, endings: list[Ending], free: int) -> None:
        self._work = False
        unrecorded = tuple(run.begun for run in self.runs.values() if not run.recorded)
        taker = Taker(self.device_id, self.label, self.ability, self._limits, self._skipped(), unrecorded)
        self._meanwhile = set()

        def transaction(writer: Writer) -> tuple[list[ClaimedJob], bytes, int | None]:
            claimed = settle(writer, endings, taker, free)
            return claimed, writer.author, next_due(writer.connection) if len(claimed) < free else None

        try:
            claimed, author, due = await self.store.write(transaction, quiet=True)
        except P2PQueueError as error:
            self._meanwhile = None
            await self._bear(error, endings)
            return
        self.done += len(endings)
        if len(claimed) >= free > 0:
            self._work = True
        else:
            self._due = due
        if self._stopping:  # told so while the transaction was under way
            self._endings += [Ending(job, "released", author=author, unstarted=True) for job in claimed]
            claimed = []
        for job in claimed:
            self._start(job, author)
        meanwhile, self._meanwhile = self._meanwhile, None
        try:
            await self._look([job.job_id for job in claimed if job.job_id in meanwhile])
            await self._tell(endings, claimed)
        except P2PQueueError as error:
            _log.error("the replica can't be read: %s", error)

    async def _bear(self, error: P2PQueueError, endings: list[Ending]) -> None:
        """Keeps endings that could not be written, and waits a moment; not for ever where the node shall stop."""
        _log.error("the replica can't be written: %s", error)
        self._work = True
        if time.monotonic() < self._give_up_at:
            self._endings = endings + self._endings
            await asyncio.sleep(WRITE_AGAIN)
        elif endings:
            _log.error("how %d attempts ended can't be written: their jobs run again after the next start", len(endings))

    async def _wait(self) -> None:
        wait = self._until_next()
        try:
            async with asyncio.timeout(None if wait is None else max(0.0, min(wait, LOOK_AT_CLOCK))):
                await self._wake.wait()
        except TimeoutError:
            wait = self._until_next()
            self._work = self._work or wait is None or wait <= 0

    def _until_next(self) -> float | None:
        """Seconds until something that waits may be claimed, by the clock as it stands now."""
        waits = [until - time.monotonic() for until in self._skip.values()]
        if self._due is not None:
            waits.append(self._due / 1000 - time.time())
        return min(waits) if waits else None

    def _skipped(self) -> frozenset[str]:
        now = time.monotonic()
        self._skip = {job_id: until for job_id, until in self._skip.items() if until > now}
        return frozenset([*self.runs, *self._skip])

    def _put_off(self, job_id: str) -> None:
        wait = min(UNREACHABLE_LONGEST, 2 * self._patience.get(job_id, UNREACHABLE_FIRST / 2))
        self._patience[job_id] = wait
        self._skip[job_id] = time.monotonic() + wait

    # -- running ----------------------------------------------------------------------------------------------

    def _start(self, job: ClaimedJob, author: bytes) -> None:
        assert self._group is not None
        self._empty.clear()
        tell_start(job)
        run = self.runs[job.job_id] = Run(job, author, started=(now := time.monotonic()), beaten=now, progress=job.progress)
        self._unrecorded.set()
        self._group.create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        try:
            ending = await self._attempt(run)
        except Exception as error:  # noqa: BLE001 - what goes wrong with one job, whatever it holds, ends that attempt alone
            _log.exception("job %s", run.job.job_id)
            ending = self._ending(run, Failed(f"the node could not run it: {type(error).__name__}: {error}", kinds=("Exception",)))
        self._end(run, ending)

    async def _attempt(self, run: Run) -> Ending:
        job = run.job
        try:
            outcome, manifest = await self.runners(job.task).run(job, Reporter(self, run))
            self._patience.pop(job.job_id, None)
        except (Unreachable, WorldError, ConfigError) as error:
            self._put_off(job.job_id)
            return Ending(job, "released", author=run.author, error=str(error), unstarted=isinstance(error, Unreachable))
        except P2PQueueError as error:
            outcome, manifest = Failed(f"{type(error).__name__}: {error}", kinds=(type(error).__name__, "Exception")), None
        if run.stop_why is not None and not isinstance(outcome, (Succeeded, Continued)):
            outcome = Stopped(run.stop_why)
        elif run.stop_why is None and isinstance(outcome, Stopped):
            outcome = Failed("the handler stopped although nobody told it to", kinds=("Cancelled", "Exception"))
        return self._ending(run, outcome, manifest)

    def _ending(self, run: Run, outcome: Outcome, manifest: str | None = None) -> Ending:
        return ending_of(
            run.job, outcome, self.tasks.get(run.job.task), author=run.author, now=int(time.time() * 1000),
            duration=time.monotonic() - run.started, random=random, output_manifest=manifest,
        )  # fmt: skip

    def _end(self, run: Run, ending: Ending) -> None:
        tell_end(ending)
        if self.runs.get(run.job.job_id) is run:
            del self.runs[run.job.job_id]
        if not self.runs:
            self._empty.set()
        self._endings.append(ending)
        self._wake.set()

    def _stop_run(self, run: Run, why: Why) -> None:
        if run.stop_why is None:
            run.stop_why = why
            self.runners(run.job.task).stop(run.job.key, why)

    async def _look(self, running: Collection[str]) -> None:
        if running:
            found = await self.store.read(lambda connection: list(rows.statuses(connection, running)))
            self._heed({row[0]: row for row in found}, running)

    def _heed(self, found: Mapping[str, tuple[Any, ...]], asked: Collection[str]) -> None:
        """Stops the runs whose jobs were cancelled, held, deleted, retried or taken over."""
        for job_id in asked:
            run = self.runs.get(job_id)
            if run is None:
                continue
            _, status, generation, claim, worker = found.get(job_id, (job_id, None, 0, 0, None))
            if status is None or status == "cancelled":
                self._stop_run(run, "cancelled")
            elif generation != run.job.holder.generation or status == "succeeded":
                self._stop_run(run, "lost")
            elif status == "paused":
                self._stop_run(run, "held")
            elif (claim, worker) != (run.job.holder.claim, run.job.holder.worker_id) and status == "running":
                self._stop_run(run, "lost")

    # -- what handlers say ------------------------------------------------------------------------------------

    async def keep_checkpoint(self, job: ClaimedJob, state: bytes) -> None:
        """Keeps a checkpoint of a job that runs here; returns when it is durable."""
        await self.store.write(lambda writer: checkpoint(writer, job, state), quiet=True)

    def begin_checkpoint(self, job: ClaimedJob, state: bytes) -> asyncio.Task[None]:
        """The same for a handler that can't wait; a disk that takes none now is told in the log alone."""
        assert self._group is not None
        return self._group.create_task(self._try_checkpoint(job, state))

    async def _try_checkpoint(self, job: ClaimedJob, state: bytes) -> None:
        try:
            await self.keep_checkpoint(job, state)
        except P2PQueueError as error:
            _log.warning("a checkpoint of job %s was not kept: %s", job.job_id, error)

    async def _tell(self, endings: Collection[Ending], claimed: Collection[ClaimedJob]) -> None:
        if self.live.watched:
            await self.tell_rows(self.live.asked([*(ending.job.job_id for ending in endings), *(job.job_id for job in claimed)]))

    async def tell_rows(self, job_ids: Collection[str]) -> None:
        """Tells watchers how these jobs stand now."""
        if not job_ids:
            return
        found = await self.store.read(lambda connection: rows.with_why(connection, job_ids, node_running=True))
        for job_id, (row, why) in zip(job_ids, found, strict=True):
            self.live.tell(self.event(row, why) if row else {"id": job_id, "status": None})

    def event(self, row: rows.JobRow, why: str | None) -> dict[str, Any]:
        """The event that tells how a job stands, and why it waits: from memory where it runs here."""
        return event_of(row, self.runs.get(row.id), self.label, why)

    async def _beat(self) -> None:
        pause = min(0.5, self.beat_every / 4)
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            due = [run for run in self.runs.values() if run.is_due(now, self.beat_every)]
            if not due:
                continue
            beats = [(run.job.holder, run.job.job_id, run.progress, run.phase) for run in due]
            for run in due:
                run.beaten, run.beaten_progress = now, run.progress
            try:
                await self.store.write(partial(beat, beats=beats), quiet=True)
            except P2PQueueError as error:
                _log.error("leases can't be renewed: %s", error)

    async def _record(self) -> None:
        """Writes into their rows that jobs run which did not end at once."""
        while True:
            await self._unrecorded.wait()
            await asyncio.sleep(RECORD_AFTER)
            before = time.monotonic() - RECORD_AFTER
            late = [run for run in self.runs.values() if not run.recorded and run.started <= before]
            if late:
                try:
                    await self.store.write(partial(record, runs=late), quiet=True)
                except P2PQueueError as error:
                    _log.error("what runs can't be written down: %s", error)
                    continue
                for run in late:
                    run.recorded = True
            if all(run.recorded for run in self.runs.values()):
                self._unrecorded.clear()
