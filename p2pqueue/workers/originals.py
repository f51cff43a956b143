"""Is the original of an input still there, and still what it was when its job was enqueued?"""

from __future__ import annotations

from p2pqueue.errors import InputChanged, InputUnreadable
from p2pqueue.jobs.ledger import NewFile
from p2pqueue.payload.original import look_at


def unchanged(file: NewFile) -> str:
    """The path of an original that can be read and is as it was. Raises `InputUnreadable` and `InputChanged`."""
    if file.path is None:
        raise InputUnreadable(f"the input {file.name} has no original here")
    found = look_at(file.path)
    if found.size != file.size or file.mtime_ns not in (None, found.mark):
        raise InputChanged(f"the input {file.path} changed since it was enqueued; enqueue the job again")
    return file.path
