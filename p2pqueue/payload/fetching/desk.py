"""Who hands out the requests of one transfer, and takes what comes of them, from whatever thread?

The desk joins the plan, which is pure, with the threads and tasks that work by it: everything that changes the plan
happens here, under one lock, for some microseconds. What takes long (checking, opening, writing) happens outside.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from p2pqueue.errors import BadShard, P2PQueueError
from p2pqueue.payload.fetching.budget import Budget, Buffers
from p2pqueue.payload.fetching.plan import Key, Offer, Plan
from p2pqueue.payload.fetching.source import Lane, ShardMissing, Source, SourceFailed
from p2pqueue.payload.fetching.twins import Content, twins_of, verified_of
from p2pqueue.payload.format import LARGEST_SHARD, TAG_SIZES
from p2pqueue.payload.limit import Limit, tells_of_pause
from p2pqueue.payload.manifest import Chunk

WAIT: Final = 1.0  # seconds that a thread waits for something to do before its lane is let go
LOOK: Final = 0.05  # seconds between two looks of such a thread

_log = logging.getLogger(__name__)


class Place(Protocol):
    """Where it is written."""

    @property
    def here(self) -> bytes: ...  # noqa: D102
    def write(  # noqa: D102
        self, number: int, chunk: Chunk, shard: memoryview | bytes, also: Sequence[tuple[int, Chunk]] = ()
    ) -> bool: ...


@dataclass
class Desk:
    """The requests of one transfer."""

    content: Content
    place: Place
    budget: Budget
    limit: Limit
    on_event: Callable[[], object]  # called by any thread, when there may be something to do
    peers_at: float = 0.0
    received: Counter[tuple[str, Lane]] = field(default_factory=Counter)  # bytes of shards that were right
    reasons: dict[str, str] = field(default_factory=dict)  # by source: why it can't give what it once had, or failed last
    failure: P2PQueueError | None = None  # what ends the transfer
    verified: int = 0  # bytes of the content that are here

    def __post_init__(self) -> None:
        tag = TAG_SIZES.get(self.content.algorithm, 0)
        self.shard_size = min(LARGEST_SHARD, self.content.chunk_size + tag)
        here = self.place.here
        self.verified = verified_of(self.content, here)
        self.twins, left_out = twins_of(self.content, here)
        self.plan = Plan(self.content.chunk_count, self.shard_size, here=left_out, peers_at=self.peers_at)
        self._lock = threading.Condition()
        self._open: dict[tuple[int, Key], Asked] = {}
        self._buffers = Buffers(self.shard_size)
        self._ended = False
        self.paused: set[str] = set()  # sources that gave a pause as their last answer
        self._lacking: set[str] = set()  # sources that said why they lost a chunk: that stays true when they bring others

    # -- for the driver ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Says whether there is nothing more to wait for."""
        return self._ended or self.failure is not None or self.plan.finished

    def offered(self, sources: Iterable[Source]) -> None:
        """Tells which sources there are now, and gives up what waits for others, or too long."""
        now = time.monotonic()
        with self._lock:
            gone = self.plan.offered([Offer(each.name, each.lane, each.is_last_resort) for each in sources], now)
            stuck = self.plan.stuck(now)
            for chunk, key in stuck:
                self.reasons[key[0]] = "it did not answer in time"
                self.plan.failed(chunk, key, now, silent=True)
            self._give_up(gone + stuck)
            self._lock.notify_all()

    def is_due(self, source: Source) -> bool:
        """Says whether there may be something to ask of a source now."""
        with self._lock:
            return not self.done and self.plan.has_use_for((source.name, source.lane), time.monotonic())

    def is_hopeless(self) -> bool:
        """Says whether nobody who is there could bring what is left, and nothing is under way."""
        with self._lock:
            return not self._open and self.plan.is_hopeless(time.monotonic())

    def state(self, name: str, lane: str) -> str:
        """How a source stands, in one word."""
        with self._lock:
            return self.plan.state((name, lane), time.monotonic())

    def end(self) -> None:
        """Nothing more is handed out, and what is under way is not wanted any more."""
        with self._lock:
            self._ended = True
            self._give_up(list(self._open))
            self._lock.notify_all()

    # -- for lanes --------------------------------------------------------------------------------------------

    def take(self, source: Source) -> Asked | None:
        """The next shard to ask of a source; None where there is none now."""
        now = time.monotonic()
        with self._lock:
            if self.done or not self._may_take(now):
                return None
            key = (source.name, source.lane)
            chunk = self.plan.take(key, now)
            if chunk is None:
                self.limit.give_back(self.shard_size)
                self.budget.give(self.shard_size)
                return None
            asked = self._open[chunk, key] = Asked(self, source, key, chunk, self.content.chunk(chunk))
            return asked

    def wait(self, source: Source) -> Asked | None:
        """The same for a thread, which waits a while for it."""
        until = time.monotonic() + WAIT
        while (asked := self.take(source)) is None and not self.done and time.monotonic() < until:
            if not self.is_due(source):
                return None
            with self._lock:
                self._lock.wait(LOOK)
        return asked

    def _may_take(self, now: float) -> bool:
        # However little is free, one request is always under way: several transfers can't stop one another.
        if not self.budget.try_take(self.shard_size):
            if self._open:
                return False
            self.budget.force(self.shard_size)
        if self.limit.try_take(self.shard_size):
            self.budget.give(self.shard_size)
            self.plan.peers_at = max(self.plan.peers_at, now)  # it is no peer's fault that nothing comes
            return False
        return True

    # -- for requests -----------------------------------------------------------------------------------------

    def advanced(self, asked: Asked) -> None:
        """Bytes of a request came."""
        with self._lock:
            self.plan.advanced(asked.chunk, asked.key, time.monotonic())

    def buffer(self) -> memoryview:
        """A buffer for one shard."""
        return self._buffers.take()

    def write(self, asked: Asked, body: memoryview | bytes) -> bool:
        """Writes what came wherever it belongs."""
        also = [(twin, self.content.chunk(twin)) for twin in self.twins.get(asked.chunk, ())]
        return self.place.write(asked.chunk, asked.where, body, also)

    def took(self, asked: Asked, size: int) -> None:
        """It is here, checked and written."""
        name, lane = asked.source.name, asked.source.lane
        with self._lock:
            self.received[name, lane] += size
            self.paused.discard(name)
            if name not in self._lacking:
                self.reasons.pop(name, None)
            first, others = self.plan.came(asked.chunk, asked.key, size, time.monotonic())
            if first:
                self.verified += asked.where.size + sum(self.content.chunk(twin).size for twin in self.twins.get(asked.chunk, ()))
            self._give_up([(asked.chunk, other) for other in others])
            finished = self.plan.finished
            if finished:
                self._lock.notify_all()
        if finished:
            self.on_event()

    def refused(self, asked: Asked, error: Exception) -> None:
        """It can't be had of that source, or is wrong, or this disk is in the way."""
        now, key = time.monotonic(), asked.key
        with self._lock:
            if isinstance(error, ShardMissing):
                self.plan.missing(asked.chunk, key, now)
            elif isinstance(error, BadShard):
                _log.warning("%s sent a wrong shard: %s", key[0], error)
                self.plan.wrong(asked.chunk, key, now)
            elif isinstance(error, P2PQueueError):
                self.failure = self.failure or error
                self.plan.gave_up(asked.chunk, key)
            else:
                _log.debug("%s failed: %s", key[0], error)
                self.plan.failed(asked.chunk, key, now)
            (self.paused.add if tells_of_pause(str(error)) else self.paused.discard)(key[0])
            words = str(error) or ("" if isinstance(error, ShardMissing) else "it did not answer in time")
            if words and not isinstance(error, BadShard):
                self.reasons[key[0]] = words
                if isinstance(error, ShardMissing):
                    self._lacking.add(key[0])
            self._lock.notify_all()
        self.on_event()

    def close(self, asked: Asked, buffer: memoryview | None) -> None:
        """A request has ended, and what it held is free."""
        with self._lock:
            if self._open.get((asked.chunk, asked.key)) is asked:
                del self._open[asked.chunk, asked.key]
                self.plan.gave_up(asked.chunk, asked.key)  # counts only where nothing else was told
        self.budget.give(self.shard_size)
        if buffer is not None:
            self._buffers.give(buffer)

    def _give_up(self, asks: Iterable[tuple[int, Key]]) -> None:
        for ask in asks:
            asked = self._open.pop(ask, None)
            if asked is not None:
                asked.give_up()


