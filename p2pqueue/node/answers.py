"""What does a node answer to the processes of its own user, over the local socket?"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import ArgumentError, P2PQueueError
from p2pqueue.jobs import local, rows
from p2pqueue.payload import limiting
from p2pqueue.payload.fetching.transfers import SHOWN_EVERY
from p2pqueue.payload.manifest import FolderManifest
from p2pqueue.replica.door.server import Request, Stream

if TYPE_CHECKING:
    from p2pqueue.node.node import Node

_MOST_WATCHED = 1_000  # jobs that one watcher may name


class Answers:
    """The requests and streams of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def requests(self) -> dict[str, Request]:
        """What has one answer."""
        asked = (self.status, self.devices, self.offline, self.online, self.limit, self.describe, self.transfers)
        return {each.__name__: each for each in asked}

    @property
    def streams(self) -> dict[str, Stream]:
        """What goes on until either side ends it."""
        return {"watch": self.watch, "invite": self.invite, "fetch": self.fetch, "transfers": self.follow_transfers}

    async def status(self, fields: dict[str, Any]) -> dict[str, Any]:
        """How the node stands."""
        node = self._node
        return {
            "pid": os.getpid(),
            "started_at": int(node.started * 1000),
            "device": node.identity.device_id,
            "label": node.identity.label,
            "slots": node.worker.slots,
            "tasks": sorted(node.tasks),
            "running": [self._run(job_id) for job_id in node.worker.runs],
            "done": node.worker.done,
            "network": {**node.network.status(), "limits": limiting.tell(node.limits, setting=node.settings.rate)},
        }

    def _run(self, job_id: str) -> dict[str, Any]:
        run = self._node.worker.runs[job_id]
        return {"id": job_id, "task": run.job.task, "progress": run.progress, "phase": run.phase, "attempt": run.job.attempt}

    async def devices(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The linked devices."""
        return {"peers": self._node.network.peers()}

    async def offline(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Stops networking."""
        await self._node.network.offline()
        return self._node.network.status()

    async def online(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Begins networking again."""
        await self._node.network.online()
        return self._node.network.status()

    async def limit(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Changes the limits of transfers, for this node and the next ones, and tells them."""
        node = self._node
        limiting.change(node.limits, fields, setting=node.settings.rate)
        if limiting.changes(fields):
            kept = limiting.to_keep(node.limits, fields, await node.store.read(local.kept_limits))
            await node.store.write(lambda writer: local.keep_limits(writer.connection, kept), quiet=True)
        return limiting.tell(node.limits, setting=node.settings.rate)

    async def invite(self, fields: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Makes a code, and tells what becomes of it."""
        async with aclosing(self._node.network.invite(fields)) as events:
            async for event in events:
                yield event

    async def describe(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Which files a manifest names that is on another device, without their content."""
        capability = _capability(fields)
        manifest = await self._node.network.describe(capability)
        if isinstance(manifest, FolderManifest):
            return {"files": [[entry.name, entry.capability.text, entry.size] for entry in manifest.entries], "folder": True}
        return {"files": [[manifest.name, capability, manifest.size]], "folder": False}

    async def transfers(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The files that are on their way to this device."""
        return {"transfers": [each.plain() for each in self._node.network.transfers()]}

    async def follow_transfers(self, fields: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The same again and again: when one begins or ends, and every half second while there are any."""
        async with aclosing(self._node.network.follow_transfers()) as looks:
            async for look in looks:
                yield {"transfers": [each.plain() for each in look]}

    async def fetch(self, fields: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Brings a file here: how far it is, how it stands, and at the end from whom and by which lanes it came."""
        capability = _capability(fields)
        steps: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        failure: list[P2PQueueError] = []
        shown_at = 0.0

        def standing() -> dict[str, Any]:
            """How it stands, now and then; nothing in between."""
            nonlocal shown_at
            if time.monotonic() - shown_at < SHOWN_EVERY:
                return {}
            look = self._node.network.transfer(capability)
            if look is None or look.failed:
                return {}
            shown_at = time.monotonic()
            return {"transfer": look.plain()}

        async def run() -> None:
            try:
                fetched = await self._node.network.fetch(capability, lambda done, size: steps.put_nowait({"done": done, "size": size}))
                received = [[source, lane, size] for (source, lane), size in fetched.received.items()]
                steps.put_nowait({"fetched": True, "received": received})
            except P2PQueueError as error:
                failure.append(error)
            finally:
                steps.put_nowait(None)

        async with asyncio.TaskGroup() as group:
            fetching = group.create_task(run())
            try:
                while True:
                    try:
                        async with asyncio.timeout(SHOWN_EVERY):
                            step = await steps.get()
                    except TimeoutError:
                        if told := standing():
                            yield told
                        continue
                    if step is None:
                        break
                    yield {**standing(), **step}
            except GeneratorExit:
                pass  # who asked has gone; raised on, the group would wrap it into an error
            finally:
                fetching.cancel()
        if failure:
            raise failure[0]

    async def watch(self, fields: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """What happens to some jobs, or to all that run."""
        node, asked = self._node, fields.get("jobs")
        if asked is not None and not (isinstance(asked, list) and all(isinstance(job_id, str) for job_id in asked)):
            raise ArgumentError("jobs is a list of job ids; without it all are watched")
        jobs = None if asked is None else asked[:_MOST_WATCHED]
        with node.live.watch(jobs) as watcher:
            wanted = jobs if jobs is not None else list(node.worker.runs)
            found = await node.store.read(lambda connection: rows.with_why(connection, wanted, node_running=True))
            for job_id, (row, why) in zip(wanted, found, strict=True):
                yield node.worker.event(row, why) if row else {"id": job_id, "status": None}
            async for event in watcher.events():
                yield event


def _capability(fields: dict[str, Any]) -> str:
    capability = fields.get("capability")
    if not isinstance(capability, str):
        raise ArgumentError("capability is the text of a manifest, p2pq1-…")
    return capability
