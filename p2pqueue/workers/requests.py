"""What may a running handler ask of its node, and what does the node answer?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from p2pqueue.errors import MisuseError
from p2pqueue.identity.keys import Identity
from p2pqueue.jobs.ledger import NewFile, NewJob, enqueue
from p2pqueue.payload.shelf import Shelf
from p2pqueue.replica.store import Store
from p2pqueue.workers.children.protocol import TaskDescription
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.sealer import bundle

T = TypeVar("T")


@dataclass(frozen=True)
class Requests:
    """Answers the requests of handlers: `enqueue` makes a follow-up job."""

    store: Store
    shelf: Shelf
    identity: Identity
    tasks: Mapping[str, TaskDescription]

    async def answer(self, job: ClaimedJob, kind: str, fields: dict[str, Any]) -> Any:
        """The answer to one request. Raises `MisuseError` for a kind that this version does not know."""
        if kind != "enqueue":
            raise MisuseError(f"this node does not know the request {kind!r}")
        files = [await asyncio.to_thread(self._take_in, name, source) for name, source in fields["files"].items()]
        manifest = await asyncio.to_thread(bundle, self.shelf, files) if files else None
        new = self._new_job(job, fields, tuple(files), manifest)
        done = await self.store.write(lambda writer: enqueue(writer, new))
        return {"id": done.id, "created": done.created}

    def _take_in(self, parameter: str, source: Mapping[str, Any]) -> NewFile:
        if "capability" in source:
            described = self.shelf.identify(source["capability"]).one()
            return NewFile(parameter, described.name, described.size, capability=source["capability"])
        # Sealed before the answer: a file of the handler's own folder is gone when it ends.
        stored = self.shelf.ingest(source["path"], copy=True)
        return NewFile(parameter, stored.name, stored.size, capability=stored.capability)

    def _new_job(self, job: ClaimedJob, fields: Mapping[str, Any], files: tuple[NewFile, ...], manifest: str | None) -> NewJob:
        options, task = fields["options"], self.tasks.get(fields["task"])
        return NewJob(
            task=fields["task"],
            args=fields["args"],
            queue=fields["queue"] or (task.queue if task else job.queue),
            title=_chosen(options.get("title"), task and task.title),
            priority=_chosen(options.get("priority"), task.priority if task else 0) or 0,
            max_attempts=options.get("max_attempts"),
            timeout=options.get("timeout"),
            run_at=_due(options, self.store.replica.now()),
            unique_key=options.get("unique_key"),
            owner=self.identity.owner,
            options={"parent": job.job_id},
            files=files,
            manifest=manifest,
            space=self.identity.space_id,
        )


def _chosen(given: T | None, declared: T | None) -> T | None:
    return declared if given is None else given


def _due(options: Mapping[str, Any], now: int) -> int | None:
    if options.get("delay") is not None:
        return now + int(options["delay"] * 1000)
    run_at = options.get("run_at")
    return None if run_at is None else int(run_at.timestamp() * 1000)
