"""What can this node do, and how is it called? Both may change while it runs, and the commands of its home are told."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from p2pqueue.errors import P2PQueueError
from p2pqueue.identity.keys import label_of, relabel
from p2pqueue.jobs import alone, local
from p2pqueue.jobs.waiting import EXEC_TASK, Ability
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.claiming.around import EVERY_JOB

if TYPE_CHECKING:
    from p2pqueue.node.node import Node

_log = logging.getLogger(__name__)


class Standing:
    """How one node stands."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._changed = asyncio.Event()
        self._twin: str | None = None  # in words, where another running device has the key of this one

    def ability(self) -> Ability:
        """What this node can do now."""
        node = self._node
        settings, tasks = node.settings, node.tasks
        return Ability(
            label=node.identity.label,
            tasks=frozenset(tasks) | ({EXEC_TASK} if settings.allow_exec else set()),
            tags=frozenset(settings.tags),
            max_input=settings.max_input or None,
            max_input_by_task={name: task.max_input for name, task in tasks.items() if task.max_input},
            needs_by_task={name: frozenset(task.needs) for name, task in tasks.items()},
            programs=local.ProgramsOnPath(),
            allow_exec=settings.allow_exec,
            takes=settings.work and self._twin is None,
            trouble=self._twin and f"another running device has the key of {node.identity.label}",
            exec_tasks=frozenset(name for name, task in tasks.items() if task.command is not None and name not in settings.allow_tasks),
        )

    def begin(self, writer: Writer) -> None:
        """Keeps that the node is on its way; what an earlier one knew of other devices holds no more."""
        self.remember(writer)
        local.remember_others(writer.connection, {}, {EVERY_JOB: f"{self._node.identity.label} is just starting"})

    def remember(self, writer: Writer) -> None:
        """Keeps for the commands of this home what its node can do."""
        local.remember_tasks(writer.connection, [task.describe() for task in self._node.tasks.values()])
        local.remember_ability(writer.connection, self.ability())

    async def run(self) -> None:
        """Keeps it again whenever it has changed."""
        while True:
            await self._changed.wait()
            await self._node.store.write(self.remember, quiet=True)
            self._changed.clear()

    def met_twin(self, trouble: str | None) -> None:
        """Another running device has the key of this one (in words), or has it no more (None)."""
        node, self._twin = self._node, trouble
        self._changed.set()
        node.worker.suspend(trouble is not None)
        if trouble is None:
            alone.unmark(node.home)
            return
        try:
            alone.mark(node.home, trouble)
        except P2PQueueError as error:
            _log.error("programs of this home can't be told: %s", error)

    async def rename(self, label: str) -> None:
        """This device is called so: in what it writes and tells from now on, and in its own keys."""
        node = self._node
        label = label_of(label, node.identity.label)
        if label == node.identity.label:
            return
        node.identity = replace(node.identity, label=label)
        node.store.replica.signer = node.identity
        node.worker.rename(label)
        node.network.rename(node.identity)
        self._changed.set()
        try:
            await asyncio.to_thread(relabel, node.home, label)
        except P2PQueueError as error:
            _log.error("the new name of this device is not kept: %s", error)
