"""Who takes jobs on this device, and what keeps them going?

Its turns end what has ended and claim for the free slots; each claimed job runs in a task of its own; a loop renews
the leases; and what others did to the jobs that run here is read as soon as it is heard of.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import random
from typing import Any

from p2pqueue import __version__
from p2pqueue.errors import ConfigError, P2PQueueError, WorldError
from p2pqueue.jobs import rows
from p2pqueue.jobs.waiting import Ability
from p2pqueue.replica.merging.merged import Done
from p2pqueue.replica.replica import wall_clock
from p2pqueue.replica.store import Store
from p2pqueue.replica.subscription import Rows
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.children.protocol import Continued, Failed, Outcome, Stopped, Succeeded, TaskDescription, Why
from p2pqueue.workers.claimed import ClaimedJob, Ending, Taker, is_suspect
from p2pqueue.workers.claiming.company import Company
from p2pqueue.workers.claiming.foretold import Told
from p2pqueue.workers.claiming.patience import Patience
from p2pqueue.workers.claiming.presence import SCORE_PER_CORE, Presence, Roster
from p2pqueue.workers.claiming.rivalry import Found, course
from p2pqueue.workers.endings import ending_of
from p2pqueue.workers.inputs import Unreachable
from p2pqueue.workers.orders import Orders
from p2pqueue.workers.run import Reporter, Run, event_of
from p2pqueue.workers.running.live import Live
from p2pqueue.workers.running.relay import Relay
from p2pqueue.workers.running.report import Runner
from p2pqueue.workers.settle import checkpoint
from p2pqueue.workers.telling import tell_end, tell_start
from p2pqueue.workers.turns import Turn, Turns
from p2pqueue.workers.upkeep import record_late, renew

READ_AGAIN = 1.0  # seconds until what could not be read is read again

_log = logging.getLogger(__name__)


def _nothing(*told: object) -> None:
    """Where nobody wants to know."""


@dataclass
class Worker:
    """Claims, runs and ends the jobs of one device.

    With a `roster` it leaves to other workers what they would do earlier. `on_free` is called when its last slot has
    filled or the first has come free, `on_progress` with (job, claim, fraction, phase) at each step, `on_end` with
    (job, status) when an attempt has ended and that is written.
    """

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
    roster: Roster | None = None
    score: int = 0  # 0: by the number of cores
    on_free: Callable[[], object] = _nothing
    on_begun: Callable[[Sequence[Told], Sequence[str]], object] = _nothing  # told before it begins
    on_progress: Callable[[str, int, float, str], object] = _nothing
    on_end: Callable[[str, str], object] = _nothing
    wall: Callable[[], int] = wall_clock  # milliseconds UTC
    chance: Callable[[], float] = random
    runs: dict[str, Run] = field(default_factory=dict)  # by job id
    _noticed: set[str] = field(default_factory=set)  # attempts that others may know to run, and whose ends are not written yet
    _unrecorded: asyncio.Event = field(default_factory=asyncio.Event)  # some run may not be recorded yet
    _empty: asyncio.Event = field(default_factory=asyncio.Event)  # nothing runs
    _group: asyncio.TaskGroup | None = None
    _relay: Relay[Run] = field(init=False)  # gives each run its task
    _suspended: bool = False

    def __post_init__(self) -> None:
        self._limits = {name: task.max_attempts for name, task in self.tasks.items()}
        self.score = self.score or SCORE_PER_CORE * (os.cpu_count() or 1)
        self._empty.set()
        self._patience = Patience()
        self.company = Company(self.roster, self.presence, self.on_free, self.on_begun)
        self._turns = Turns(
            self.store, room=self._room, running=self.runs, taker=self._taker, done=self._take_in, rest=self._rest,
            waits=lambda: self._patience.waits() + self.company.waits(),
        )  # fmt: skip
        self.orders = Orders(self.store, self.runs, stop=self._stop_run, leave=self._patience.put_off)
        self.store.companion = self

    # -- outside ----------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Works until `stop`, and on until every run has ended and is written down."""
        async with asyncio.TaskGroup() as beats:
            looping = [
                beats.create_task(renew(self.store, self.runs, every=self.beat_every)),
                beats.create_task(record_late(self.store, self.runs, self._unrecorded)),
            ]
            async with asyncio.TaskGroup() as group:
                self._group, self._relay = group, Relay(group, self._run, held=self.runs, slots=self.slots, give_back=self._give_back)
                try:
                    await self._turns.run()
                finally:
                    self._relay.close()
            for loop in looping:
                loop.cancel()
        self.company.close()

    async def stop(self, *, grace: float | None = None) -> None:
        """Takes nothing new, gives the running handlers `grace` seconds, then stops and releases them."""
        grace = self.grace if grace is None else grace
        self._turns.stop(time.monotonic() + grace)
        try:
            async with asyncio.timeout(grace):
                await self._empty.wait()
        except TimeoutError:
            self.hurry()

    def suspend(self, suspended: bool) -> None:
        """Takes no job any more, and releases what runs, while another device works under the same key; or goes on."""
        self._suspended = suspended
        for run in list(self.runs.values()) if suspended else ():
            self._stop_run(run, "shutdown")
        self._turns.look()

    def rename(self, label: str) -> None:
        """Goes on under another name for people."""
        self.label, self.ability = label, self.ability._replace(label=label)
        self.on_free()

    def hurry(self) -> None:
        """Stops what still runs, without waiting for its grace."""
        self._turns.stop(time.monotonic())
        for run in list(self.runs.values()):
            self._stop_run(run, "shutdown")

    @property
    def idle(self) -> bool:
        """Says whether nothing runs here, and nothing could be claimed now or later by itself."""
        return not self.runs and (self._suspended or self._turns.idle) and not self.company.waits()

    @property
    def done(self) -> int:
        """How many attempts have ended since the start."""
        return self._turns.ended

    def rung(self) -> bool:
        """Takes in that another process has written something; says whether a transaction begins now that will see what."""
        return self._turns.look()

    def presence(self) -> Presence:
        """What this worker tells other devices of itself."""
        slots = 0 if self._suspended else self.slots
        free = 0 if self._turns.stopping else max(0, slots - len(self.runs))
        return Presence(device_id=self.device_id, ability=self.ability, score=self.score, slots=slots, free=free, version=__version__)

    def new_source(self) -> None:
        """A device has linked: what could not be had may be there, and is tried again at once."""
        if self._patience.forgive():
            self._turns.look()

    # -- as the companion of its store --------------------------------------------------------------------------

    def join(self, *, loud: bool) -> tuple[Callable[[Writer], Any], Callable[[Done], object]] | None:
        """Claims in the commit of whoever writes now in this node, and ends what has ended."""
        return self._turns.join(loud=loud)

    def news(self, rows: Rows | None, *, seen: bool) -> None:
        """Takes in what others wrote: what runs here may have to stop, and unless `seen` there may be something to claim."""
        jobs = None if rows is None else [key for table, key in rows if table == "jobs"]
        here = [job_id for job_id in (self.runs if jobs is None else jobs) if job_id in self.runs]
        if here and self._group is not None:
            self._group.create_task(self._look(here))
        self.company.written(jobs or ())
        if not seen and (jobs is None or jobs):
            self._turns.look()

    # -- claiming and ending ----------------------------------------------------------------------------------

    def _taker(self) -> Taker:
        unrecorded = tuple(run.begun for run in self.runs.values() if not run.recorded)
        skip = frozenset([*self.runs, *self._patience.left_alone()])
        suspects = any(is_suspect(run.job.attempt, run.job.max_attempts, run.job.error) for run in self.runs.values())
        survey, free = self.company.survey(), max(0, self.slots - len(self.runs))
        return Taker(self.device_id, self.label, self.ability, self._limits, skip, unrecorded, survey, free, suspects, self.company.taken())

    def _room(self) -> int:
        """How many jobs may be claimed."""
        return max(0, self._relay.reach - len(self.runs))

    def _rest(self) -> float:
        return math.inf if self._suspended else self.company.rest()

    def _take_in(self, turn: Turn) -> None:
        self.company.begins(turn.claimed, turn.author, turn.endings)
        if turn.claimed:
            self._empty.clear()
            self._unrecorded.set()
            now = time.monotonic()
            for job in turn.claimed:
                self._start(job, turn.author, now)
        self.company.looked(len(turn.claimed))
        self.company.fills()
        for ending in turn.endings:
            if ending.job.key in self._noticed:
                self._noticed.discard(ending.job.key)
                self.on_end(ending.job.job_id, ending.how)
        if self.live.watched and self._group is not None:
            ids = self.live.asked([*(ending.job.job_id for ending in turn.endings), *(job.job_id for job in turn.claimed)])
            self._group.create_task(self._tell(ids))

    # -- running ----------------------------------------------------------------------------------------------

    def _start(self, job: ClaimedJob, author: bytes, now: float) -> None:
        tell_start(job)
        run = Run(job, author, started=now, beaten=now, progress=job.progress, recorded=job.recorded)
        self.runs[job.job_id] = run
        self._relay.start(run)

    async def _run(self, run: Run) -> None:
        run.started = time.monotonic()
        try:
            outcome, manifest = await self.runners(run.job.task).run(run.job, Reporter(self, run))
            self._patience.forget(run.job.job_id)
            ending = self._ending(run, self._meant(run, outcome), manifest)
        except Exception as error:  # noqa: BLE001 - what goes wrong with one job, whatever it holds, ends that attempt alone
            ending = self._unrun(run, error)
        self._end(run, ending)

    def _meant(self, run: Run, outcome: Outcome) -> Outcome:
        """What an outcome means, where a stop and the end of the handler may have crossed."""
        if run.stop_why is not None:
            return outcome if isinstance(outcome, (Succeeded, Continued)) else Stopped(run.stop_why)
        if isinstance(outcome, Stopped):
            return Failed("the handler stopped although nobody told it to", kinds=("Cancelled", "Exception"))
        return outcome

    def _unrun(self, run: Run, error: Exception) -> Ending:
        """How an attempt ends that could not be made."""
        if isinstance(error, (Unreachable, WorldError, ConfigError)):
            self._patience.put_off(run.job.job_id)
            return Ending(run.job, "released", author=run.author, error=str(error), unstarted=isinstance(error, Unreachable))
        name = type(error).__name__
        if isinstance(error, P2PQueueError):
            return self._ending(run, self._meant(run, Failed(f"{name}: {error}", kinds=(name, "Exception"))))
        _log.error("job %s", run.job.job_id, exc_info=error)
        return self._ending(run, Failed(f"the node could not run it: {name}: {error}", kinds=("Exception",)))

    def _ending(self, run: Run, outcome: Outcome, manifest: str | None = None) -> Ending:
        return ending_of(
            run.job, outcome, self.tasks.get(run.job.task), author=run.author, now=self.wall(),
            duration=time.monotonic() - run.started, random=self.chance, output_manifest=manifest,
            unwritten=run.job.first and not run.recorded and not run.outranked,
        )  # fmt: skip

    def _end(self, run: Run, ending: Ending) -> None:
        tell_end(ending)
        if run.outranked and run.stop_why != "lost":
            ending = ending._replace(rival=True)
        if run.recorded:
            self._noticed.add(run.job.key)
        if self.runs.get(run.job.job_id) is run:
            del self.runs[run.job.job_id]
        if not self.runs:
            self._empty.set()
        self._turns.end(ending)

    def _give_back(self, run: Run) -> None:
        """Leaves a job that has not begun to whoever has a slot for it."""
        self._end(run, Ending(run.job, "released", author=run.author, unstarted=True))

    def _stop_run(self, run: Run, why: Why) -> None:
        if run.stop_why is None:
            run.stop_why = why
            self.runners(run.job.task).stop(run.job.key, why)

    async def _look(self, running: Collection[str]) -> None:
        while any(job_id in self.runs for job_id in running):
            try:
                found = await self.store.read(lambda connection: list(rows.statuses(connection, running)))
            except P2PQueueError as error:
                _log.error("the replica can't be read: %s", error)
                await asyncio.sleep(READ_AGAIN)
            else:
                self._heed({row[0]: row for row in found}, running)
                return

    def _heed(self, found: Mapping[str, tuple[Any, ...]], asked: Collection[str]) -> None:
        """Stops the runs whose jobs were cancelled, held, deleted, retried or taken over by one that is not behind."""
        for job_id in asked:
            run = self.runs.get(job_id)
            if run is None:
                continue
            row = found.get(job_id)
            now = Found(*row[1:]) if row else Found(None, 0, 0, None, 0.0)
            goes = course(run.job.holder, now, progress=run.progress, recorded=run.recorded)
            run.outranked = goes in ("beside", "lost")
            if goes != "holds" and goes != "beside":
                self._stop_run(run, goes)

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

    async def _tell(self, job_ids: Collection[str]) -> None:
        try:
            await self.tell_rows(job_ids)
        except P2PQueueError as error:
            _log.error("the replica can't be read: %s", error)

    async def tell_rows(self, job_ids: Collection[str]) -> None:
        """Tells watchers how these jobs stand now."""
        if not job_ids:
            return
        found = await self.store.read(lambda connection: rows.with_why(connection, job_ids, node_running=True))
        for job_id, (row, why) in zip(job_ids, found, strict=True):
            self.live.tell(self.event(row, why) if row else {"id": job_id, "status": None})

    def event(self, row: rows.JobRow, why: str | None) -> dict[str, Any]:
        """The event that tells how a job stands, and why it waits: from memory where it runs here."""
        left = self.company.reason(row.id) if row.status == "queued" else None
        return event_of(row, self.runs.get(row.id), self.label, left or why)
