"""Is this device alone with its key, or may nothing be enqueued since another one runs with it?

The node of a home writes a mark when it meets its twin, and takes it away when that is gone. A mark without a running
node is a leftover, and counts for nothing.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from p2pqueue.errors import KeyInUse

if TYPE_CHECKING:
    from p2pqueue.home import Home


def mark(home: Home, words: str) -> None:
    """Lets no program of this home enqueue until `unmark`. Raises `DiskFull` and the like where it can't be written."""
    from p2pqueue.private import write_private

    write_private(home.twin_file, words.encode())


def unmark(home: Home) -> None:
    """Lets programs enqueue again."""
    with contextlib.suppress(OSError):
        os.unlink(home.twin_file)


def check_alone(home: Home, mark: str) -> None:
    """Raises `KeyInUse` where the node of the home has met its twin; `mark` is the path of the mark, kept ready."""
    if not os.path.exists(mark):
        return
    from p2pqueue.nodelock import running_pid

    if running_pid(home.node_lock_file) is None:
        return
    try:
        with open(mark, encoding="utf-8") as file:
            words = file.read()
    except FileNotFoundError:
        return
    raise KeyInUse(words)