class Asked:
    """One request: what a lane is handed (`source.Request`)."""

    def __init__(self, desk: Desk, source: Source, key: Key, chunk: int, where: Chunk) -> None:
        self.source, self.key, self.chunk, self.where = source, key, chunk, where
        self.address = where.address
        self.size = min(desk.shard_size, where.plain_size + TAG_SIZES.get(desk.content.algorithm, 0))
        self.wanted = True
        self.is_begun = False  # by a task
        self.on_unwanted: Callable[[], object] | None = None
        self._desk = desk
        self._buffer: memoryview | None = None
        self._body: memoryview | bytes = b""
        self._told_at = 0.0
        self._settled = False

    @property
    def is_settled(self) -> bool:
        """Says whether it was answered, one way or the other."""
        return self._settled

    def room(self, size: int) -> memoryview:
        """As `Request` says."""
        if not 0 < size <= self.size:
            raise BadShard(f"a shard of {size} bytes where one of {self.size} at most was to be")
        if self._buffer is None:
            self._buffer = self._desk.buffer()
        body = self._buffer[:size]
        self._body = body
        return body

    def put(self, body: memoryview | bytes) -> None:
        """As `Request` says."""
        self._body = body

    def advance(self, size: int) -> None:
        """As `Request` says."""
        now = time.monotonic()
        if now - self._told_at >= 0.1:
            self._told_at = now
            self._desk.advanced(self)

    def finish(self) -> bool:
        """As `Request` says."""
        if self._settled:
            return False
        size = len(self._body)
        try:
            written = self.wanted and self._desk.write(self, self._body)
        except P2PQueueError as error:
            self._desk.refused(self, error)
            return False
        else:
            if written:
                self._desk.took(self, size)
            return written
        finally:
            self._close()

    def fail(self, error: ShardMissing | SourceFailed | BadShard | TimeoutError) -> None:
        """As `Request` says."""
        if self._settled:
            return
        if self.wanted:
            self._desk.refused(self, error)
        self._close()

    def drop(self) -> None:
        """It was not answered, for no fault of the source."""
        if not self._settled:
            self._close()

    def give_up(self) -> None:
        """Nobody wants it any more; called under the lock of the desk."""
        self.wanted = False
        if self.on_unwanted is not None:
            self.on_unwanted()

    def _close(self) -> None:
        self._settled = True
        buffer, self._buffer, self._body = self._buffer, None, b""
        self._desk.close(self, buffer)


class Shift:
    """What a lane that works in threads is given (`source.Work`)."""

    def __init__(self, desk: Desk, source: Source) -> None:
        self._desk = desk
        self._source = source
        self._taken: list[Asked] = []

    def take(self, *, wait: bool = True) -> Asked | None:
        """As `Work` says."""
        asked = self._desk.wait(self._source) if wait else self._desk.take(self._source)
        if asked is not None:
            self._taken = [each for each in self._taken if not each.is_settled]
            self._taken.append(asked)
        return asked

    @property
    def ended(self) -> bool:
        """As `Work` says."""
        return not self._desk.is_due(self._source)

    def close(self, error: SourceFailed) -> None:
        """The lane has ended: what it didn't answer has failed."""
        for asked in self._taken:
            asked.fail(error)
