"""Is the original of an input still there, and still what it was when its job was enqueued?"""

from __future__ import annotations

from p2pqueue.errors import InputChanged, InputUnreadable
from p2pqueue.jobs.ledger import NewFile
from p2pqueue.payload.plain import open_plain


def unchanged(file: NewFile) -> str:
    """The path of an original that can be read and is as it was. Raises `InputUnreadable` and `InputChanged`."""
    if file.path is None:
        raise InputUnreadable(f"the input {file.name} has no original here")
    opened, found = open_plain(file.path)
    opened.close()
    if found.size != file.size or (file.mtime_ns is not None and found.mtime_ns != file.mtime_ns):
        raise InputChanged(f"the input {file.path} changed since it was enqueued; enqueue the job again")
    return file.path
