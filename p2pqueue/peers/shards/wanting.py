"""Which files does somebody want whom they are not with? Results that belong here, and files that others need of the origin.

What a job that was enqueued on this device made elsewhere is fetched as soon as it is there, so that it can be had
when its maker has left. What is here and needed elsewhere, where nobody linked can take it, goes to the origin.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.payload.shelf import Shelf
from p2pqueue.replica.store import Store

RECENT: Final = 1_000  # jobs that are looked at after a start
AGAIN_AFTER: Final = 20.0  # seconds until a result that could not be had is looked for again

# The plus keeps SQLite from going through all that have succeeded.
_OUTPUTS = (
    "SELECT DISTINCT runs.output_manifest FROM jobs JOIN runs ON runs.id = jobs.result_id "
    "WHERE +jobs.status = 'succeeded' AND jobs.live = 1 AND jobs.enqueued_by = :device AND runs.worker_id <> :device "
    "AND runs.output_manifest IS NOT NULL AND jobs.id IN "
)
_OF_THESE = _OUTPUTS + "(SELECT value FROM json_each(:jobs))"
_OF_RECENT = _OUTPUTS + f"(SELECT id FROM jobs WHERE status = 'succeeded' ORDER BY created_at DESC LIMIT {RECENT})"  # jobs_by_status
_INPUTS_NEEDED = (
    "SELECT DISTINCT input_manifest FROM jobs WHERE status IN ('queued', 'running', 'paused') AND live = 1 AND input_counts "
    f"AND input_manifest IS NOT NULL AND enqueued_by = ? ORDER BY id LIMIT {RECENT}"  # jobs_by_status
)
_OUTPUTS_NEEDED = (
    "SELECT DISTINCT runs.output_manifest, jobs.enqueued_by FROM jobs JOIN runs ON runs.id = jobs.result_id "
    "WHERE +jobs.status = 'succeeded' AND jobs.live = 1 AND runs.worker_id = ? AND jobs.enqueued_by <> ? "
    "AND runs.output_manifest IS NOT NULL AND jobs.id IN "
    f"(SELECT id FROM jobs WHERE status = 'succeeded' ORDER BY created_at DESC LIMIT {RECENT})"
)
_SHARED = f"SELECT capability FROM shared ORDER BY since DESC LIMIT {RECENT}"  # without a job

_log = logging.getLogger(__name__)


class Wanting:
    """Fetches results, and tells what should be on the origin.

    `linked` says whether a device is linked now; `fetch` brings a file here.
    """

    def __init__(
        self, store: Store, shelf: Shelf, device_id: str, *, linked: Callable[[str], bool], fetch: Callable[[str], Awaitable[object]],
        takers: Callable[[], bool], always: bool,
    ) -> None:  # fmt: skip
        """`takers` says whether somebody who is linked could take a waiting input; `always` puts all on the origin."""
        self._store = store
        self._shelf = shelf
        self._device_id = device_id
        self._linked = linked
        self._fetch = fetch
        self._takers = takers
        self._always = always
        self._missing: set[str] = set()
        self._hurried = asyncio.Event()

    async def run(self) -> None:
        """Fetches results as they come to be, until it is cancelled."""
        await self._note(None)
        async with self._store.subscribe() as changes, asyncio.TaskGroup() as group:
            fetching = group.create_task(self._bring_all())
            async for touched in changes:
                jobs = None if touched is None else [key for table, key in touched if table == "jobs"]
                if jobs is None or jobs:
                    await self._note(jobs)
                if self._missing and fetching.done():
                    fetching = group.create_task(self._bring_all())
            fetching.cancel()

    def hurry(self) -> None:
        """Another device is linked: it may have what could not be had."""
        self._hurried.set()

    async def uploads(self) -> Sequence[str]:
        """The files that should be on the origin now."""
        found = await self._store.read(self._needed)
        return [capability for capability in found if await asyncio.to_thread(self._shelf.holds, capability)]

    def _needed(self, connection: sqlite3.Connection) -> list[str]:
        inputs = [capability for (capability,) in connection.execute(_INPUTS_NEEDED, (self._device_id,))]
        outputs = connection.execute(_OUTPUTS_NEEDED, (self._device_id, self._device_id)).fetchall()
        if self._always:
            return [*inputs, *(capability for capability, _ in outputs), *(capability for (capability,) in connection.execute(_SHARED))]
        needed = [] if self._takers() else inputs
        return [*needed, *(capability for capability, device in outputs if not self._linked(device))]

    async def _note(self, jobs: Collection[str] | None) -> None:
        """Looks which results of these jobs are not here."""
        query, values = (_OF_RECENT, {}) if jobs is None else (_OF_THESE, {"jobs": json.dumps(list(jobs))})
        rows = await self._store.read(lambda connection: connection.execute(query, {"device": self._device_id, **values}).fetchall())
        self._missing.update(await asyncio.to_thread(self._absent, [capability for (capability,) in rows]))

    def _absent(self, capabilities: Iterable[str]) -> list[str]:
        return [capability for capability in capabilities if not self._shelf.holds(capability)]

    async def _bring_all(self) -> None:
        while self._missing:
            self._hurried.clear()
            for capability in list(self._missing):
                try:
                    await self._fetch(capability)
                    self._missing.discard(capability)
                except P2PQueueError as error:
                    _log.debug("a result is not here yet: %s", error)
            if self._missing:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_AFTER):
                        await self._hurried.wait()
