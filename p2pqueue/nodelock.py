"""Which node runs on a home? The one that holds its lock, and its process id stands in the file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

from p2pqueue.errors import HomeInUse

if os.name == "nt":
    import msvcrt
else:
    import fcntl

TRIES = 10


class NodeLock:
    """Holds the lock of a home for as long as the block runs. Raises `HomeInUse`, naming the holder's pid.

    The system lets go of it when the process ends, however it ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> NodeLock:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        for _ in range(TRIES):  # whoever only asks who runs holds it for an instant
            if _lock(file):
                break
            time.sleep(0.02)
        else:
            pid = _read_pid(file)
            os.close(file)
            raise HomeInUse(f"another node{f' (pid {pid})' if pid else ''} runs on the home {self._path.parent}; stop it first", pid=pid)
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0) if hasattr(os, "pwrite") else os.write(file, str(os.getpid()).encode())
        self._file = file
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def running_pid(path: Path) -> int | None:
    """The process id of the node that holds the lock now; None where none runs."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _lock(file) else _read_pid(file)
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    try:
        if os.name == "nt":
            os.lseek(file, 1 << 30, os.SEEK_SET)  # beyond the text, which must stay readable for others
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read_pid(file: int) -> int | None:
    os.lseek(file, 0, os.SEEK_SET)
    text = os.read(file, 32).strip()
    return int(text) if text.isdigit() else None
