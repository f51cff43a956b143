"""Who of all processes on this home may write now?

SQLite's own busy handler sleeps and starves; a lock file orders the writers instead. It is two locks: whoever
waits holds the turnstile, so that a busy writer can't pass a waiting one more than a few times.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from p2pqueue.errors import HomeBusy
from p2pqueue.private import in_words

WAIT = 15.0  # seconds; longer than a foreign transaction is waited for while the lock is held
_FIRST_PAUSE = 0.000_05  # seconds between two tries, doubling
_LONGEST_PAUSE = 0.002
_PASSES = 3  # times that a writer takes the lock without a look at the turnstile: half the system calls


class WriteLock:
    """The lock of a home's writers, also among the threads that share this object."""

    def __init__(self, path: Path | None, *, wait: float = WAIT) -> None:
        self.path = path
        self.wait = wait
        self._thread = threading.RLock()
        self._depth = 0  # how often the thread that holds it took it
        self._passes = 0
        self._main = self._turnstile = -1
        if path is not None:
            self._main = _open(path)
            self._turnstile = _open(path.with_name(path.name + ".queue"))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock. Raises `HomeBusy` when it isn't free for too long."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Takes the lock; `release` gives it back. Raises `HomeBusy` when it isn't free for too long."""
        if not self._thread.acquire(True, self.wait):
            raise HomeBusy(f"another thread of this program has been writing to {self.path} for more than {self.wait:.0f} s")
        self._depth += 1
        if self.path is None or self._depth > 1:
            return
        try:
            if self._passes < _PASSES and _try_lock(self._main):
                self._passes += 1
                return
            self._queue_up()
        except BaseException:
            self._depth -= 1
            self._thread.release()
            raise

    def release(self) -> None:
        """Gives the lock back."""
        self._depth -= 1
        if self.path is not None and not self._depth:
            _unlock(self._main)
        self._thread.release()

    def _queue_up(self) -> None:
        self._passes = 0
        if _try_lock(self._turnstile):
            try:
                if _try_lock(self._main):
                    return
                self._await(self._main, time.monotonic() + self.wait)
            finally:
                _unlock(self._turnstile)
            return
        deadline = time.monotonic() + self.wait
        self._await(self._turnstile, deadline)
        try:
            self._await(self._main, deadline)
        finally:
            _unlock(self._turnstile)

    def _await(self, descriptor: int, deadline: float) -> None:
        pause = _FIRST_PAUSE
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise HomeBusy(
                    f"another program has held the write lock {self.path} for more than {self.wait:.0f} s; "
                    "it may have been stopped in the middle of a write"
                )
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in (self._main, self._turnstile):
            if descriptor >= 0:
                os.close(descriptor)
        self._main = self._turnstile = -1


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise in_words(error, path) from error


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
