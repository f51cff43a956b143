"""What is a device in a test: a home for the while, the worker that it has, and the jobs that it runs when it is told to?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from p2pqueue.config import load_settings
from p2pqueue.home import Home
from p2pqueue.jobs import local
from p2pqueue.jobs.handle import Job
from p2pqueue.jobs.waiting import Ability
from p2pqueue.replica.retention import prune_all
from p2pqueue.replica.writer import Writer
from p2pqueue.testing.clock import Clock
from p2pqueue.testing.hand import Hand
from p2pqueue.testing.handlers import Here
from p2pqueue.testing.loop import LoopThread
from p2pqueue.testing.program import Program, Rows
from p2pqueue.workers.children.protocol import TaskDescription
from p2pqueue.workers.inputs import Inputs
from p2pqueue.workers.recovery import fail_unknown
from p2pqueue.workers.requests import Requests
from p2pqueue.workers.running.inline import InlineRunner
from p2pqueue.workers.running.live import Live
from p2pqueue.workers.running.runners import ChildRunner
from p2pqueue.workers.settle import look_anew, next_due

if TYPE_CHECKING:
    from p2pqueue.jobs.queue import Queue
    from p2pqueue.jobs.task import Task
    from p2pqueue.replica.store import Store
    from p2pqueue.workers.running.pool import Pool


class Device:
    """A device of a test.

    :ivar label: its name.
    :ivar clock: the clock that its jobs go by.
    """

    def __init__(
        self, queues: Sequence[Queue], home: Home, *, clock: Clock, loop: LoopThread, then: Callable[[], object],
        bring: Callable[[Device, str], None],
    ) -> None:  # fmt: skip
        self.clock = clock
        self._queues = queues
        self._loop = loop
        self._then = then
        self.settings = load_settings(home)
        self.access = Program(home, wall=clock, then=then, bring=lambda capability: bring(self, capability))
        self.label = self.access.identity.label
        self.access.replica.connection.execute("PRAGMA synchronous = OFF")  # gone after the test anyhow: no wait for the disk
        self._rows = Rows(self.access)
        self._only: frozenset[str] | None = None  # the tasks that it has; None: all
        self._tags: frozenset[str] = frozenset()
        self._takes = True
        self._made_of: object = None  # what the worker was made of
        self._hand: Hand
        self._here: Here

    def __repr__(self) -> str:
        return f"<Device {self.label!r}>"

    # -- for tests --------------------------------------------------------------------------------------------

    def job(self, job: Job[Any] | str) -> Job[Any]:
        """A job as this device sees it, wherever it was enqueued."""
        return Job(self.access, job if isinstance(job, str) else job.id)

    def can(self, *, tasks: Collection[str] | None = None, tags: Collection[str] | None = None, takes: bool | None = None) -> None:
        """Says what it can do from now on, and lets what can run then run.

        :param tasks: names of the tasks that it has; default as before, at first all of the queues.
        :param tags: what it offers to tasks with `needs`; default as before, at first nothing.
        :param takes: whether it takes jobs at all; default as before, at first it does.
        """
        self._only = self._only if tasks is None else frozenset(tasks)
        self._tags = self._tags if tags is None else frozenset(tags)
        self._takes = self._takes if takes is None else takes
        self._then()

    @contextmanager
    def here(self) -> Iterator[Device]:
        """Within the block the program of the test runs on this device: the queues are this one's."""
        before = [queue._access for queue in self._queues]
        for queue in self._queues:
            queue._access = self.access
        try:
            yield self
        finally:
            for queue, access in zip(self._queues, before, strict=True):
                queue._access = access

    # -- for the stage ----------------------------------------------------------------------------------------

    def run_due(self) -> bool:
        """Runs what can run here now, job after job; says whether anything did."""
        hand, ran = self._worker(), False
        while (run := hand.claim()) is not None:
            ran = True
            done = self._loop.begin(hand.perform(run))
            self._here.serve(done)
            done.result()
            if self._here.interrupted:
                self._here.interrupted, hand.slots = False, 0
                hand.claim()
                self._made_of = None
                raise KeyboardInterrupt
        return ran

    def heed(self) -> None:
        """Stops what runs here where its job was cancelled, paused or deleted."""
        if self._made_of is not None:
            self._loop.call(self._hand.heed)

    def next_due(self) -> int | None:
        """When the next job comes due that waits for its time, in milliseconds UTC."""
        return self.access.read(next_due)

    def tidy(self) -> None:
        """Drops what is past its time, and fails what nobody knows, as a node does every minute."""
        after = int(self.settings.unknown_task_after * 1000)
        self._rows.put(lambda writer: fail_unknown(writer, self._tasks(), after))
        prune_all(self.access.replica, int(self.settings.retention * 1000))
        self._rows.put(lambda writer: local.forget_inputs(writer.connection))

    def close(self) -> None:
        """Closes what is open of the home."""
        self.access.close()

    def look_again(self) -> None:
        """Tries again what could not be had: another device is joined now."""
        if self._made_of is not None:
            self._hand.new_source()

    async def _fetch(self, capability: str, tell: Callable[[int, int], None]) -> None:
        assert self.access.bring is not None
        await asyncio.to_thread(self.access.bring, capability)

    def _tasks(self) -> dict[str, Task[..., Any]]:
        found = {name: task for queue in self._queues for name, task in queue.tasks.items()}
        return {name: task for name, task in found.items() if self._only is None or name in self._only}

    def _worker(self) -> Hand:
        """The worker; another one where there are other tasks than before, as after a restart of a node."""
        tasks = self._tasks()
        made_of = (*tasks.items(), self._tags, self._takes)
        if made_of != self._made_of:
            self._hand, self._made_of = self._new_worker(tasks), made_of
        return self._hand

    def _new_worker(self, tasks: dict[str, Task[..., Any]]) -> Hand:
        described = {name: TaskDescription.from_map(task.describe()) for name, task in tasks.items()}
        identity, home, store = self.access.identity, self.access.home, cast("Store", self._rows)
        self._here = Here(tasks, self.clock, self.access.shelf)
        inputs = Inputs(store, self.access.shelf, self._fetch)
        in_child = ChildRunner(cast("Pool", self._here), home, described, inputs)
        inline = InlineRunner({name: task.function for name, task in tasks.items()}, described, home, inputs)
        ability = self._ability(described)

        def remember(writer: Writer) -> None:
            local.remember_tasks(writer.connection, [task.describe() for task in described.values()])
            local.remember_ability(writer.connection, ability)
            look_anew(writer)

        self._rows.put(remember)
        return Hand(
            store=store, live=Live(), device_id=identity.device_id, label=identity.label, slots=int(self._takes), ability=ability,
            tasks=described, runners=lambda task: inline if described[task].inline else in_child, wall=self.clock, chance=lambda: 1.0,
            on_request=Requests(store, self.access.shelf, identity, described).answer,
        )  # fmt: skip

    def _ability(self, tasks: dict[str, TaskDescription]) -> Ability:
        return Ability(
            label=self.label,
            tasks=frozenset(tasks),
            tags=self._tags,
            max_input_by_task={name: task.max_input for name, task in tasks.items() if task.max_input},
            needs_by_task={name: frozenset(task.needs) for name, task in tasks.items()},
            programs=local.ProgramsOnPath(),
            takes=self._takes,
            trouble=None if self._takes else f"{self.label} takes no jobs",
        )
