"""What runs while a node runs? The only place where everything meets.

A node holds the lock of its home, opens the replica, recovers what an earlier one left behind, starts its warm
children, and keeps a handful of loops going until it is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from p2pqueue.config import Home, Settings, load_settings
from p2pqueue.identity.keys import Identity, load
from p2pqueue.identity.members import Members
from p2pqueue.identity.roles import allows
from p2pqueue.jobs import alone, local
from p2pqueue.jobs.opening import open_store
from p2pqueue.jobs.orders import Order
from p2pqueue.node.answers import Answers
from p2pqueue.node.standing import Standing
from p2pqueue.node.supervision import supervised
from p2pqueue.nodelock import NodeLock
from p2pqueue.payload.limiting import limits_of
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.network import Network
from p2pqueue.peers.parts import Parts
from p2pqueue.peers.shards.wanting import Wanting
from p2pqueue.replica.door.server import DoorbellServer
from p2pqueue.replica.store import Store
from p2pqueue.workers import tidying
from p2pqueue.workers.claiming.around import Around
from p2pqueue.workers.claiming.presence import Roster
from p2pqueue.workers.claiming.takeover import Takeover
from p2pqueue.workers.inputs import Inputs
from p2pqueue.workers.recovery import fail_unknown, recover
from p2pqueue.workers.requests import Requests
from p2pqueue.workers.running import workdir
from p2pqueue.workers.running.inline import InlineRunner, load_functions
from p2pqueue.workers.running.live import Live
from p2pqueue.workers.running.pool import Pool
from p2pqueue.workers.running.runners import ChildRunner
from p2pqueue.workers.sealer import Sealer
from p2pqueue.workers.settle import look_anew
from p2pqueue.workers.worker import Worker

if TYPE_CHECKING:
    from p2pqueue.jobs.queue import Queue

TIDY_EVERY = 60.0  # seconds between two looks for what is past retention or of an unknown task
TIDY_FIRST = 5.0  # seconds after the start: a start is busy enough

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ready:
    """What a started node says of itself."""

    pid: int
    home: str
    device: str
    label: str
    space: str
    tasks: tuple[str, ...]
    slots: int  # none where it takes no jobs
    socket: str
    addresses: tuple[str, ...] = ()  # where other devices reach it; none while the space has no others


class Node:
    """The running process of a device.

    :param application: where the tasks are: `module:queue`, a `.py` file or a `.toml` of command tasks.
    :param overrides: settings by their names, over those of the environment and `config.toml`.
    :param queue: the program's own queue, whose inline handlers run as they stand there.
    """

    def __init__(
        self, home: Home, *, application: str | None = None, overrides: Mapping[str, Any] | None = None, queue: Queue | None = None
    ) -> None:  # fmt: skip
        self.home = home
        self._queue = queue
        self.application = application
        self.settings: Settings = load_settings(home, overrides or {})
        self.live = Live()
        self._stack = AsyncExitStack()
        self._loops: asyncio.Task[None] | None = None
        self.started = time.time()
        self._standing = Standing(self)
        self.recovered: tuple[str, ...] = ()  # ids of the jobs that an earlier run of this home left running

    async def start(self) -> Ready:
        """Starts everything; returns when jobs are being taken. Raises `HomeInUse` and whatever is in the way."""
        try:
            return await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def stop(self, *, grace: float | None = None) -> None:
        """Takes nothing new, gives running handlers their grace, releases the rest, and closes everything."""
        try:
            await self.worker.stop(grace=grace)
            await self.wait()
        finally:
            if self._loops is not None and not self._loops.done():  # the stop itself was broken off
                self._loops.cancel()
                await asyncio.wait([self._loops])
            await self._stack.aclose()

    def hurry(self) -> None:
        """Cuts the grace of a stop short."""
        self.worker.hurry()

    async def wait(self) -> None:
        """Waits until the node's loops have ended. Raises what ended them, where it wasn't `stop`."""
        if self._loops is not None:
            await asyncio.shield(self._loops)

    async def drained(self) -> None:
        """Waits until nothing runs here and nothing can be claimed, now or later by itself."""
        quiet = 0
        while quiet < 3:
            await asyncio.sleep(0.05)
            quiet = quiet + 1 if self.worker.idle else 0

    async def __aenter__(self) -> Node:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- starting ---------------------------------------------------------------------------------------------

    async def _start(self) -> Ready:
        stack, home, settings = self._stack, self.home, self.settings
        self.identity: Identity = load(home)
        home.ensure()
        stack.enter_context(NodeLock(home.node_lock_file))
        alone.unmark(home)  # what a killed node left
        stack.callback(alone.unmark, home)
        self.store: Store = await open_store(home, self.identity)
        stack.push_async_callback(self.store.close)
        if self._queue is not None:
            self._queue.access.node = self.store
            stack.callback(setattr, self._queue.access, "node", None)
        self.shelf = Shelf(home, self.identity.space_key, quota=settings.quota, reserve=settings.reserve)
        self.shelf.make_room = self._sweep
        stack.callback(self.shelf.close)
        await asyncio.to_thread(self.shelf.clear_leftovers)
        self.roster = Roster(started=time.monotonic(), others=False)
        self.limits = limits_of(settings.rate, await self.store.read(local.kept_limits))
        parts = Parts(
            store=self.store, shelf=self.shelf, identity=self.identity, settings=settings, members=Members(self.identity), live=self.live,
            roster=self.roster, hello=lambda: self.worker.presence().to_fields(),
            look=self._look, obey=self._obey, on_linked=self._linked, on_gone=self._gone,
            on_twin=self._standing.met_twin,
            on_label=self._standing.rename, wanted=lambda: self.wanting.uploads(), limits=self.limits,
        )  # fmt: skip
        self.network = Network(parts)
        self.roster.behind = lambda since: (self.network.synced_at() or math.inf) < since
        self.wanting = Wanting(
            self.store, self.shelf, self.identity.device_id, linked=self.network.linked, fetch=self.network.fetch,
            takers=lambda: any(each.slots for each in self.roster.live(time.monotonic())), always=settings.origin_policy == "always",
        )  # fmt: skip
        await self._start_runners()
        await self.store.write(self._standing.begin)
        limits = {name: task.max_attempts for name, task in self.tasks.items()}
        self.recovered = tuple(await self.store.write(lambda writer: recover(writer, limits), quiet=True))
        self.sealer = Sealer(self.store, self.shelf)
        self.worker = self._make_worker()
        self.takeover = Takeover(
            self.store, device_id=self.identity.device_id, max_attempts=limits, stale_after=settings.stale_after, roster=self.roster,
            usable=lambda: not self.roster.others or self.network.is_usable, synced=self.network.synced_at,
        )  # fmt: skip
        answers = Answers(self)
        server = DoorbellServer(home.socket_path, on_ring=self._rung, requests=answers.requests, streams=answers.streams)
        await server.start()
        stack.push_async_callback(server.close)
        await self.network.start()
        stack.push_async_callback(self.network.close)
        self._loops = asyncio.get_running_loop().create_task(self._run(), name="p2pqueue-node")
        return Ready(
            pid=os.getpid(),
            home=str(home.path),
            device=self.identity.device_id,
            label=self.identity.label,
            space=self.identity.space_name,
            tasks=tuple(sorted(self.tasks)),
            slots=self.worker.slots,
            socket=str(home.socket_path),
            addresses=tuple(self.network.addresses),
        )

    async def _start_runners(self) -> None:
        await asyncio.to_thread(workdir.sweep, self.home.work_dir)
        pool = Pool(self.application, home=self.home.path, size=self.settings.slots, log_limit=self.settings.log_limit)
        self._stack.push_async_callback(pool.close)
        self.tasks = {task.name: task for task in await pool.start()}
        inputs = Inputs(self.store, self.shelf, self.network.fetch)
        self._in_child = ChildRunner(pool, self.home, self.tasks, inputs)
        functions = load_functions(self.application, [name for name, task in self.tasks.items() if task.inline], self._queue)
        self._inline = InlineRunner(functions, self.tasks, self.home, inputs)

    def _make_worker(self) -> Worker:
        inline = {name for name, task in self.tasks.items() if task.inline}
        return Worker(
            store=self.store,
            live=self.live,
            device_id=self.identity.device_id,
            label=self.identity.label,
            slots=self.settings.slots if self.settings.work else 0,
            ability=self._standing.ability(),
            tasks=self.tasks,
            runners=lambda task: self._inline if task in inline else self._in_child,
            beat_every=self.settings.beat_every,
            grace=self.settings.grace,
            on_request=Requests(self.store, self.shelf, self.identity, self.tasks).answer,
            roster=self.roster,
            score=self.settings.score,
            on_free=self.network.told_presence,
            on_begun=self.network.told_begun,
            on_progress=self.network.told_progress,
            on_end=self.network.told_end,
        )

    # -- loops ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        around = Around(self.store, self.roster, self.worker.company)
        loops = (
            self._follow, self._standing.run, self.sealer.run, self._tidy, self.takeover.run,
            self.network.run, self.wanting.run, around.run,
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(supervised(loop)) for loop in loops]
            await self.worker.work()
            await self.network.close()  # while rows still go out: what was released is known before the goodbye
            for helper in helpers:
                helper.cancel()

    def _rung(self) -> None:
        """A claim is what most rings are about, and its transaction sees by the way what others wrote."""
        if not self.worker.rung():
            self.store.ring()

    async def _follow(self) -> None:
        async with self.store.subscribe() as changes:
            self.worker.news(None, seen=False)  # what came before, or while this loop had to begin anew
            async for touched in changes:
                jobs = None if touched is None else {key for table, key in touched if table == "jobs"}
                if jobs is not None and not jobs:
                    continue
                self.sealer.wake()
                if self.live.watched and jobs:
                    await self.worker.tell_rows(self.live.asked(jobs))

    async def _tidy(self) -> None:
        await asyncio.sleep(TIDY_FIRST)
        while True:
            await self.store.write(lambda writer: fail_unknown(writer, self.tasks, int(self.settings.unknown_task_after * 1000)))
            await self.store.prune(int(self.settings.retention * 1000))
            await self._sweep()
            if await self.store.write(lambda writer: look_anew(writer, self.tasks), quiet=True):
                self.worker.rung()
            await asyncio.sleep(TIDY_EVERY)

    async def _sweep(self) -> None:
        """Frees what nothing names any more. What is being taken in meanwhile is young, and stays."""
        await self.store.write(lambda writer: local.forget_inputs(writer.connection), quiet=True)
        folders = await asyncio.to_thread(tidying.log_folders, self.home)
        still = await self.store.read(lambda connection: tidying.needed(connection, folders))
        await asyncio.to_thread(tidying.tidy, self.home, self.shelf, folders, still)

    # -- other devices ----------------------------------------------------------------------------------------

    def _look(self, job_id: str | None) -> None:
        """Another device has said something of a job, or of itself."""
        self.worker.rung()
        self.store.ring()

    def _obey(self, orders: Sequence[Order]) -> None:
        """Another device has said that jobs shall stop which may run here."""
        self.worker.orders.heard(orders, writes=allows(self.identity.role, "cancel"))

    def _linked(self) -> None:
        """Another device is linked, and may have what could not be had."""
        self.worker.new_source()
        self.wanting.hurry()

    def _gone(self, device_id: str, said_goodbye: bool) -> None:
        """A device isn't linked any more."""
        if said_goodbye:
            self.takeover.gone(device_id)
