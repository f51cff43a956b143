"""How does a replication session run with a real device? One peer's messages, requests and timer.

The session itself (`replica.sync`) does no I/O. Here its messages go to the link, which may make them wait; its
requests go to the disk: readings to connections of their own in threads, writings through the store's one hop.
Where the disk fails, the session is given up and another begins a little later: the peer takes that as a new start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
from collections import Counter, deque
from collections.abc import Callable

from p2pqueue.cancelling import cancellable
from p2pqueue.errors import MalformedMessage, P2PQueueError
from p2pqueue.peers.disk import Disk
from p2pqueue.peers.linked import LinkedPeer
from p2pqueue.replica.syncing.effects import Answer, Effect, Report, Request, Send
from p2pqueue.replica.syncing.messages import Heads, Message, RowId
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.syncing.sync import Progress, Session

AGAIN_AFTER = 1.0  # seconds from a failure to the next session: a full disk is not full for ever
AGAIN_AT_MOST = 30.0  # seconds, where one failure follows the other
INBOX = 128  # messages that wait to be read: more are dropped, which a session takes as loss
SOONEST = 0.001  # seconds between two looks at the time
OUTBOX = 64  # messages that wait to be sent: until some have left, nothing more is read

_log = logging.getLogger(__name__)


class Conversation:
    """Replicates with one peer for as long as it is linked.

    `on_report` hears what is to be counted and shown, `on_answered` of every request that was carried out, and
    `on_rubbish` in words why nothing more is read of this peer.
    """

    def __init__(
        self,
        peer: LinkedPeer,
        peering: Peering,
        *,
        relays: bool,
        on_report: Callable[[Conversation, Report], None],
        on_answered: Callable[[Conversation, Request, Answer], None],
        on_rubbish: Callable[[Conversation, str], None],
    ) -> None:
        self.peer = peer
        self.reports: Counter[str] = Counter()
        self.trouble: str | None = None  # why the last session was given up, until one works again
        self._peering = peering
        self._disk: Disk | None = None
        self._relays = relays
        self._on_report = on_report
        self._on_answered = on_answered
        self._on_rubbish = on_rubbish
        self._session: Session | None = None
        self._group: asyncio.TaskGroup | None = None
        self._inbox: deque[bytes] = deque()
        self._outbox: deque[Message] = deque()
        self._inflates = False  # the peer has said that writes may come deflated
        self._news = asyncio.Event()
        self._to_send = asyncio.Event()
        self._moved = asyncio.Event()  # the session may have something to do earlier
        self._timer_due = 0.0
        self._over = False

    # --- what is said from outside ---

    def received(self, data: bytes) -> None:
        """A message of the peer's has come; it is read in its turn."""
        if self._over:
            return
        if len(self._inbox) >= INBOX:
            if not self.reports["flood"]:
                self._report(Report("flood", f"{INBOX} messages wait to be read"))
            return
        self._inbox.append(data)
        self._news.set()

    def committed(self, *, local: bool) -> None:
        """The replica has changed: by a write of this device, or by what another peer brought."""
        if self._session is not None:
            self._do(self._session.committed(_now(), local=local))

    def dropped(self, rows: tuple[RowId, ...]) -> None:
        """Rows were dropped since they ended elsewhere, as another peer told."""
        if self._session is not None:
            self._do(self._session.dropped(rows, _now()))

    @property
    def progress(self) -> Progress:
        """How far both sides are."""
        return Progress() if self._session is None else self._session.progress

    # --- the loops ---

    async def run(self, disk: Disk) -> None:
        """Holds one session after the other; returns when the link is gone or the peer sent rubbish."""
        self._disk = disk
        pause = AGAIN_AFTER
        while not self._over:
            begun = _now()
            try:
                await cancellable(self._hold(disk))
                return
            except* (P2PQueueError, sqlite3.Error, OSError) as failures:
                self._give_up(str(_first(failures)))
            except* Exception as failures:  # noqa: BLE001 - whatever a peer sends, the node lives
                _log.error("Replication with %s met an error of its own", self.peer.device_id, exc_info=_first(failures))
                self._give_up(f"{type(_first(failures)).__name__}: {_first(failures)}")
            pause = AGAIN_AFTER if _now() - begun > AGAIN_AT_MOST else min(2 * pause, AGAIN_AT_MOST)
            await asyncio.sleep(pause / 2)

    def _give_up(self, words: str) -> None:
        if words != self.trouble:
            _log.warning("Replication with %s begins anew: %s", self.peer.device_id, words)
        self.trouble = words

    async def _hold(self, disk: Disk) -> None:
        """One session: until it fails, or the link is gone."""
        self._inbox.clear()
        self._outbox.clear()
        now = _now()
        session = Session(os.urandom(8), jitter=random.random, now=now, relays=self._relays, peer_relays=self._peering.peer_relays)
        try:
            async with asyncio.TaskGroup() as group:
                self._session, self._group = session, group
                sending = group.create_task(self._send(disk))
                timing = group.create_task(self._keep_time(session))
                self._do(session.start(now))
                await self._listen(session, disk)
                sending.cancel()
                timing.cancel()
        finally:
            self._session = self._group = None

    async def _listen(self, session: Session, disk: Disk) -> None:
        """Reads what the peer says, message by message."""
        while not self._over:
            if not self._inbox or len(self._outbox) >= OUTBOX:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                message = await disk.read(self._inbox.popleft())
            except MalformedMessage as error:
                self._over = True
                self._on_rubbish(self, f"it sent rows that can't be read: {error}")
                return
            if isinstance(message, Heads):
                self._inflates = message.inflates
            if message is not None:
                self._do(session.received(message, _now()))
            await asyncio.sleep(0)  # others have their turn between two messages

    async def _keep_time(self, session: Session) -> None:
        """Lets the session do what is due."""
        while True:
            now = _now()
            if session.due <= now:
                self._do(session.tick(now))
            self._timer_due = max(session.due, now + SOONEST)
            self._moved.clear()
            timer = asyncio.get_running_loop().call_at(self._timer_due, self._moved.set)
            await self._moved.wait()
            timer.cancel()

    async def _send(self, disk: Disk) -> None:
        while True:
            while self._outbox:
                data = await disk.pack(self._outbox.popleft(), deflate=self._inflates)
                try:
                    await self.peer.send("rows", data)
                except P2PQueueError as error:
                    _log.debug("nothing more goes to %s: %s", self.peer.device_id, error)
                    self._over = True
                    self._news.set()
                    return
                if len(self._outbox) == OUTBOX - 1:
                    self._news.set()
            self._to_send.clear()
            await self._to_send.wait()

    # --- effects ---

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._outbox.append(effect.message)
                self._to_send.set()
            elif isinstance(effect, Report):
                self._report(effect)
            elif self._group is not None and self._session is not None and self._disk is not None:
                self._group.create_task(self._answer(self._session, self._disk, effect))
        if self._session is not None and self._session.due < self._timer_due:
            self._moved.set()

    async def _answer(self, session: Session, disk: Disk, request: Request) -> None:
        answer = await disk.answer(self._peering, request)
        if session is not self._session:
            return
        self.trouble = None
        self._do(session.answered(request, answer, _now()))
        self._on_answered(self, request, answer)

    def _report(self, report: Report) -> None:
        self.reports[report.kind] += 1
        self._on_report(self, report)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
