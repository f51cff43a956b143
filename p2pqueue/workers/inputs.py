"""Where are the files that a job reads, and what becomes of those that it made?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from p2pqueue.errors import ArgumentError, BadShard, InputChanged, InputUnreadable, P2PQueueError, PayloadUnavailable
from p2pqueue.jobs.arguments import decode, is_marker
from p2pqueue.jobs.ledger import NewFile, files_of
from p2pqueue.payload.shelf import Shelf
from p2pqueue.replica.store import Store
from p2pqueue.workers.children.protocol import Failed, FileGrant, OutputFile
from p2pqueue.workers.claimed import ClaimedJob
from p2pqueue.workers.originals import unchanged
from p2pqueue.workers.sealer import clear_problem, has_problem, note_problem
from p2pqueue.workers.settle import RESUMED

_LOSSES = frozenset({"PayloadUnavailable", "InputChanged"})  # what reading an input raises where a part of it is gone


class Unreachable(P2PQueueError):
    """The payload of a job can't be reached now; the job is released, not failed."""


@dataclass(frozen=True)
class Inputs:
    """Grants the files of jobs to their handlers, and keeps the files that handlers return."""

    store: Store
    shelf: Shelf
    fetch: Callable[[str, Callable[[int, int], None]], Awaitable[object]] | None = None  # brings a file from another device

    async def grants(self, job: ClaimedJob, tell: Callable[[str], None] = lambda words: None) -> dict[str, FileGrant]:
        """The files of a job by their parameters. Raises `Unreachable` where one can't be had here now.

        `tell` is told in words how far the fetching of one that isn't here is.
        """
        if not job.has_input:
            return {}
        files = await self.store.read(lambda connection: files_of(connection, job.job_id))
        try:
            await self._bring(job, files, tell)
            known = files or await asyncio.to_thread(self._from_manifest, job)
            granted = {file.parameter: await asyncio.to_thread(self._grant, file) for file in known}
        except (PayloadUnavailable, InputChanged, InputUnreadable, BadShard) as error:
            problem = str(error)
            parameter = files[0].parameter if files else ""
            await self.store.write(lambda writer: note_problem(writer, job.job_id, parameter, problem), quiet=True)
            raise Unreachable(problem) from error
        if await self.store.read(lambda connection: has_problem(connection, job.job_id)):
            await self.store.write(lambda writer: clear_problem(writer, job.job_id), quiet=True)
        return granted

    async def _bring(self, job: ClaimedJob, files: Sequence[NewFile], tell: Callable[[str], None]) -> None:
        """Fetches an input that isn't on this device, or no longer: its original went away, or its copy was damaged."""
        if self.fetch is None or job.input_manifest is None or await asyncio.to_thread(self.shelf.holds, job.input_manifest):
            return
        try:
            await self.fetch(job.input_manifest, lambda done, size: tell(_so_far(done, size)))
            tell(RESUMED)
        except PayloadUnavailable:
            if not any(file.path is not None for file in files):  # else what became of the original tells more
                raise

    async def check(self, job: ClaimedJob, failed: Failed) -> None:
        """Raises `Unreachable` where a handler failed since a part of its input turned out to be gone: no fault of the handler's."""
        if job.input_manifest is None or _LOSSES.isdisjoint(kind.rpartition(".")[2] for kind in failed.kinds):
            return
        if not await asyncio.to_thread(self.shelf.holds, job.input_manifest):
            raise Unreachable(failed.error)

    async def keep(self, outputs: tuple[OutputFile, ...]) -> str | None:
        """Takes in the files that a handler returned; gives the manifest of the one, or of all by their names."""
        if not outputs:
            return None
        kept = {output.name: await asyncio.to_thread(self._keep, output) for output in outputs}
        return next(iter(kept.values())) if len(kept) == 1 else await asyncio.to_thread(self.shelf.bundle, kept)

    def _keep(self, output: OutputFile) -> str:
        if output.capability is not None:
            return output.capability
        if output.path is None:
            raise ArgumentError(f"the output {output.name!r} has neither a path nor a manifest")
        try:
            return self.shelf.adopt(output.path, output.label or os.path.basename(output.path)).capability
        except (InputUnreadable, InputChanged) as error:  # a fault of its handler, and none of the disk that time would mend
            raise ArgumentError(f"what the handler returned as {output.name!r} can't be kept: {error}") from error

    def _from_manifest(self, job: ClaimedJob) -> list[NewFile]:
        if job.input_manifest is None:
            raise PayloadUnavailable("its input is on another device, and has not been shared yet")
        names = [value["__file__"] for value in decode(job.args).values() if is_marker(value)]
        if len(names) == 1:
            return [self._shared(names[0], job.input_manifest)]
        bundled = self.shelf.unbundle(job.input_manifest)
        return [self._shared(name, bundled[name].capability) for name in names]

    def _shared(self, parameter: str, capability: str) -> NewFile:
        described = self.shelf.identify(capability).one()
        return NewFile(parameter, described.name, described.size, capability=capability)

    def _grant(self, file: NewFile) -> FileGrant:
        if file.capability is None:
            return FileGrant(unchanged(file), None, file.name, file.size)
        plain = self.shelf.locate(file.capability)
        if plain is None and not self.shelf.holds(file.capability):
            if file.path is not None:
                unchanged(file)
                raise InputChanged(f"the input {file.path} changed since it was enqueued; enqueue the job again")
            raise PayloadUnavailable(f"the content of {file.name} is not on this device")
        return FileGrant(None if plain is None else str(plain), file.capability, file.name, file.size)


def _so_far(done: int, size: int) -> str:
    return f"fetching its input, {100 * done // size if size else 0} % of {size / 1e6:,.1f} MB"
