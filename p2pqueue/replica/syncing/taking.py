"""What have we received of this peer's round, and may its `done` count? Pure.

The receiver's half of a session: it opens rounds, merges what comes, acknowledges what is durable, and moves
heads by a `done` whose messages have all been merged. A refusal, a head that fell, or a peer that began anew
ends the round; the next one starts from what is counted and held then.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from p2pqueue.replica.spans import Spans
from p2pqueue.replica.syncing.effects import DropEnded, Effect, Merge, MoveHeads, ReadRows, ReadState, Report, RowPage, Send, State, Taken
from p2pqueue.replica.syncing.messages import MAX_ROWS, MAX_WRITES, Ack, Done, Ended, Heads, Refusal, Refused, RoundId, Rows, Writes
from p2pqueue.replica.wire.columns import WellFormed, join
from p2pqueue.replica.write import Head, Write

HEADS_EVERY = 3.0  # seconds between heads, give or take a third
QUIET = 2.0  # seconds without a write: a round that has not ended by then was cut
REFUSED_AFTER = 1.0  # seconds from a refusal to the next round: the sender checks what was refused
LOST_AFTER = 1.0  # seconds: a peer that doesn't know our heads by then has lost them
TOLD_AFTER = 0.05  # seconds from a moved head to telling it: several commits share one message
FIRST_BATCH = 3 * MAX_WRITES  # writes in one transaction while a round is young: the newest come first, and are to be seen soon
MAX_BATCH = 9 * MAX_WRITES  # the same later on: with a third of that, merging took a sixth more of the processor
FULL = 100  # writes in a message from which on others follow at its heels
YOUNG = 9  # messages of writes, until whose last is durable a round is young
GATHER = 0.04  # seconds for which a full message waits for those that follow: one transaction takes them all
READING_SHARE = 0.05  # of the time that may go into reading what is counted and held, however much that is
MAX_QUEUE = 3 * 24  # messages of writes that wait to be merged: of this round and of ended ones; more is a flood
MAX_DONES = 16  # `done`s that wait for their writes
ROWS_EVERY = 3_600.0  # seconds between asking which long-held rows ended
ROWS_AGAIN = 10.0  # seconds without an answer until a page of rows is asked again


class Taking:
    """Opens one round after the other."""

    def __init__(self, session: bytes, number: Callable[[], int], jitter: Callable[[], float], now: float, *, asks: bool) -> None:
        self.round: RoundId | None = None
        self.state: State | None = None  # as last read
        self._session = session
        self._number = number
        self._jitter = jitter
        self.rounds = 0  # that were opened
        self._opening = 0  # number of the read that opens a round
        self._updating = 0  # number of the read that tells our heads
        self._peer: bytes | None = None  # the session that serves this round
        self._falls = 0  # as read when the round was opened
        self._refused = False
        self._durable = Spans()  # indexes of this round's messages
        self._dones: list[Done] = []
        self._queue: deque[Writes] = deque()
        self._queued_at = now  # since when the first of the queue waits
        self._merging: tuple[Writes, ...] = ()
        self._merge = 0
        self._moving: set[int] = set()
        self._heard_at = now
        self._opened_at = now
        self._heads_at = now
        self._tell_at: float | None = None
        self._asked_at = now  # when what is counted and held was last read to be told
        self._reading_took = 0.0  # seconds, that reading
        self._told: State | None = None
        self._missing = 0  # the message that a `done` waits for, 0 for none
        self._missing_at = now  # since then
        self._ended: list[Ended] = []  # what waits for the `done` before it
        self._rows_at = now if asks else math.inf
        self._rows_after: tuple[str, str] | None = None  # where the page that is asked begins
        self._rows_next: tuple[str, str] | None = None  # where the one behind it does
        self._rows_asked = False  # a page was asked and not answered

    # --- opening and telling ---

    def start(self, now: float) -> list[Effect]:
        """Opens the first round."""
        return [] if self.round is not None or self._opening else self.open(now)

    def open(self, now: float) -> list[Effect]:
        """Starts a new round, from what is counted and held."""
        self._heads_at = self._next_heads(now)
        self._tell_at = None
        self._opened_at = now
        self._opening = self._number()
        return [ReadState(self._opening)]

    def is_old(self, now: float) -> bool:
        """Says whether the open round's heads were sent long enough ago to have been lost."""
        return not self._opening and now - self._opened_at > LOST_AFTER

    def read_state(self, request: ReadState, state: State, serving: RoundId | None, now: float) -> list[Effect]:
        """What is counted and held has been read."""
        if request.number == self._opening:
            self._opening = 0
            return self._opened(state, serving)
        if request.number != self._updating or self.round is None:
            return []
        self._updating = 0
        self._reading_took = min(now - self._asked_at, HEADS_EVERY * READING_SHARE)
        self.state = state
        if state.falls != self._falls or self._told is None:
            return [] if self._opening else self.open(now)
        heads = {author: head for author, head in state.heads.items() if self._told.heads.get(author) != head}
        held = {author: spans for author, spans in state.held.items() if self._told.held.get(author) != spans}
        if not heads and not held:
            return []
        self._told = state
        relative = {author: state.heads[author] for author in held if author in state.heads}
        return [Send(Heads(self.round, serving, heads | relative, held, state.marks))]

    def changed(self, now: float) -> None:
        """Heads or held numbers may have changed: tell the peer soon."""
        if self._tell_at is None:
            self._tell_at = max(now + TOLD_AFTER, self._asked_at + self._reading_took / READING_SHARE)

    # --- what comes ---

    def writes(self, message: Writes, now: float) -> list[Effect]:
        """Takes a message of writes into the queue."""
        if len(self._queue) >= MAX_QUEUE:
            return [Report("flood", f"{len(self._queue)} messages of writes wait to be merged")]
        self._heard_at = now
        if not self._queue:
            self._queued_at = now
        self._queue.append(message)
        return []

    def is_current(self, round_id: RoundId, session: bytes) -> bool:
        """Says whether a message belongs to the open round and to the session that serves it."""
        if round_id != self.round or self._opening:
            return False
        if self._peer is None:
            self._peer = session
        return self._peer == session

    def done(self, message: Done, now: float) -> None:
        """Keeps a `done` until its writes are durable."""
        self._heard_at = now
        if self.is_current(message.round, message.session) and not self._refused:
            self._dones = [*self._dones[-MAX_DONES:], message]

    def ended(self, message: Ended, now: float) -> None:
        """The peer names rows that ended: they go once the `done` before them has counted."""
        if message.round != self.round or self._refused or self._opening:
            return
        if not message.unasked:
            self._rows_after, self._rows_asked = self._rows_next, False
            self._rows_at = now if self._rows_after else now + ROWS_EVERY
        self._ended = [*self._ended[-MAX_DONES:], message]

    # --- what was done ---

    def merged(self, request: Merge, taken: Taken, now: float) -> list[Effect]:
        """A batch is durable."""
        if request.number != self._merge:
            return []
        messages, self._merging, self._merge = self._merging, (), 0
        effects: list[Effect] = [Report("set aside", _words(each)) for each in taken.set_aside]
        fresh = Spans()
        for message in messages:
            if self.is_current(message.round, message.session):
                self._durable.add(message.index)
                fresh.add(message.index)
            elif message.round == self.round:
                self._heads_at = now  # the peer began anew: so do we
        if taken.refusals:
            effects += self._refuse(taken.refusals, now)
        elif fresh and self.round is not None:
            effects.append(Send(Ack(self.round, fresh)))
        return effects

    def moved(self, request: MoveHeads, refusals: tuple[Refusal, ...] | None, now: float) -> list[Effect]:
        """A `done` has counted; or a head fell before it could, or a signature of the round didn't hold."""
        self._moving.discard(request.number)
        if refusals is None:
            return [] if self._opening else self.open(now)
        if refusals:
            return self._refuse(refusals, now)
        if self._counts_held(request.heads):
            self._reading_took, self._tell_at = 0.0, now  # what made it long is held no more
        self.changed(now)
        return []

    def read_rows(self, request: ReadRows, page: RowPage, now: float) -> list[Effect]:
        """A page of long-held rows has been read."""
        if self.round is None or not page.rows:
            self._rows_after, self._rows_at = None, now + ROWS_EVERY
            return []
        self._rows_next, self._rows_asked = page.resume, True
        return [Send(Rows(self.round, page.rows))]

    # --- time ---

    @property
    def due(self) -> float:
        """When `advance` must be called at the latest."""
        merge_at = self._merge_at if self._queue and not self._merge else math.inf
        return min(self._heads_at, self._rows_at, self._heads_at if self._tell_at is None else self._tell_at, merge_at)

    def advance(self, now: float) -> list[Effect]:
        """Merges what waits, moves what may move, opens and tells what is due."""
        effects: list[Effect] = []
        if self._queue and not self._merge and now >= self._merge_at:
            effects.append(self._next_merge(now))
        effects += self._count(now)
        if self._ended and not (self._queue or self._merging or self._dones or self._moving):
            effects += [DropEnded(self._number(), message.rows, self._falls) for message in self._ended if message.rows]
            self._ended = []
        if now >= self._heads_at and not self._opening:
            effects += self._tell(now) if self._is_busy(now) else self.open(now)
        elif self._tell_at is not None and now >= self._tell_at and self.round is not None and not self._opening:
            effects += self._tell(now)
        if now >= self._rows_at and self.round is not None and not self._opening:
            self._rows_at = now + ROWS_AGAIN
            effects.append(ReadRows(self._number(), self._rows_after, MAX_ROWS))
        return effects

    # --- inside ---

    def _opened(self, state: State, serving: RoundId | None) -> list[Effect]:
        self.rounds += 1
        self.round = RoundId(self._session, self.rounds)
        self.state = self._told = state
        self._falls = state.falls
        self._peer, self._refused, self._missing = None, False, 0
        self._durable = Spans()
        self._dones, self._ended = [], []
        if self._rows_asked:
            self._rows_at = self._opened_at  # what was asked in the round before is forgotten
        return [Send(Heads(self.round, serving, state.heads, state.held, state.marks))]

    def _tell(self, now: float) -> list[Effect]:
        self._tell_at = None
        if now >= self._heads_at:
            self._heads_at = self._next_heads(now)
        self._updating, self._asked_at = self._number(), now
        return [ReadState(self._updating)]

    def _next_heads(self, now: float) -> float:
        return now + HEADS_EVERY * (2 + 2 * self._jitter()) / 3

    @property
    def _merge_at(self) -> float:
        """From when on the queue may be merged: at once, unless more is on its way."""
        is_more = len(self._queue[-1].writes) >= FULL and sum(len(message.writes) for message in self._queue) < self._most
        return self._queued_at + GATHER if is_more else self._queued_at

    @property
    def _most(self) -> int:
        """How many writes a transaction may take, unless one message has more."""
        return MAX_BATCH if self._durable.covers(1, YOUNG) else FIRST_BATCH

    def _next_merge(self, now: float) -> Effect:
        taken = [self._queue.popleft()]
        size, most = len(taken[0].writes), self._most
        while self._queue and size + len(self._queue[0].writes) <= most:
            size += len(self._queue[0].writes)
            taken.append(self._queue.popleft())
        self._merging, self._merge, self._queued_at = tuple(taken), self._number(), now
        return Merge(self._merge, _joined([message.writes for message in taken]))

    def _count(self, now: float) -> list[Effect]:
        """Lets every `done` count whose writes are durable."""
        ready = [done for done in self._dones if self._durable.covers(1, done.count)]
        self._dones = [done for done in self._dones if not self._durable.covers(1, done.count)]
        missing = self._durable.first_missing() if self._dones else 0
        if missing != self._missing:
            self._missing, self._missing_at = missing, now
        heads: dict[bytes, Head] = {}
        for done in ready:
            for author, head in done.heads.items():
                heads[author] = max(head, heads.get(author, head))
        if not heads:
            return []
        request = MoveHeads(self._number(), heads, self._falls)
        self._moving.add(request.number)
        return [request]

    def _counts_held(self, heads: Mapping[bytes, Head]) -> bool:
        """Says whether something that was held, as last told, is counted by these heads."""
        held = {} if self._told is None else self._told.held
        return any(author in heads and heads[author].seq >= spans.highest for author, spans in held.items())

    def _is_busy(self, now: float) -> bool:
        """Says whether the round is still bringing writes: then it isn't cut by another."""
        if self._queue or self._merging or self._moving:
            return True
        lost = self._refused or self._peer is None or (self._missing and now - self._missing_at >= QUIET)
        return not lost and now - self._heard_at < QUIET

    def _refuse(self, refusals: tuple[Refusal, ...], now: float) -> list[Effect]:
        effects: list[Effect] = [Report("refused", _words(each)) for each in refusals]
        if self.round is None:
            return effects
        self._refused = True
        self._dones, self._ended = [], []
        self._heads_at = min(self._heads_at, now + REFUSED_AFTER)
        return [*effects, Send(Refused(self.round, refusals[:MAX_WRITES]))]


def _joined(parts: list[Sequence[Write]]) -> Sequence[Write]:
    asked = [part for part in parts if isinstance(part, WellFormed)]
    if len(asked) < len(parts):
        return tuple(chain.from_iterable(parts))
    return WellFormed(chain.from_iterable(part.single for part in asked), join(chain.from_iterable(part.alike for part in asked)))


def _words(refusal: Refusal) -> str:
    return f"{refusal.author.hex()} {refusal.seq}: {refusal.reason}"
