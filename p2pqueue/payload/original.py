"""In which state is the original of an input, be it a file or a folder?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from p2pqueue.payload.plain import open_plain
from p2pqueue.payload.scan import is_folder, scan

_MARK_SIZE: Final = 7  # bytes of a folder's digest: with them it is a number that SQLite and a time of change hold


@dataclass(frozen=True)
class Original:
    """A file or folder that can be read. `mark` tells one state from another: the time of change, or what all of a folder's give."""

    path: str
    size: int
    mark: int
    left_out: tuple[str, ...] = ()  # of a folder, in words


def look_at(path: str | os.PathLike[str]) -> Original:
    """How it is now. Raises `InputUnreadable`, naming the path and the reason."""
    if is_folder(path):
        found = scan(path)
        return Original(found.base, found.size, int.from_bytes(found.digest[:_MARK_SIZE], "big"), tuple(found.left_out))
    opened, identity = open_plain(path)
    opened.close()
    return Original(identity.path, identity.size, identity.mtime_ns)
