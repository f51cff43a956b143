"""How does a call become a job that can be written?

Arguments are packed, small files are sealed into the shelf, large ones are only found readable: they are served from
where they lie, and sealed later by the node. What comes out is a `NewJob` for the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.jobs import ledger, local
from p2pqueue.jobs.arguments import encode
from p2pqueue.jobs.handle import Job
from p2pqueue.jobs.ledger import EnqueuedJob, NewFile, NewJob
from p2pqueue.jobs.options import EnqueueOptions, TaskOptions, check_text
from p2pqueue.jobs.waiting import EXEC_TASK
from p2pqueue.replica.merging.alike import Alike

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access
    from p2pqueue.payload.file import File
    from p2pqueue.replica.writer import Writer

NAME_LIMIT: Final = 255  # characters of a task's name, as on the command line
BATCH: Final = 1000  # jobs in one transaction of a bulk

_log = logging.getLogger(__name__)


class Mould:
    """What all jobs of one task with the same options have alike. It is good for one opening of a home."""

    def __init__(self, access: Access, task: str, *, options: EnqueueOptions, declared: TaskOptions) -> None:
        self.access = access
        self.opened = access.opened
        self._options = options
        self._is_due = options.is_due
        self._task = task
        blank = NewJob(
            task=task,
            args=b"",
            queue=declared.queue,
            title=options.title if options.title is not None else declared.title,
            priority=options.priority if options.priority is not None else declared.priority,
            max_attempts=options.max_attempts,
            timeout=options.timeout,
            unique_key=options.unique_key,
            owner=access.owner,
            space=access.identity.space_id,
        )
        self._rest = blank[2:]
        self._defer = access.deferrer.defer

    def fill(self, args: Mapping[str, Any]) -> NewJob:
        """The job of one call. Raises `ArgumentError` and `InputUnreadable`."""
        data, files = encode(args)
        new = NewJob(self._task, data, *self._rest)
        if self._is_due and not files:
            return new
        taken = tuple(_take_in(self.access, parameter, file) for parameter, file in files.items())
        return new._replace(
            run_at=self._options.due_ms(self.access.replica.now()), files=taken, manifest=_manifest(self.access, taken) if taken else None
        )

    def enqueue(self, args: Mapping[str, Any]) -> Job[Any]:
        """Makes a job; durable on return. Raises `KeyInUse`."""
        self.access.check_alone()
        return Job(self.access, self.access.write(self._change(self.fill(args))).id)

    async def aenqueue(self, new: NewJob) -> Job[Any]:
        """Makes a job that is prepared, without blocking the loop. Raises `KeyInUse`."""
        self.access.check_alone()
        return Job(self.access, (await self.access.awrite(self._change(new))).id)

    def _change(self, new: NewJob) -> Alike[EnqueuedJob]:
        plain = new.unique_key is None and not new.files
        return Alike(new, ledger.enqueue_many, defer=self._defer if plain else None)


def prepare(access: Access, task: str, args: Mapping[str, Any], *, options: EnqueueOptions, declared: TaskOptions) -> NewJob:
    """The job of one call. Raises `ArgumentError`, `InputUnreadable`, `KeyInUse` and whatever keeps a home from being opened."""
    access.check_alone()
    return Mould(access, task, options=options, declared=declared).fill(args)


def enqueue_unknown(access: Access, task: str, args: Mapping[str, Any], *, queue: str, options: EnqueueOptions) -> Job[Any]:
    """Makes a job of a task that this program doesn't have; warns in the log where no device here ever had it."""
    check_text("the name of a task", task, NAME_LIMIT)
    new = prepare(access, task, args, options=options, declared=TaskOptions(queue=queue))
    made, known = access.write(lambda writer: (ledger.enqueue(writer, new), local.known_tasks(writer.connection)))
    if task not in known and task != EXEC_TASK:
        _log.warning("no device has had the task %r yet; job %s waits for one", task, made.id)
    return Job(access, made.id)


def batches(access: Access, jobs: list[NewJob]) -> Iterator[Callable[[Writer], list[EnqueuedJob]]]:
    """The transactions that make many jobs, in their order. Raises `KeyInUse`."""
    access.check_alone()
    for start in range(0, len(jobs), BATCH):
        yield _writing_many(jobs[start : start + BATCH])


def job(access: Access, made: EnqueuedJob) -> Job[Any]:
    """The handle of a job that was made."""
    return Job(access, made.id)


def _writing_many(jobs: list[NewJob]) -> Callable[[Writer], list[EnqueuedJob]]:
    return lambda writer: ledger.enqueue_many(writer, jobs)


def _take_in(access: Access, parameter: str, file: File) -> NewFile:
    if file.manifest is not None:
        known = access.shelf.identify(file.manifest).one()
        return NewFile(parameter, known.name, known.size, capability=file.manifest)
    from p2pqueue.payload.original import look_at
    from p2pqueue.payload.shelf import COPY_LIMIT

    assert file.original is not None
    found = look_at(file.original)
    for words in found.left_out:
        _log.warning("left out of the input %s: %s", parameter, words)
    if file.copy or found.size < COPY_LIMIT:
        stored = access.shelf.ingest(found.path, copy=True, name=file.name)
        return NewFile(parameter, stored.name, stored.size, path=found.path, capability=stored.capability)
    return NewFile(parameter, file.name, found.size, path=found.path, mtime_ns=found.mark)


def _manifest(access: Access, files: tuple[NewFile, ...]) -> str | None:
    sealed = {file.parameter: file.capability for file in files if file.capability is not None}
    if len(sealed) < len(files):
        return None
    return files[0].capability if len(files) == 1 else access.shelf.bundle(sealed)
