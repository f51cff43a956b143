"""How do two replicas come to hold the same? One side of a replication session, without I/O. Pure.

Theory of operation. *heads[a] = n* means: this replica's state includes every write of author a up to n, or
something that outranks it. So a head never moves because numbers were "sent"; it moves by a `Done`, which says
that one read transaction of the sender found nothing the receiver neither counts nor holds.

    receiver                                   sender
    Heads(round, counted, held)  ───────────▶
                                 ◀───────────  Writes(round, 1) … Writes(round, n)   newest first, at most 24 unacknowledged
    Ack(round, indexes)          ───────────▶  (each once durable)
                                 ◀───────────  Done(round, n, heads)                 counts when 1 … n are durable
    Heads(same round)            ───────────▶  (how far it has come; relaying and forks live on it)

Both directions run side by side, and stay open: a new commit is one more `Writes` and one more `Done`. A round
ends, and another is opened, when it was cut, when a write was refused (`Refused`), when a head of either side
fell (`Again`), when the peer began anew, and every few seconds while nothing moves. Loss, duplication and
reordering of messages cost time and nothing else: whatever is believed of the peer is bound to a round.

`taking` is the receiver's half, `offering` the sender's, `mending` compares digests. Messages and the time go
in; effects come out; requests among them are answered through `answered`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from p2pqueue.replica.syncing.effects import (
    Answer,
    BucketPage,
    DigestRead,
    DropEnded,
    Effect,
    Merge,
    MoveHeads,
    Observe,
    Observed,
    Page,
    ReadBucket,
    ReadDigest,
    ReadEnded,
    ReadGreater,
    ReadRows,
    ReadState,
    ReadUnsent,
    Recheck,
    Report,
    Request,
    RowPage,
    State,
    Taken,
)
from p2pqueue.replica.syncing.mending import DIGEST_EVERY, Mending
from p2pqueue.replica.syncing.messages import (
    MAX_WRITES,
    Ack,
    Again,
    Digest,
    Done,
    Ended,
    Heads,
    Mend,
    Message,
    More,
    Refusal,
    Refused,
    RowId,
    Rows,
    Writes,
)
from p2pqueue.replica.syncing.offering import MAX_ASKED, Offering
from p2pqueue.replica.syncing.taking import Taking
from p2pqueue.replica.write import Head, Write

RECORD_EVERY = 5.0  # seconds between two records of one peer's acknowledgements: a late one only costs work at a fork


@dataclass(frozen=True)
class Progress:
    """How far both sides are, as last told: how many numbers are counted there and not here (`behind`), and the reverse (`ahead`)."""

    rounds: int = 0
    done_at: float | None = None  # when a `done` of the peer's last counted
    behind: int = 0
    ahead: int = 0
    compared: bool = False  # both sides have told what they count

    @property
    def in_sync(self) -> bool:
        """Both count the same."""
        return self.compared and not self.behind and not self.ahead


class Session:
    """One side of a session with one peer; it lasts as long as the link.

    `nonce` is 8 random bytes, `jitter` gives numbers from 0 to 1, `relays` says whether this device's role lets
    it relay, `peer_relays` the same of the peer. `max_writes` bounds a message, `digest_every` is in seconds.
    """

    def __init__(
        self,
        nonce: bytes,
        *,
        jitter: Callable[[], float],
        now: float,
        relays: bool = True,
        peer_relays: bool = True,
        max_writes: int = MAX_WRITES,
        digest_every: float = DIGEST_EVERY,
    ) -> None:
        self._nonce = nonce
        self._last_number = 0
        self._taking = Taking(nonce, self._number, jitter, now, asks=peer_relays)
        self._offering = Offering(nonce, self._number, relays=relays, max_writes=max_writes)
        self._mending = Mending(self._number, jitter, now, every=digest_every)
        self._peer: bytes | None = None  # nonce of the peer's session
        self._unserved: dict[int, Heads] = {}  # by the number of the request that looks at them
        self._early: list[Rows] = []  # asked in rounds that are not served yet
        self._record_at = now
        self._ours: Mapping[bytes, Head] | None = None  # what is counted here, as last compared
        self._done_at: float | None = None

    def start(self, now: float) -> list[Effect]:
        """The link is up."""
        return self._taking.start(now)

    def received(self, message: Message, now: float) -> list[Effect]:
        """A message of the peer's has come."""
        return self._received(message, now) + self.tick(now)

    def answered(self, request: Request, answer: Answer, now: float) -> list[Effect]:
        """A request has been carried out."""
        return self._answered(request, answer, now) + self.tick(now)

    def committed(self, now: float, *, local: bool) -> list[Effect]:
        """The replica has changed: by a write of this device, or by what another session merged or counted."""
        self._offering.committed(now, local=local)
        self._taking.changed(now)
        return self.tick(now)

    def dropped(self, rows: tuple[RowId, ...], now: float) -> list[Effect]:
        """Another session had these rows dropped, since they ended elsewhere; this peer is told as well."""
        self._offering.dropped(rows)
        return self.tick(now)

    def tick(self, now: float) -> list[Effect]:
        """Does what is due."""
        return [*self._taking.advance(now), *self._offering.advance(now), *self._mending.advance(now)]

    @property
    def due(self) -> float:
        """When `tick` must be called at the latest."""
        return min(moment for moment in (self._taking.due, self._mending.due, self._offering.due) if moment is not None)

    @property
    def progress(self) -> Progress:
        """How far both sides are."""
        ours, theirs = self._ours or {}, self._offering.counted
        behind = sum(max(0, seq - (ours[author].seq if author in ours else 0)) for author, seq in theirs.items())
        ahead = sum(max(0, head.seq - theirs.get(author, 0)) for author, head in ours.items())
        return Progress(self._taking.rounds, self._done_at, behind, ahead, self._ours is not None and bool(theirs))

    # --- messages ---

    def _received(self, message: Message, now: float) -> list[Effect]:
        taking, offering = self._taking, self._offering
        match message:
            case Heads():
                return self._heads(message, now)
            case Writes():
                if taking.is_current(message.round, message.session) and message.session == self._peer:
                    offering.heard(message.writes)
                return taking.writes(message, now)
            case Ack():
                offering.acknowledged(message.round, message.indexes)
            case Done():
                taking.done(message, now)
            case Refused():
                if offering.end(message.round):
                    why = message.refusals[0].reason if message.refusals else "no reason"
                    report = Report("refused there", f"{len(message.refusals)} writes: {why}")
                    return [report, Recheck(self._number(), message.refusals)]
            case Again():
                if message.round == taking.round:
                    return taking.open(now)
            case Rows():
                if any(heads.round == message.round for heads in self._unserved.values()):
                    self._early = [*self._early[-MAX_ASKED:], message]
                offering.asked(message.round, message.rows)
            case Ended():
                taking.ended(message, now)
            case Digest() | Mend() | More():
                return self._mending.received(message)
        return []

    def _heads(self, message: Heads, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if message.serving is not None and message.serving.session != self._nonce:
            return effects  # it was meant for an earlier session of ours, and comes late
        if message.round.session != self._peer:
            if self._peer is not None:  # the peer began anew: what its last session told us is void
                effects += self._taking.open(now)
            self._peer = message.round.session
        elif message.serving is None and self._taking.round is not None and self._taking.is_old(now):
            effects += self._taking.open(now)  # our heads were lost
        # Looked at before it is served: once our writes have raised the peer's head, no trace of a fork is left there.
        request = Observe(self._number(), message.heads, message.held, message.marks, now >= self._record_at)
        self._unserved[request.number] = message
        if request.record:
            self._record_at = now + RECORD_EVERY
        return [*effects, request]

    def _observed(self, request: Observe, observed: Observed, now: float) -> list[Effect]:
        message = self._unserved.pop(request.number)
        effects: list[Effect] = []
        self._ours = observed.heads
        if observed.forked:
            effects += [Report("fork", "a peer knows what was never written here"), *self._taking.open(now)]
        if message.round.session == self._peer:
            self._offering.serve(message)
            for early in self._early:
                self._offering.asked(early.round, early.rows)
            self._early = [early for early in self._early if early.round != message.round]
        return [*effects, *self._mending.compare(observed.heads, message.heads, now)]

    # --- answers ---

    def _answered(self, request: Request, answer: Answer, now: float) -> list[Effect]:
        taking, offering, mending = self._taking, self._offering, self._mending
        match request:
            case ReadState():
                self._ours = cast(State, answer).heads
                return taking.read_state(request, cast(State, answer), offering.round, now)
            case ReadUnsent():
                return offering.read(request, cast(Page, answer))
            case Merge():
                return self._merged(request, cast(Taken, answer), now)
            case MoveHeads():
                if answer == ():
                    self._done_at = now
                offering.committed(now, local=False)
                return taking.moved(request, cast("tuple[Refusal, ...] | None", answer), now)
            case Observe():
                return self._observed(request, cast(Observed, answer), now)
            case Recheck():
                offering.committed(now, local=True)
            case ReadRows():
                return taking.read_rows(request, cast(RowPage, answer), now)
            case ReadEnded():
                return offering.ended(request, cast(tuple[RowId, ...], answer))
            case DropEnded():
                pass
            case ReadDigest():
                return mending.digest_read(request, cast(DigestRead, answer))
            case ReadBucket():
                return mending.bucket_read(request, cast(BucketPage, answer))
            case ReadGreater():
                return mending.greater_read(request, cast(tuple[Write, ...], answer))
        return []

    def _merged(self, request: Merge, taken: Taken, now: float) -> list[Effect]:
        effects = self._mending.merged(request) if request.repair else self._taking.merged(request, taken, now)
        self._offering.committed(now, local=False)
        if taken.forked:
            effects += [Report("fork", "a write of our own author that isn't ours"), *self._taking.open(now)]
        return effects

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number
