"""How do many producers of one program share a commit?

Whoever finds nobody committing leads: it commits what waits, its own change among it, and then hands the lead to
one of those that came meanwhile. So a single producer pays for no hop to another thread, and sixty-four pay for one
commit together. Coroutines never lead: a thread does it for them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from p2pqueue.errors import P2PQueueError
from p2pqueue.replica.merging.alike import Alike

if TYPE_CHECKING:
    from p2pqueue.replica.merging.merged import Done
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.writer import Writer

T = TypeVar("T")
BATCH = 1000  # changes in one commit: more gain nothing, and make all of them wait

_log = logging.getLogger(__name__)


class Commits:
    """The one place through which a program writes to a replica. `after` runs after each commit (it rings the node)."""

    def __init__(self, replica: Replica, *, after: Callable[[], None]) -> None:
        self._replica = replica
        self._after = after
        self._lock = threading.Lock()
        self._waiting: deque[_Change[Any]] = deque()
        self._led = False  # somebody commits, or was told to
        self._calls: SimpleQueue[bool] = SimpleQueue()  # True: lead, False: end
        self._thread: threading.Thread | None = None

    def run(self, fn: Callable[[Writer], T]) -> T:
        """Runs one transaction; durable on return. What `fn` raises undoes its own part alone."""
        with self._lock:
            led, self._led = self._led, True
            if led:
                change: _Change[T] = _Change(fn)
                change.will_wait()
                self._waiting.append(change)
        if led:
            self._follow(change)
            return change.outcome()
        try:  # nobody waits: the way of a single producer, which is as short as can be
            value = self._make(fn)
            self._after()
        finally:
            self._hand_over()
        return value

    async def arun(self, fn: Callable[[Writer], T]) -> T:
        """As `run`, without blocking the loop."""
        loop = asyncio.get_running_loop()
        change: _Change[T] = _Change(fn, loop)
        with self._lock:
            self._waiting.append(change)
            led, self._led = self._led, True
        if not led:
            self._call_thread()
        assert change.future is not None
        return await change.future

    def close(self) -> None:
        """Lets the thread end when it has committed what waits."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(False)
            thread.join()

    def _follow(self, change: _Change[Any]) -> None:
        assert change.gate is not None
        try:
            change.gate.acquire()
        except BaseException:  # a Ctrl-C: the change stays, but its thread can't lead any more
            with self._lock:
                change.deserted, promoted = True, change.promoted
            if promoted:
                self._hand_over()
            raise
        if change.promoted:
            self._lead()

    def _lead(self) -> None:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        try:
            self._commit(batch)
        finally:
            _answer(batch)
            self._hand_over()

    def _hand_over(self) -> None:
        with self._lock:
            if not self._waiting:
                self._led = False
                return
            following = self._waiting[0]
            if following.gate is not None and not following.deserted:
                following.promoted = True
                following.gate.release()
                return
        self._call_thread()

    def _make(self, fn: Callable[[Writer], T]) -> T:
        """Commits one change alone, or defers it where it may be."""
        if not isinstance(fn, Alike) or fn.defer is None:
            return self._replica.write(fn)
        change, value = fn.defer(fn.item)
        self._replica.defer(change)
        self._replica.carry_out_many()
        made: T = value
        return made

    def _commit(self, batch: list[_Change[Any]]) -> None:
        try:
            if len(batch) == 1:
                batch[0].succeed(self._make(batch[0].fn))
            elif batch:
                groups = list(_alike(batch))
                made = self._replica.write_many([_together(group) for group in groups])
                for group, done in zip(groups, made, strict=True):
                    if done.error is None:
                        _succeed(group, done.value)
                    elif len(group) == 1:
                        group[0].fail(done.error)
                    else:  # one of them is at fault: each for itself
                        for change, alone in zip(group, self._replica.write_many([each.fn for each in group]), strict=True):
                            change.settle(alone)
            self._after()
        except BaseException as error:
            # Every waiter is answered, whatever came in between: a Ctrl-C here must not leave the others hanging.
            for change in batch:
                if not change.done:
                    change.fail(error)
            if not isinstance(error, Exception):
                raise

    def _call_thread(self) -> None:
        """Lets the thread lead that commits for coroutines; it is made at the first call."""
        self._calls.put(True)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    # A daemon: the program may end without `close`, whose finalizer then ends it in order.
                    self._thread = threading.Thread(target=self._serve, name="p2pqueue-commit", daemon=True)
                    self._thread.start()

    def _serve(self) -> None:
        while self._calls.get():
            try:
                self._lead()
            except BaseException:  # noqa: BLE001 - whoever waited was answered with it
                _log.exception("a commit was interrupted")


class _Change(Generic[T]):
    """One transaction that waits for its commit, and who waits for it: a thread at the gate, or a coroutine."""

    __slots__ = ("_error", "_value", "deserted", "done", "fn", "future", "gate", "loop", "promoted")

    def __init__(self, fn: Callable[[Writer], T], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.fn = fn
        self.loop = loop
        self.future: asyncio.Future[T] | None = None if loop is None else loop.create_future()
        self.gate: threading.Lock | None = None
        self.promoted = False
        self.deserted = False
        self.done = False
        self._value: T
        self._error: BaseException | None = None

    def will_wait(self) -> None:
        """Closes the gate at which a thread waits, to be answered or to lead."""
        if self.loop is None:
            self.gate = threading.Lock()
            self.gate.acquire()

    def succeed(self, value: T) -> None:
        self._value, self.done = value, True

    def fail(self, error: BaseException) -> None:
        self._error, self.done = error, True

    def settle(self, done: Done) -> None:
        if done.error is None:
            self.succeed(done.value)
        else:
            self.fail(done.error)

    def outcome(self) -> T:
        if self._error is None:
            return self._value
        if isinstance(self._error, Exception):
            raise self._error
        raise P2PQueueError(f"the commit was interrupted by {type(self._error).__name__}; it may have happened") from self._error

    def answer(self) -> None:
        """Called in the loop of a coroutine that waits."""
        assert self.future is not None
        if self.future.done():
            return  # its await was cancelled
        try:
            self.future.set_result(self.outcome())
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets it
            self.future.set_exception(error)


def _alike(batch: list[_Change[Any]]) -> Iterator[list[_Change[Any]]]:
    """The changes in their order, those that can be made together in one group."""
    for _, changes in groupby(batch, lambda change: change.fn.all if isinstance(change.fn, Alike) else change):
        yield list(changes)


def _together(group: list[_Change[Any]]) -> Callable[[Writer], Any]:
    first = group[0].fn
    if len(group) == 1 or not isinstance(first, Alike):
        return first
    items = [change.fn.item for change in group]  # type: ignore[attr-defined]  # all of a group are alike
    return lambda writer: first.all(writer, items)


def _succeed(group: list[_Change[Any]], value: Any) -> None:
    for change, each in zip(group, value if len(group) > 1 else [value], strict=True):
        change.succeed(each)


def _answer(batch: list[_Change[Any]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Change[Any]]] = {}
    for change in batch:
        if change.loop is not None:
            by_loop.setdefault(change.loop, []).append(change)
        elif change.gate is not None and not change.promoted and not change.deserted:
            change.gate.release()
    for loop, changes in by_loop.items():
        try:
            loop.call_soon_threadsafe(_answer_all, changes)
        except RuntimeError:
            _log.debug("a loop was closed before its writes were answered")


def _answer_all(changes: list[_Change[Any]]) -> None:
    for change in changes:
        change.answer()
