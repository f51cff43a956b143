"""When does a worker end what has ended and claim what it can, and when does it look again?

One transaction at a time does both. It begins in the very turn of the loop that gives cause to it, or goes along with
what others write in the node: then a job is claimed by the commit that enqueued it. Nothing here waits: everything
happens in calls of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any

from p2pqueue.errors import P2PQueueError
from p2pqueue.replica.merging.merged import Done
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.claimed import ClaimedJob, Ending, Taker
from p2pqueue.workers.settle import next_due, settle

LOOK_AT_CLOCK = 5.0  # seconds between two looks at the clock: it may be set, and stands apart from the loop's while a machine sleeps
WRITE_AGAIN = 1.0  # seconds until what could not be written is tried again: a full disk is not emptied at once

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Turn:
    """What came of one transaction."""

    endings: Sequence[Ending]
    claimed: Sequence[ClaimedJob]
    author: bytes  # under which the jobs were claimed


class Turns:
    """Makes the transactions of one worker.

    :param room: how many jobs may be claimed now.
    :param running: what runs now.
    :param taker: who claims, with the jobs that it leaves alone for now.
    :param waits: seconds until each of the jobs that it leaves alone may be taken.
    :param done: called with what came of each transaction.
    :param rest: seconds for which nothing is claimed yet, after the start and after a look that took long.
    """

    def __init__(
        self, store: Store, *, room: Callable[[], int], running: Sized, taker: Callable[[], Taker], waits: Callable[[], list[float]],
        done: Callable[[Turn], None], rest: Callable[[], float] = lambda: 0.0,
    ) -> None:  # fmt: skip
        self._store = store
        self._room = room
        self._running = running
        self._taker = taker
        self._waits = waits
        self._done = done
        self._rest = rest
        self.ended = 0  # attempts ended since the start
        self.work = True  # there may be something to claim
        self.due: int | None = None  # when the next job comes due, milliseconds UTC
        self._endings: list[Ending] = []
        self._under_way = self._blocked = self._begun = self._soon = False
        self._give_up_at = math.inf  # monotonic time after which a stop waits for no disk any more
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._over = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Says whether there is nothing to write, and nothing to claim now or later by itself."""
        return not self._endings and not self._under_way and not self.work and self.due is None

    async def run(self) -> None:
        """Works until `stop`, and on until every slot is free and every ending is written."""
        self._begun = True
        self.advance()
        try:
            await self._over.wait()
        finally:
            self._begun = False
            if self._timer is not None:
                self._timer.cancel()
        if self._failure is not None:
            raise self._failure

    def stop(self, give_up_at: float) -> None:
        """Claims nothing new; waits for a disk that takes nothing until that monotonic time."""
        self._stopping = True
        self._give_up_at = min(self._give_up_at, give_up_at)
        self.advance()

    @property
    def stopping(self) -> bool:
        """Says whether nothing new is claimed."""
        return self._stopping

    def end(self, ending: Ending) -> None:
        """Takes in how an attempt ended; those of one turn of the loop are written together."""
        self._endings.append(ending)
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._end_together)

    def _end_together(self) -> None:
        self._soon = False
        self.advance()

    def look(self) -> bool:
        """Claims what others may have written; says whether a transaction begins now that will see it."""
        self.work = True
        return self.advance()

    def advance(self) -> bool:
        """Begins a transaction where there is cause; says whether one began."""
        turn = self._next()
        if turn is not None:
            self._store.hand_in(*turn)
        return turn is not None

    def join(self, *, loud: bool) -> tuple[Callable[[Writer], Any], Callable[[Done], None]] | None:
        """What goes along with the transaction of others."""
        self.work = self.work or loud
        return self._next()

    def _next(self) -> tuple[Callable[[Writer], Any], Callable[[Done], None]] | None:
        if self._under_way or self._blocked or not self._begun:
            return None
        free = 0 if self._stopping else self._room()
        rests = free > 0 and self.work and (rest := self._rest()) > 0
        if rests:
            free = 0
            self._wake_in(rest)
        if not self._endings and not (free > 0 and self.work):
            if self._stopping and not self._running:
                self._over.set()
            return None
        self._under_way, self.work = True, rests
        endings, self._endings = self._endings, []
        taker = self._taker()

        def transaction(writer: Writer) -> tuple[list[ClaimedJob], bytes, int | None]:
            claimed = settle(writer, endings, taker, free)
            return claimed, writer.author, next_due(writer.connection) if len(claimed) < free else None

        return transaction, partial(self._settled, endings, free)

    def _settled(self, endings: list[Ending], free: int, done: Done) -> None:
        self._under_way = False
        if not self._begun:  # broken off: what was claimed is found again at the next start
            return
        try:
            if isinstance(done.error, P2PQueueError):
                self._bear(done.error, endings)
            else:
                self._take(endings, free, *done.result())
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._failure = error
            self._over.set()
            return
        self._set_timer()
        self.advance()

    def _take(self, endings: list[Ending], free: int, claimed: list[ClaimedJob], author: bytes, due: int | None) -> None:
        self.ended += len(endings)
        if len(claimed) >= free > 0:
            self.work = True
        else:
            self.due = due
        if self._stopping:  # told so while the transaction was under way
            self._endings += [Ending(job, "released", author=author, unstarted=True) for job in claimed]
            claimed = []
        self._done(Turn(endings, claimed, author))

    def _bear(self, error: P2PQueueError, endings: list[Ending]) -> None:
        """Keeps endings that could not be written, and waits a moment; not for ever where the node shall stop."""
        _log.error("the replica can't be written: %s", error)
        self.work = True
        if time.monotonic() < self._give_up_at:
            self._endings = endings + self._endings
            self._blocked = True
            asyncio.get_running_loop().call_later(WRITE_AGAIN, self._unblock)
        elif endings:
            _log.error("how %d attempts ended can't be written: their jobs run again after the next start", len(endings))

    def _unblock(self) -> None:
        self._blocked = False
        self.advance()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self._until_next()
        if wait is not None and not self.work:
            self._wake_in(wait)

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, min(seconds, LOOK_AT_CLOCK)), self._look_at_clock)

    def _look_at_clock(self) -> None:
        wait = self._until_next()
        self.work = self.work or wait is None or wait <= 0
        if not self.advance():
            self._set_timer()

    def _until_next(self) -> float | None:
        """Seconds until something that waits may be claimed, by the clock as it stands now."""
        waits = self._waits()
        if self.due is not None:
            waits.append(self.due / 1000 - time.time())
        return min(waits) if waits else None
