"""Where does the output of an attempt go, and how large may it grow?

Everything that a handler and its programs write to stdout and stderr comes through one pipe to the node, which
writes it to a file of the attempt. The file keeps the beginning and the end: what lies between gives way once the
limit is reached, and a line says how much it was. A handler that writes nothing has no file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from p2pqueue.private import FILE_MODE

LIMIT: Final = 10 << 20  # bytes of one attempt's log
TAIL: Final = 4096  # bytes of a log that are told with a failure
_LEAST: Final = 4096  # bytes: a smaller limit has no room for head, notice and tail


class AttemptLog:
    """The log of one attempt: `write` takes bytes, at any rate, and never raises."""

    def __init__(self, path: str | Path, *, limit: int = LIMIT) -> None:
        self._path = Path(path)
        self._limit = max(limit, _LEAST)
        self._head = self._limit // 2
        self._keep = self._limit // 4  # bytes of the end that survive each cut
        self._descriptor: int | None = None
        self._size = 0
        self._dropped = 0
        self._broken = False

    def write(self, data: bytes) -> None:
        """Appends output. What can't be written (a full disk) is let go: a log is no reason to fail a job."""
        if self._broken or not data:
            return
        try:
            if self._descriptor is None:
                self._descriptor = _open(self._path)
                self._size = os.fstat(self._descriptor).st_size
            while data:
                room = self._limit - self._size
                if room <= 0:
                    self._cut()
                    continue
                self._append(data[:room])
                data = data[room:]
        except OSError:
            self._broken = True

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def tail(self, limit: int = TAIL) -> str | None:
        """The end of what was written, None where nothing was."""
        return tail(self._path, limit) if self._size else None

    def _append(self, data: bytes) -> None:
        assert self._descriptor is not None
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view)
            self._size += written
            view = view[written:]

    def _cut(self) -> None:
        """Takes the middle out: head and the newest quarter stay, with a line between them."""
        assert self._descriptor is not None
        with open(self._path, "rb") as file:
            file.seek(self._size - self._keep)
            end = file.read()
        end = end[end.find(b"\n", 0, self._keep // 2) + 1 :]  # from the start of a line, where one is near
        notice = self._notice(0)
        dropped = self._size - self._head - len(end) - (len(notice) if self._dropped else 0)
        self._dropped += max(0, dropped)
        os.ftruncate(self._descriptor, self._head)
        self._size = self._head
        self._append(self._notice(self._dropped) + end)

    @staticmethod
    def _notice(dropped: int) -> bytes:
        return f"\n[… {dropped:15,} bytes left out here: the log keeps its beginning and its end …]\n".encode()


def tail(path: str | Path, limit: int = TAIL) -> str | None:
    """The end of a log as text, from the start of a line where one is near; None where there is no log."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except OSError:
        return None
    if size > limit:
        data = data[data.find(b"\n", 0, limit // 2) + 1 :]
    return data.decode("utf-8", "replace")


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags | getattr(os, "O_BINARY", 0), FILE_MODE)
