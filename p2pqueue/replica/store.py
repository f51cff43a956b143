"""How does a node write to its replica from asyncio?

Writers hand in functions; one transaction runs all that are waiting, each under a savepoint of its own; once it is
durable all are answered. A cancelled await may still commit. Readers run on a connection and a thread of their own. A companion
may add a function to each transaction: what it does about the others' writes costs no commit of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from p2pqueue.errors import WorldError
from p2pqueue.replica.commits import Change, Committed, Companion, Then, commit
from p2pqueue.replica.file.connection import WAL_LIMIT, in_words, open_reader
from p2pqueue.replica.file.durability import Durability
from p2pqueue.replica.file.hop import HoppingConnection
from p2pqueue.replica.merging.merged import Done, Merged, Refused
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.retention import prune_all
from p2pqueue.replica.subscription import Rows, Subscription, Subscriptions
from p2pqueue.replica.watching import Watch
from p2pqueue.replica.write import Head, Write
from p2pqueue.replica.writer import Writer

T = TypeVar("T")
_log = logging.getLogger(__name__)
LOOK_EVERY = 0.25  # seconds between two looks for commits of other processes, should a ring be missed
IDLE = 5.0  # seconds without a write here after which the log begins anew
_MOST_TOGETHER = 512  # functions in one transaction

__all__ = ["Companion", "Store", "Subscription"]


class Store:
    """A replica behind asyncio. Open it with `Store.open`, in the loop that uses it; close it there."""

    def __init__(self, path: str, opener: Callable[[], Replica]) -> None:
        self.path = path
        self.replica: Replica
        self.companion: Companion | None = None
        self._loop = asyncio.get_running_loop()
        self._opener = opener
        self._writing = HoppingConnection(self._open_writer)
        self._reading = HoppingConnection(lambda: open_reader(path))
        self._watch: Watch
        self._durability: Durability
        self._waiting: list[Change] = []
        self._busy = self._scheduled = self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._subscriptions = Subscriptions()
        self._unanswered = 0  # transactions that are committed, whose writers aren't answered yet
        self._looking = self._look_again = self._rung = False
        self._last_write = 0.0
        self._log_is_rewound = False
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, path: str | Path, **options: Any) -> Store:
        """Opens a replica in a thread of its own; takes and raises what `Replica.open` does."""
        store = cls(str(path), lambda: Replica.open(path, **options))
        await store._writing
        try:
            await store._reading
        except BaseException:
            await store._writing.close()
            raise
        store._wait_for_next_look()
        return store

    def _open_writer(self) -> sqlite3.Connection:
        self.replica = self._opener()
        self.replica.log.lengthen()
        self._durability = Durability(self.replica)
        self._durability.take_over()
        self._watch = Watch(self.replica)
        return self.replica.connection

    @property
    def own_number(self) -> tuple[bytes, int]:
        """The own author and its last number, as far as commits of this home, in whatever process, were looked at."""
        return self._watch.number

    @property
    def is_closed(self) -> bool:
        """Says whether `close` was called."""
        return self._closed

    # Writing

    async def write(self, fn: Callable[[Writer], T], *, quiet: bool = False) -> T:
        """Runs a function in a durable transaction, perhaps together with others; gives what it gave.

        With `quiet` the subscribers here aren't told: they know already.
        """
        return cast(T, await self._hand_in(fn, quiet=quiet, whole=False))

    async def merge(self, writes: Sequence[Write], *, repair: bool = False) -> Merged:
        """Merges a peer's writes, as `Replica.merge` does."""
        return await self.call(lambda replica: replica.merge(writes, repair=repair))

    async def move_heads(self, heads: Mapping[bytes, Head], *, falls: int | None = None) -> tuple[Refused, ...] | None:
        """Moves heads, as `Replica.move_heads` does."""
        return await self.call(lambda replica: replica.move_heads(heads, falls=falls))

    async def prune(self, retention_ms: int) -> int:
        """Drops what ended more than so many milliseconds ago; gives how many rows went."""
        return sum(await self.call(lambda replica: prune_all(replica, retention_ms)))

    async def call(self, fn: Callable[[Replica], T]) -> T:
        """Runs a function on the replica in the writer's thread, in its turn; it makes transactions of its own."""
        return cast(T, await self._hand_in(fn, quiet=False, whole=True))

    def hand_in(self, fn: Callable[[Writer], Any], then: Then) -> None:
        """As `write`, quiet and without a wait: begins in this very turn of the loop, unless a transaction is under way."""
        self._begin_now(Change(fn, then, looks=True))

    def _begin_now(self, change: Change) -> None:
        self._waiting.append(change)
        if not self._busy:
            self._scheduled = True
            self._idle.clear()
            self._start()

    def is_of_this_loop(self) -> bool:
        """Says whether the caller runs in the loop of this store, and so may use it."""
        return self._loop is asyncio.get_running_loop() and not self._closed

    async def _hand_in(self, fn: Callable[[Any], Any], *, quiet: bool, whole: bool) -> Any:
        if self._closed:
            raise WorldError(f"{self.path} has been closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(Change(fn, partial(_settle, future), quiet=quiet, whole=whole))
        if not self._busy and not self._scheduled:
            # Whoever else is ready to write in this turn of the loop shares the transaction.
            self._scheduled = True
            self._idle.clear()
            self._loop.call_soon(self._start)
        return await future

    def _start(self) -> None:
        if not self._scheduled:
            return  # somebody was in more of a hurry
        self._scheduled = False
        changes, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
        loud = any(not change.quiet for change in changes)
        joined = self.companion.join(loud=loud) if self.companion is not None else None
        if joined is not None:
            changes.append(Change(*joined, looks=True))
        if not changes:
            if not self._unanswered:
                self._idle.set()
            return
        self._busy = True
        self._writing.send(partial(self._work, changes, loud or any(change.looks for change in changes)))

    def _work(self, changes: list[Change], seen: bool) -> None:
        """In the writer's thread."""
        try:
            answers, touched = commit(self.replica, self._watch, changes)
        except BaseException as error:
            failed = Committed(changes, [Done(error=error)] * len(changes), [], seen)
            self._loop.call_soon_threadsafe(self._go_on, failed)
            self._loop.call_soon_threadsafe(self._answer, failed, None)
            raise
        committed = Committed(changes, answers, touched, seen)
        self._loop.call_soon_threadsafe(self._go_on, committed)

        def answer(failure: WorldError | None) -> None:
            self._loop.call_soon_threadsafe(self._answer, committed, failure)

        if self._durability.is_due and (self._waiting or committed.is_hurried):
            self._durability.sync_soon(answer)  # meanwhile the next transaction begins, and so does what was claimed
        else:
            answer(self._durability.sync())

    def _go_on(self, committed: Committed) -> None:
        """Something is committed, if not yet durable: the next transaction may begin."""
        self._unanswered += 1
        for rows in committed.touched:
            self._tell_companion(rows, seen=committed.seen)
        committed.answer_companion()
        self._last_write = self._loop.time()
        self._log_is_rewound = False
        self._busy = False
        if _size(self.path + "-wal") > WAL_LIMIT:
            self._writing.submit(self.replica.log.checkpoint_if_due).add_done_callback(_ignore)
        if self._waiting:
            # Those just answered run first, so that what they write next comes along.
            self._scheduled = True
            self._loop.call_soon(self._start)

    def _answer(self, committed: Committed, failure: WorldError | None) -> None:
        """Something is durable, or can't be for that reason."""
        self._unanswered -= 1
        committed.answer(failure)
        for rows in committed.touched:
            self._subscriptions.tell(rows)
        if any(change.quiet for change in committed.changes):
            self._subscriptions.tell_of_quiet()
        if not (self._busy or self._scheduled or self._unanswered):
            self._idle.set()

    # Reading

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a function on a connection that only reads, in one short transaction; it gives plain values."""
        if self._closed:
            raise WorldError(f"{self.path} has been closed")
        read = await self._reading.run(lambda: self._read(fn, unless=self.replica.has_deferred))
        if read is None:
            await self.call(Replica.carry_out)
            read = await self._reading.run(lambda: self._read(fn))
            assert read is not None
        try:
            await self.settle()
        except WorldError as error:  # what can't be made durable can be read all the same
            _log.warning("what was read may not be on the disk: %s", error)
        return read[0]

    async def settle(self) -> None:
        """Returns when all that could be read of this replica until now is durable. Raises `WorldError` where the disk fails."""
        if self._durability.is_due:
            await self._durability.settle()

    def _read(
        self, fn: Callable[[sqlite3.Connection], T], *, unless: Callable[[sqlite3.Connection], bool] = lambda _: False
    ) -> tuple[T] | None:
        connection = self._reading._conn
        with in_words(self.path):
            connection.execute("BEGIN")
            try:
                return None if unless(connection) else (fn(connection),)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    # Hearing of changes

    def subscribe(self, *, quiet: bool = False) -> Subscription:
        """Fires with the rows that commits touched, here (but the quiet ones) and in other processes.

        With `quiet` it fires at quiet ones too, without saying which rows they touched.
        """
        return self._subscriptions.add(quiet=quiet)

    def ring(self) -> None:
        """Takes in at once what other processes committed or deferred, in a transaction that the companion may join."""
        if not self._closed and not self._rung:
            self._rung = True
            self._begin_now(Change(self._begin_to_hear, self._heard, quiet=False))

    def _begin_to_hear(self, _: Writer) -> None:
        """In the writer's thread, which others wait for now: what they write from here on is rung for again."""
        self._rung = False

    def _heard(self, done: Done) -> None:
        if done.error is not None:
            self._rung = False  # the transaction may not have come as far

    def _look(self) -> None:
        """Looks for what other processes committed without a ring."""
        if self._closed:
            return
        if self._looking:
            self._look_again = True
            return
        self._looking = True
        self._writing.submit(self._watch.look).add_done_callback(self._looked)

    def _looked(self, future: asyncio.Future[list[Rows | None]]) -> None:
        self._looking = False
        if future.exception() is None:
            for rows in future.result():
                self._tell_companion(rows, seen=False)
                self._subscriptions.tell(rows)
            if self._watch.deferred:
                self.ring()
        if self._look_again:
            self._look_again = False
            self._look()

    def _tell_companion(self, rows: Rows | None, *, seen: bool) -> None:
        if self.companion is not None:
            self.companion.news(rows, seen=seen)

    def _wait_for_next_look(self) -> None:
        self._timer = self._loop.call_later(LOOK_EVERY, self._look_by_time)

    def _look_by_time(self) -> None:
        if self._subscriptions:
            self._look()
        idle = self._loop.time() - self._last_write > IDLE
        if idle and not self._busy and not self._log_is_rewound:
            self._log_is_rewound = True
            self._writing.submit(self.replica.log.rewind).add_done_callback(_ignore)
        self._wait_for_next_look()

    async def close(self) -> None:
        """Ends subscriptions, lets what was handed in commit, and closes every connection."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._subscriptions.close()
        await self._idle.wait()
        await self._reading.close()
        await self._writing.run(self._close_writer)
        await self._writing.close()

    def _close_writer(self) -> None:
        self._durability.close()
        self.replica.close()


def _settle(future: asyncio.Future[Any], done: Done) -> None:
    if future.done():
        return  # its await was cancelled
    if done.error is None:
        future.set_result(done.value)
    else:
        future.set_exception(done.error)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _ignore(future: asyncio.Future[Any]) -> None:
    """A checkpoint that fails is tried again after the next commit."""
    if not future.cancelled():
        future.exception()
