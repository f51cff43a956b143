"""How does a program reach the replica of its home, from any of its threads and coroutines, and after a fork?

The home is opened at the first use. A child made by fork opens it anew: neither a connection nor a lock may be used
on both sides.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from p2pqueue.home import Home
from p2pqueue.jobs.alone import check_alone
from p2pqueue.jobs.committing import Commits
from p2pqueue.jobs.deferring import Deferrer
from p2pqueue.jobs.opening import open_replica

if TYPE_CHECKING:
    import sqlite3

    from p2pqueue.clock import Wall
    from p2pqueue.identity.keys import Identity
    from p2pqueue.jobs.follower import Follower
    from p2pqueue.payload.shelf import Shelf
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.store import Store
    from p2pqueue.replica.writer import Writer
    from p2pqueue.settings import Settings

T = TypeVar("T")
CHECK_ALONE_EVERY = 0.2  # seconds between two looks for a twin while jobs are enqueued
_all: weakref.WeakSet[Access] = weakref.WeakSet()
_abandoned: list[Any] = []  # a parent's connections: even closing them here could take its locks away


class Access:
    """One program's way to the replica, the shelf and the node of a home."""

    _home: Home | None
    _opened: _Opened | None
    _follower: Follower | None
    node: Store | None  # of the node that this program has inside: coroutines of its loop write through it

    def __init__(self, home: str | os.PathLike[str] | Home | None, *, wall: Wall | None = None) -> None:
        self.wall = wall  # None: the clock of the system
        self.bring: Callable[[str], object] | None = None  # fetches a file from another device; None: this home's node does
        self._wanted_home = home if isinstance(home, Home) or home is None else Home.find(os.fspath(home))
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
    def opened(self) -> object:
        """What stands for this opening of the home, which is opened if need be: another one stands for the next."""
        return self._open()

    @property
    def identity(self) -> Identity:
        """The keys of the home. Raises `NotInitialised`, naming `init` and `join`."""
        return self._open().identity

    @property
    def owner(self) -> str:
        """The id of the space's owner."""
        return self._open().owner

    @property
    def replica(self) -> Replica:
        """The replica of the home, opened for writing."""
        return self._open().replica

    @property
    def shelf(self) -> Shelf:
        """The files of the home."""
        return self._open().shelf

    @property
    def retention_ms(self) -> int:
        """How long the home keeps jobs that have ended, in milliseconds."""
        return int(self._open().settings.retention * 1000)

    @property
    def follower(self) -> Follower:
        """Tells when jobs change."""
        from p2pqueue.jobs.follower import Follower

        self.replica.carry_out()
        with self._opening:
            if self._follower is None:
                self._follower = Follower(self.home)
            return self._follower

    @property
    def deferrer(self) -> Deferrer:
        """What puts this program's jobs into the form in which they are deferred."""
        return self._open().deferrer

    def check_alone(self) -> None:
        """Raises `KeyInUse` while another running device has the key of this one."""
        opened, now = self._open(), time.monotonic()
        if now >= opened.check_at:  # a look at the disk lets other threads run: for each job it would cost more than the job
            check_alone(opened.home, opened.twin)
            opened.check_at = now + CHECK_ALONE_EVERY

    def write(self, fn: Callable[[Writer], T]) -> T:
        """Runs one transaction, durable on return; any exception of `fn` rolls its own part back."""
        return self._commits().run(fn)

    async def awrite(self, fn: Callable[[Writer], T]) -> T:
        """As `write`, without blocking the loop; a cancelled await may still commit."""
        if self.node is not None and self.node.is_of_this_loop():
            return await self.node.write(fn)
        if self._opened is None:
            await self._aopen()
        return await self._commits().arun(fn)

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
            self._home = None  # found anew at the next use
        if follower is not None:
            follower.close()
        if opened is not None:
            opened.close()

    def after_fork(self) -> None:
        """Forgets, in a forked child, everything that its parent has open."""
        _abandoned.append((self._opened, self._follower))
        if self._opened is not None:
            self._opened.finalizer.detach()
            self._opened.replica.abandon()
        self._reset()

    def _reset(self) -> None:
        self._home = None
        self._opening = threading.RLock()
        self._opened = None
        self._follower = None
        self.node = None

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

    def _commits(self) -> Commits:
        return self._open().commits


class _Opened:
    """What is open of a home; closed with the `Access` that it belongs to, or at the end of the program."""

    def __init__(self, access: Access, home: Home) -> None:
        from p2pqueue.identity.keys import load
        from p2pqueue.replica.door import doorbell

        self.home = home
        self.twin = os.fspath(home.twin_file)
        self.check_at = 0.0  # monotonic time
        self.bring = access.bring or partial(_bring, home)
        self.identity = load(home)
        self.replica = open_replica(home, self.identity, wall=access.wall)
        self.owner = self.identity.owner
        self.deferrer = Deferrer(self.identity.device_id, self.replica.now)
        self.commits = Commits(self.replica, after=doorbell.ringer(home.socket_path))
        self._shelf: Shelf | None = None
        self.finalizer = weakref.finalize(access, _close, self.commits, self.replica)

    @property
    def shelf(self) -> Shelf:
        from p2pqueue.payload.shelf import Shelf

        if self._shelf is None:
            settings = self.settings
            self._shelf = Shelf(self.home, self.identity.space_key, quota=settings.quota, reserve=settings.reserve, bring=self.bring)
        return self._shelf

    @cached_property
    def settings(self) -> Settings:
        from p2pqueue.config import load_settings

        return load_settings(self.home)

    def close(self) -> None:
        if self._shelf is not None:
            self._shelf.close()
        self.finalizer()


def _bring(home: Home, capability: str) -> None:
    from p2pqueue.jobs.bringing import bring

    bring(home, capability)


def _close(commits: Commits, replica: Replica) -> None:
    commits.close()
    replica.close()


def _after_fork() -> None:
    for access in list(_all):
        access.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
