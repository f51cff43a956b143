"""How does one transfer go on: which sources are put to work, what is told of it, and when is it given up?

The work itself is done by the lanes: in threads of their own where they can (`carry`), else in tasks here, whose
shards are checked and written in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from p2pqueue.errors import BadShard, DiskFull, P2PQueueError, PayloadUnavailable
from p2pqueue.payload.fetching.budget import Budget
from p2pqueue.payload.fetching.desk import Asked, Desk, Place, Shift
from p2pqueue.payload.fetching.gathering import NOBODY, joined, only
from p2pqueue.payload.fetching.source import Lane, ShardMissing, Source, SourceFailed
from p2pqueue.payload.fetching.speed import Speed
from p2pqueue.payload.fetching.transfers import SourceShare, Transfer
from p2pqueue.payload.fetching.twins import Content
from p2pqueue.payload.limit import Limits
from p2pqueue.payload.names import safe_name

LOOK_EVERY: Final = 0.25  # seconds between two looks for sources that came or went
PATIENCE: Final = 6.0  # seconds without any source that has a use before the fetch is given up
RETURNS: Final = 3  # times as long where something has come and no source is there: it may be back soon
TOUCH_EVERY: Final = 30.0  # seconds
CHECK_EVERY: Final = 2.0  # seconds between two looks whether the disk may take more
STANDS_AFTER: Final = 2.0  # seconds without a byte after which a transfer is said to stand still

_SHOWN: Final = 12  # digits of the hash of a shard, by which the debug log has it
_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
Holders = Callable[[str], Awaitable[Sequence[tuple[str, str]]]]


async def nobody(root: str) -> Sequence[tuple[str, str]]:
    """Nobody is known to have a file."""
    return ()


@dataclass(frozen=True)
class Means:
    """What all transfers of a node share. `holders` tells who should have a file, by id and name, `called` what a source is called."""

    sources: Callable[[], Sequence[Source]]
    limits: Limits
    budget: Budget
    threads: Executor  # of lanes
    checking: Executor  # of what comes over lanes that have none
    holders: Holders = nobody
    called: Callable[[str], str] = str


@dataclass
class Running:
    """One transfer: `content`, whose manifest has the capability `root`, to `place`."""

    root: str
    name: str
    content: Content
    size: int
    place: Place
    means: Means
    touch: Callable[[], None]
    check: Callable[[], None] = lambda: None  # raises `DiskFull` when no more may be written
    on_progress: Progress = lambda done, size: None
    peers_at: float = 0.0
    _busy: Counter[tuple[str, Lane]] = field(default_factory=Counter)  # threads and tasks at work
    _speeds: dict[tuple[str, Lane], Speed] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._changed.set)

        self.desk = Desk(self.content, self.place, self.means.budget, self.means.limits.download, wake, self.peers_at)
        self.speed = Speed(self.desk.verified, time.monotonic())
        self._forbidden: dict[str, str] = {}  # why something that is there may not be used, by its name
        self._present: Sequence[Source] = ()
        self._latest: dict[tuple[str, Lane], Source] = {}
        self._holders: Sequence[tuple[str, str]] | None = None  # looked for when nobody has it
        self._told = -1

    async def run(self) -> None:
        """Brings what is missing. Raises `PayloadUnavailable`, and what this disk or a wrong manifest says."""
        group = asyncio.TaskGroup()
        try:
            async with group:
                try:
                    await self._drive(group)
                finally:
                    self.desk.end()
                    for task in self._tasks:
                        task.cancel()  # a thread that waits for bytes ends by itself: nobody waits for it
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self._tell()
        if self.desk.failure is not None:
            raise self.desk.failure

    async def _drive(self, group: asyncio.TaskGroup) -> None:
        useful_at = touched_at = checked_at = time.monotonic()
        while not self.desk.done:
            now = time.monotonic()
            self._present = [source for source in self.means.sources() if self._is_allowed(source)]
            self._latest = {(source.name, source.lane): source for source in self._present}
            self.desk.offered(self._present)
            for source in self._present:
                self._put_to_work(group, source)
            if not self.desk.is_hopeless() or self._is_held:
                useful_at = now
            elif self._holders is None:
                self._holders = await self.means.holders(self.root)
            elif now - useful_at >= (PATIENCE if self._present or not self.desk.received else PATIENCE * RETURNS):
                self.desk.failure = PayloadUnavailable(self._lacking())
                return
            if now - checked_at >= CHECK_EVERY:
                await self._check_disk()
                checked_at = now
            if now - touched_at >= TOUCH_EVERY:
                self.touch()
                touched_at = now
            self.speed.at(now, self.desk.verified)
            self._tell()
            self._changed.clear()
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _check_disk(self) -> None:
        try:
            await asyncio.to_thread(self.check)
        except DiskFull as error:
            self.desk.failure = error

    # -- lanes ------------------------------------------------------------------------------------------------

    def _is_allowed(self, source: Source) -> bool:
        why = self.means.limits.forbids(source.name, metered=getattr(source, "metered", False))
        if why is None:
            self._forbidden.pop(source.name, None)
        else:
            self._forbidden[source.name] = why
        return why is None

    @property
    def _is_held(self) -> bool:
        """Says whether a person has stopped it, here or where it comes from: then it waits, however long."""
        limits = self.means.limits
        return limits.all_paused or any(name in limits.paused for name in self._forbidden) or bool(self._paused)

    @property
    def _paused(self) -> list[str]:
        """The names of those who are there and are paused."""
        return list(dict.fromkeys(source.name for source in self._present if source.name in self.desk.paused))

    def _put_to_work(self, group: asyncio.TaskGroup, source: Source) -> None:
        key = (source.name, source.lane)
        if not self.desk.is_due(source):
            return
        if (carry := getattr(source, "carry", None)) is not None:
            threads: int = getattr(source, "threads", 1)
            while self._busy[key] < threads:
                self._busy[key] += 1
                self._start(group, self._carry(source, carry))
        else:
            self._pump(group, source)

    async def _carry(self, source: Source, carry: Callable[[Shift], object]) -> None:
        shift = Shift(self.desk, source)

        def work() -> None:
            error = SourceFailed("it ended without an answer")
            try:
                carry(shift)
            except (SourceFailed, ShardMissing, P2PQueueError, OSError) as failure:
                error = SourceFailed(str(failure))
            finally:
                shift.close(error)

        try:
            await asyncio.get_running_loop().run_in_executor(self.means.threads, work)
        finally:
            self._busy[source.name, source.lane] -= 1

    def _pump(self, group: asyncio.TaskGroup, source: Source) -> None:
        key = (source.name, source.lane)
        while self._busy[key] < source.parallel and (asked := self.desk.take(source)) is not None:
            self._busy[key] += 1
            # A task that is cancelled before its first step does nothing, not even at its end.
            self._start(group, self._bring(group, source, asked)).add_done_callback(partial(_let_go, asked))

    def _start(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _bring(self, group: asyncio.TaskGroup, source: Source, asked: Asked) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        asked.is_begun = True
        getting = [True]  # what a thread has begun to write can't be cancelled

        def cancel() -> None:
            if getting[0]:
                task.cancel()

        asked.on_unwanted = lambda: None if loop.is_closed() else loop.call_soon_threadsafe(cancel)
        try:
            await self._get(source, asked)
            getting[0] = False
            if not asked.is_settled:
                await asyncio.shield(loop.run_in_executor(self.means.checking, asked.finish))
        except asyncio.CancelledError:
            if asked.wanted or self.desk.done:
                raise
        finally:
            if getting[0]:
                asked.drop()
            self._busy[source.name, source.lane] -= 1
        latest = self._latest.get((source.name, source.lane))
        if not self.desk.done and latest is not None:
            self._pump(group, latest)

    async def _get(self, source: Source, asked: Asked) -> None:
        deliver: Any = getattr(source, "deliver", None)
        try:
            if deliver is not None:
                await deliver(asked)
            else:
                asked.put(await source.shard(asked.address, asked.size))
        except (ShardMissing, SourceFailed, TimeoutError) as error:
            asked.fail(error)
        except P2PQueueError as error:  # what came is no shard
            asked.fail(error if isinstance(error, BadShard) else BadShard(str(error)))

    # -- what is told -----------------------------------------------------------------------------------------

    def look(self) -> Transfer:
        """How it stands."""
        now, desk = time.monotonic(), self.desk
        rate = self.speed.at(now, desk.verified)
        why = self._why() if self.speed.still_for(now) >= STANDS_AFTER or self._is_held else None
        rate = rate if why is None else 0.0
        eta = (self.size - desk.verified) / rate if rate > 0 else None
        content: bytes = getattr(self.content, "content", b"")  # a folder has none
        return Transfer(self.root, self.name, self.size, desk.verified, rate, eta, self._shares(now), why, content=content.hex())

    def _shares(self, now: float) -> tuple[SourceShare, ...]:
        keys = dict.fromkeys([*((each.name, each.lane) for each in self._present), *self.desk.received])
        shares = []
        for key in keys:
            size = self.desk.received[key]
            speed = self._speeds.setdefault(key, Speed(0, now))
            shares.append(SourceShare(*key, size, speed.at(now, size), self.desk.state(*key), self.means.called(key[0])))
        return tuple(shares)

    def _why(self) -> str:
        if not self.desk.plan.chunks.undone:
            return "all of it has come, and is being written"
        if self.means.limits.all_paused:
            return "all transfers are paused"
        if self._forbidden and not self._present:
            return "; ".join(sorted(set(self._forbidden.values())))
        if self._paused:
            return f"transfers are paused on {', '.join(map(self.means.called, self._paused))}"
        if not self.desk.is_hopeless():
            if self.desk.reasons:
                return joined(self.desk.reasons, self.means.called)
            return "a device has it, and nothing comes from there just now"
        return self._lacking()

    def _lacking(self) -> str:
        chunks = self.desk.plan.chunks
        shard = self.content.chunk(chunks.first_undone).address.hex()
        more = f" and {chunks.undone - 1} more" if chunks.undone > 1 else ""
        _log.debug("shard %s%s can't be had", shard, more)
        name = safe_name(self.name)
        if self._forbidden and not self._present:
            return f"{name} is not fetched: {joined(self._forbidden, self.means.called)}"
        if self.desk.reasons:
            return f"{name} can't be had: {joined(self.desk.reasons, self.means.called)}"
        linked = {source.name for source in self._present}
        away = [label for device, label in self._holders or () if device not in linked]
        if away:
            return f"{name} is not all here: {only(away)}"
        if not linked:
            return f"{name} is not all here: {NOBODY}"
        return f"no device that is linked has all of {name}, and no origin has the rest (shard {shard[:_SHOWN]}{more})"

    def _tell(self) -> None:
        if self.desk.verified != self._told and self.desk.verified:
            self._told = self.desk.verified
            self.on_progress(self._told, self.size)


def _let_go(asked: Asked, task: asyncio.Task[None]) -> None:
    if not asked.is_begun:
        asked.drop()
