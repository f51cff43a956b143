"""How does a call become a job that can be written?

Arguments are packed, small files are sealed into the shelf, large ones are only found readable: they are served from
where they lie, and sealed later by the node. What comes out is a `NewJob` for the ledger.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.jobs.arguments import encode
from p2pqueue.jobs.ledger import NewFile, NewJob
from p2pqueue.jobs.options import EnqueueOptions, TaskOptions

if TYPE_CHECKING:
    from p2pqueue.jobs.access import Access
    from p2pqueue.payload.file import File

SEALED_BELOW: Final = 64 * 1024 * 1024  # bytes: a smaller file is kept sealed, so that its original may go away


def prepare(access: Access, task: str, args: Mapping[str, Any], *, options: EnqueueOptions, declared: TaskOptions) -> NewJob:
    """The job of one call. Raises `ArgumentError`, `InputUnreadable` and whatever keeps a home from being opened."""
    encoded = encode(args)
    files: tuple[NewFile, ...] = ()
    manifest = None
    if encoded.files:
        files = tuple(_take_in(access, parameter, file) for parameter, file in encoded.files.items())
        manifest = _manifest(access, files)
    return NewJob(
        task=task,
        args=encoded.data,
        queue=declared.queue,
        title=options.title if options.title is not None else declared.title,
        priority=options.priority if options.priority is not None else declared.priority,
        max_attempts=options.max_attempts,
        timeout=options.timeout,
        run_at=None if options.is_due else options.due_ms(time.time_ns() // 1_000_000),
        unique_key=options.unique_key,
        owner=access.owner,
        files=files,
        manifest=manifest,
        space=access.identity.space_id,
    )


def _take_in(access: Access, parameter: str, file: File) -> NewFile:
    source = file.source
    if source is None:
        return NewFile(parameter, file.name, file.size, capability=file.manifest)
    from p2pqueue.payload.file import check_readable

    name, size = check_readable(source)
    path = os.path.abspath(source)
    if file.copy or size < SEALED_BELOW:
        stored = access.shelf.ingest(source, copy=True, name=name)
        return NewFile(parameter, name, stored.size, path=path, capability=stored.capability)
    return NewFile(parameter, name, size, path=path, mtime_ns=os.stat(path).st_mtime_ns)


def _manifest(access: Access, files: tuple[NewFile, ...]) -> str | None:
    sealed = {file.parameter: file.capability for file in files if file.capability is not None}
    if len(sealed) < len(files):
        return None
    return files[0].capability if len(files) == 1 else access.shelf.bundle(sealed)
