"""What do we send to this peer, and when may we say that it is all? Pure.

The sender's half of a session: it serves the round that the peer opened. Everything it believes of the peer
(what it counts, what it holds) comes from messages bound to that round, and is forgotten with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from p2pqueue.replica.spans import Spans
from p2pqueue.replica.syncing.effects import Effect, Page, ReadEnded, ReadUnsent, Send
from p2pqueue.replica.syncing.messages import (
    MAX_BYTES,
    MAX_WRITES,
    Again,
    Done,
    Ended,
    Heads,
    RoundId,
    RowId,
    Writes,
)
from p2pqueue.replica.wire.columns import numbers_of
from p2pqueue.replica.write import Head, Write

WINDOW = 24  # messages of writes that may be unacknowledged
FIRST_AHEAD = 4  # messages that are read at once when a round begins: the newest don't wait for many others
AHEAD = 8  # the same later on: while others are under way, so many wait to follow them
RELAY_DELAY = 0.25  # seconds: a received write's own author reaches a linked peer sooner than we could
MAX_ASKED = 8  # messages of rows kept to answer at the next `done`


class Offering:
    """Serves one round of the peer's at a time."""

    def __init__(self, session: bytes, number: Callable[[], int], *, relays: bool, max_writes: int = MAX_WRITES) -> None:
        self.round: RoundId | None = None
        self._session = session
        self._number = number
        self._relays = relays
        self._max_writes = max_writes
        self._begun: dict[bytes, int] = {}  # by the peer's session: its last round that was begun
        self.counted: dict[bytes, int] = {}  # by the peer, of each author
        self._held: dict[bytes, Spans] = {}  # by the peer, or sent to it in this round
        self._falls: int | None = None
        self._sent = 0  # messages of writes in this round
        self._unacked: set[int] = set()
        self._outbox: deque[Sequence[Write]] = deque()
        self._told: dict[bytes, Head] = {}  # by the last `done`
        self._done: dict[bytes, Head] | None = None  # to be told once the outbox is empty
        self._finished = False  # the last read found nothing unsent
        self._blocked = False  # it found only what may not be relayed
        self._reading = 0  # number of the read under way, 0 for none
        self._look = False  # there may be something unsent
        self._look_at: float | None = None  # the same, from then on
        self._asked: deque[tuple[tuple[RowId, ...], bool]] = deque()

    # --- what the peer says ---

    def serve(self, message: Heads) -> None:
        """The peer opens a round, or tells how far it has come in the one that is open."""
        if message.round == self.round:
            self._learn(message)
            self._look = self._look or self._blocked  # others may have brought what we may not relay
        elif not self._was_served(message.round):
            self._begin(message)

    def acknowledged(self, round_id: RoundId, indexes: Spans) -> None:
        """Messages of writes are durable at the peer."""
        if round_id == self.round:
            self._unacked = {index for index in self._unacked if index not in indexes}

    def heard(self, writes: Sequence[Write]) -> None:
        """The peer holds what it sends."""
        for author, numbers in numbers_of(writes).items():
            above = self.counted.get(author, 0)
            self._held.setdefault(author, Spans()).add_all(number for number in numbers if number > above)

    def asked(self, round_id: RoundId, rows: tuple[RowId, ...]) -> None:
        """The peer asks which of its rows ended; answered behind the next `done`."""
        if round_id == self.round and len(self._asked) < MAX_ASKED:
            self._asked.append((rows, False))
            self._look = True

    def dropped(self, rows: tuple[RowId, ...]) -> None:
        """These rows were dropped here, since they ended elsewhere: the peer may have them as well."""
        if self.round is not None and self._relays and len(self._asked) < MAX_ASKED:
            self._asked.append((rows, True))
            self._look = True

    def end(self, round_id: RoundId) -> bool:
        """Ends a round before its time: no `done` of it may follow. Says whether it was open."""
        if round_id != self.round:
            return False
        self.round = None
        return True

    # --- what happens here ---

    def committed(self, now: float, *, local: bool) -> None:
        """Something new stands in the replica: our own goes out at once, what others wrote if the peer still lacks it then."""
        if local:
            self._look = True
        elif self._look_at is None:
            self._look_at = now + RELAY_DELAY

    @property
    def due(self) -> float | None:
        """When `advance` must be called at the latest."""
        return self._look_at if self.round is not None else None

    def advance(self, now: float) -> list[Effect]:
        """Sends what the window admits, and reads on."""
        if self.round is None:
            return []
        effects = self._flush(self.round)
        if self._look_at is not None and now >= self._look_at:
            self._look, self._look_at = True, None
        if self._look and not self._reading and not self._outbox:
            self._look, self._finished, self._reading = False, False, self._number()
            held = {author: tuple(spans) for author, spans in self._held.items() if spans}
            ahead = AHEAD if self._sent >= FIRST_AHEAD else FIRST_AHEAD
            effects.append(ReadUnsent(self._reading, dict(self.counted), held, not self._relays, ahead, self._max_writes, MAX_BYTES))
        if self._finished and not self._outbox:
            effects += [ReadEnded(self._number(), self.round, *asked) for asked in self._asked]
            self._asked.clear()
        return effects

    def read(self, request: ReadUnsent, page: Page) -> list[Effect]:
        """A read has been answered."""
        if request.number != self._reading or self.round is None:
            return []
        self._reading = 0
        if self._falls is None:
            self._falls = page.falls
        if self._falls != page.falls:  # what our heads covered before is no longer covered
            ended = self.round
            self.end(ended)
            return [Send(Again(ended))]
        for message in page.messages:
            for author, numbers in numbers_of(message).items():
                self._held.setdefault(author, Spans()).add_all(numbers)
        for author, span in page.covered.items():  # or a long history would be kept, and sent along, as many short runs
            self._held.setdefault(author, Spans()).add(*span)
        self._outbox.extend(page.messages)
        self._blocked = page.rest == "not ours to relay"
        if page.rest == "more":
            self._look = True
        elif page.rest == "nothing":
            self._cover(page.heads)
        return []

    def ended(self, request: ReadEnded, rows: tuple[RowId, ...]) -> list[Effect]:
        """The rows that were asked after have been looked up."""
        if request.round != self.round or (request.unasked and not rows):
            return []
        return [Send(Ended(request.round, rows if self._relays else (), request.unasked))]

    # --- inside ---

    def _was_served(self, round_id: RoundId) -> bool:
        """Says whether we began this round or a later one before; served twice, its indexes would mean two messages each."""
        return round_id.number <= self._begun.get(round_id.session, 0)

    def _begin(self, message: Heads) -> None:
        self.round = message.round
        self._begun[message.round.session] = message.round.number
        self.counted, self._held, self._told = {}, {}, {}
        self._falls = self._done = None
        self._finished = False
        self._sent = self._reading = 0
        self._unacked.clear()
        self._outbox.clear()
        self._asked.clear()
        self._learn(message)
        self._look = True

    def _learn(self, message: Heads) -> None:
        for author, head in message.heads.items():
            self.counted[author] = max(head.seq, self.counted.get(author, 0))
        for author, spans in message.held.items():
            self._held.setdefault(author, Spans()).update(spans)
        for author, held in self._held.items():
            held.forget_to(self.counted.get(author, 0))

    def _cover(self, heads: Mapping[bytes, Head]) -> None:
        """Nothing at or below these heads is unsent: what isn't live there any more has been outranked by what was sent."""
        self._finished = True
        ahead = {author: head for author, head in heads.items() if head.seq > self.counted.get(author, 0)}
        for author, head in ahead.items():
            self._held.setdefault(author, Spans()).add(self.counted.get(author, 0) + 1, head.seq)
        if any(self._told.get(author) != head for author, head in ahead.items()):
            self._done = ahead

    def _flush(self, round_id: RoundId) -> list[Effect]:
        effects: list[Effect] = []
        while self._outbox and len(self._unacked) < WINDOW:
            self._sent += 1
            self._unacked.add(self._sent)
            effects.append(Send(Writes(round_id, self._session, self._sent, self._outbox.popleft())))
        if self._done is not None and not self._outbox:
            effects.append(Send(Done(round_id, self._session, self._sent, self._done)))
            self._told.update(self._done)
            self._done = None
        return effects
