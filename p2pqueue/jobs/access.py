"""How does a program reach the replica of its home, from any of its threads and coroutines, and after a fork?

The home is opened at the first use. Writers commit in groups: whoever finds nobody committing does it for all that
wait, so one producer pays for one hop less, and sixty-four pay for one commit together. A child made by fork opens
the home anew: neither a connection nor a lock may be used on both sides.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from p2pqueue.errors import P2PQueueError
from p2pqueue.home import Home
from p2pqueue.jobs.opening import open_replica

if TYPE_CHECKING:
    import sqlite3

    from p2pqueue.identity.keys import Identity
    from p2pqueue.jobs.follower import Follower
    from p2pqueue.payload.shelf import Shelf
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.writer import Writer

T = TypeVar("T")
_BATCH = 1000  # changes in one commit: a larger one gains nothing and makes all of them wait

_log = logging.getLogger(__name__)
_all: weakref.WeakSet[Access] = weakref.WeakSet()
_abandoned: list[Any] = []  # a parent's connections: even closing them here could take its locks away


class Access:
    """One program's way to the replica, the shelf and the node of a home."""

    _home: Home | None
    _opened: _Opened | None
    _follower: Follower | None
    _executor: ThreadPoolExecutor | None
    _draining: bool  # a thread is committing what coroutines asked for
    _pending: deque[_Change[Any]]

    def __init__(self, home: Home | None) -> None:
        self._wanted_home = home
        self._reset()
        _all.add(self)

    @property
    def home(self) -> Home:
        """The home: the one given, or the one found when it is first asked for."""
        if self._home is None:
            self._home = self._wanted_home or Home.find()
        return self._home

    @property
    def is_open(self) -> bool:
        """Says whether the home was opened already, so that using it again costs no more than the use."""
        return self._opened is not None

    @property
    def identity(self) -> Identity:
        """The keys of the home. Raises `NotInitialised`, naming `init` and `join`."""
        return self._open().identity

    @property
    def replica(self) -> Replica:
        """The replica of the home, opened for writing."""
        return self._open().replica

    @property
    def shelf(self) -> Shelf:
        """The files of the home."""
        return self._open().shelf

    @property
    def follower(self) -> Follower:
        """Tells when jobs change."""
        from p2pqueue.jobs.follower import Follower

        with self._opening:
            if self._follower is None:
                self._follower = Follower(self.home)
            return self._follower

    def write(self, fn: Callable[[Writer], T]) -> T:
        """Runs one transaction, durable on return; any exception of `fn` rolls its own part back."""
        self._open()
        change: _Change[T] = _Change(fn)
        self._pending.append(change)
        with self._turn:
            while not change.done:
                self._commit()
        return change.outcome()

    async def awrite(self, fn: Callable[[Writer], T]) -> T:
        """As `write`, in a thread; a cancelled await may still commit."""
        await self._aopen()
        change: _Change[T] = _Change(fn, asyncio.get_running_loop())
        self._pending.append(change)
        with self._flag:
            if not self._draining:
                self._draining = True
                self._thread().submit(self._drain)
        assert change.future is not None
        return await change.future

    def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs one short read transaction."""
        return self.replica.read(fn)

    async def aread(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """As `read`, in a thread."""
        await self._aopen()
        return await asyncio.to_thread(self.replica.read, fn)

    def close(self) -> None:
        """Ends what this program has open of the home; the next use opens it again."""
        with self._opening:
            opened, self._opened = self._opened, None
            follower, self._follower = self._follower, None
            executor, self._executor = self._executor, None
        if follower is not None:
            follower.close()
        if executor is not None:
            executor.shutdown()
        if opened is not None:
            opened.close()

    def after_fork(self) -> None:
        """Forgets, in a forked child, everything that its parent has open."""
        _abandoned.append((self._opened, self._follower, self._executor))
        if self._opened is not None:
            self._opened.finalizer.detach()
        self._reset()

    def _reset(self) -> None:
        self._home = None
        self._opening = threading.RLock()
        self._opened = None
        self._follower = None
        self._executor = None
        self._turn = threading.Lock()  # held by whoever commits
        self._flag = threading.Lock()  # guards `_draining`
        self._draining = False
        self._pending = deque()

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is None:
            with self._opening:
                if self._opened is None:
                    self._opened = _Opened(self, self.home)
                opened = self._opened
        return opened

    async def _aopen(self) -> None:
        if self._opened is None:
            await asyncio.to_thread(self._open)

    def _thread(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="p2pqueue-commit")
        return self._executor

    def _drain(self) -> None:
        while True:
            with self._turn:
                self._commit()
            with self._flag:
                if not self._pending:
                    self._draining = False
                    return

    def _commit(self) -> None:
        batch: list[_Change[Any]] = []
        while self._pending and len(batch) < _BATCH:
            batch.append(self._pending.popleft())
        if not batch:
            return
        try:
            opened = self._open()
            _run(opened.replica, batch)
            opened.ring()
        except BaseException as error:
            # Every waiter is answered, whatever came in between: a Ctrl-C here must not leave the others hanging.
            for change in batch:
                if not change.done:
                    change.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            _answer(batch)


class _Opened:
    """What is open of a home; closed with the `Access` that it belongs to, or at the end of the program."""

    def __init__(self, access: Access, home: Home) -> None:
        from p2pqueue.identity.keys import load
        from p2pqueue.replica import doorbell

        self.home = home
        self.identity = load(home)
        self.replica = open_replica(home, self.identity)
        self._shelf: Shelf | None = None
        self._socket: Path = home.socket_path
        self._doorbell = doorbell
        self.finalizer = weakref.finalize(access, self.replica.close)

    @property
    def shelf(self) -> Shelf:
        from p2pqueue.payload.shelf import Shelf

        if self._shelf is None:
            self._shelf = Shelf(self.home, self.identity.space_key)
        return self._shelf

    def ring(self) -> None:
        self._doorbell.ring(self._socket)

    def close(self) -> None:
        self.finalizer()


class _Change(Generic[T]):
    """One transaction that waits for its commit, and who waits for it."""

    __slots__ = ("_error", "_value", "done", "fn", "future", "loop")

    def __init__(self, fn: Callable[[Writer], T], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.fn = fn
        self.loop = loop
        self.future: asyncio.Future[T] | None = loop.create_future() if loop else None
        self.done = False
        self._value: T
        self._error: BaseException | None = None

    def succeed(self, value: T) -> None:
        self._value, self.done = value, True

    def fail(self, error: BaseException) -> None:
        self._error, self.done = error, True

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value

    def answer(self) -> None:
        assert self.future is not None
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._value)
        elif isinstance(self._error, Exception):
            self.future.set_exception(self._error)
        else:
            self.future.set_exception(P2PQueueError(f"the commit was interrupted by {type(self._error).__name__}; it may have happened"))


def _run(replica: Replica, batch: list[_Change[Any]]) -> None:
    if len(batch) == 1:
        batch[0].succeed(replica.write(batch[0].fn))
        return
    for change, result in zip(batch, replica.write_many([change.fn for change in batch]), strict=True):
        if result.error is not None:
            change.fail(result.error)
        else:
            change.succeed(result.value)


def _answer(batch: list[_Change[Any]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Change[Any]]] = {}
    for change in batch:
        if change.loop is not None:
            by_loop.setdefault(change.loop, []).append(change)
    for loop, changes in by_loop.items():
        try:
            loop.call_soon_threadsafe(_answer_all, changes)
        except RuntimeError:
            _log.debug("a loop was closed before its writes were answered")


def _answer_all(changes: list[_Change[Any]]) -> None:
    for change in changes:
        change.answer()


def _after_fork() -> None:
    for access in list(_all):
        access.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
