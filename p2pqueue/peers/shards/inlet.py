"""How does one thread fetch shards over one connection to a peer's listener (`stream`)?

It asks for the next shards before the last one has come, so that the peer never waits for an ask; each comes into the
buffer of its request and is checked, opened and written in this thread. A peer that can't give such a connection is
asked by plain HTTP on the same one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from p2pqueue.errors import BadShard
from p2pqueue.payload.fetching.http_line import ANSWER_WITHIN, Came, HttpLine, Place
from p2pqueue.payload.fetching.source import Request, ShardMissing, SourceFailed, Work
from p2pqueue.payload.format import MIB
from p2pqueue.peers.shards.stream import ANSWER, ASK, FAILED, MISSING, PATH, PROTOCOL, REUSED_WITHIN, SHARD, WORDS, read_words

AHEAD: Final = 2  # shards that are asked for, however large; one more where fewer are, so that one message asks for two
SMALL_AHEAD: Final = 64  # shards that are, as long as they are
AHEAD_BYTES: Final = MIB // 2
UNSUPPORTED: Final = frozenset({404, 405, 426, 501})  # answers of who speaks plain HTTP alone


class TicketRefused(SourceFailed):
    """The peer doesn't take the ticket that it gave."""


class Inlet(HttpLine):
    """One connection to a peer. For one thread at a time."""

    def __init__(self, place: Place, *, answer_within: float = ANSWER_WITHIN) -> None:
        super().__init__(place, answer_within=answer_within)
        self._is_stream: bool | None = None  # None: not asked yet
        self._answer = memoryview(bytearray(ANSWER.size))

    @property
    def reused_within(self) -> float:
        """Seconds of rest after which it is not used again."""
        return REUSED_WITHIN

    def carry(self, work: Work, came: Came, *, first: Request | None = None) -> None:
        """Gets `first` and what the work gives, until that gives nothing. Raises `SourceFailed`; then it is of no use any more."""
        first = work.take() if first is None else first  # before it connects: what can't be reached has failed at something
        if first is None:
            return
        if self._is_stream is None:
            self._is_stream = self._upgrade(first)
        if not self._is_stream:
            super().carry(work, came, first=first)
            return
        asked: deque[Request] = deque()
        self._ask(asked, first)
        while True:
            self._ask_ahead(work, asked)
            if not asked:
                return
            request = asked.popleft()
            has_come = self._take_answer(request, came)
            self._ask_ahead(work, asked, wait=False)  # the peer goes on while this one is checked
            if has_come:
                request.finish()

    def _upgrade(self, first: Request) -> bool:
        headers = f"Connection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n"
        answer = self.ask(PATH, wanted=lambda: first.wanted, headers=headers)
        if answer.status == 101:
            return True
        words = self._refusal(answer, lambda: first.wanted)
        if answer.status in UNSUPPORTED:
            return False
        raise (TicketRefused if answer.status == 401 else SourceFailed)(words)

    def _ask_ahead(self, work: Work, asked: deque[Request], *, wait: bool = True) -> None:
        coming = sum(request.size for request in asked)
        more: list[Request] = []
        least = AHEAD + 1 if len(asked) < AHEAD else AHEAD
        while len(asked) + len(more) < least or (len(asked) + len(more) < SMALL_AHEAD and coming < AHEAD_BYTES):
            request = work.take(wait=wait and not asked and not more)
            if request is None:
                break
            more.append(request)
            coming += request.size
        self._ask(asked, *more)

    def _ask(self, asked: deque[Request], *requests: Request) -> None:
        if requests:
            self.send(b"".join(ASK.pack(request.address, request.size) for request in requests))
            asked.extend(requests)

    def _take_answer(self, request: Request, came: Came) -> bool:
        """Receives a shard, or why it doesn't come; says whether it did."""
        self.fill(self._answer, wanted=lambda: request.wanted)
        kind, size = ANSWER.unpack(self._answer)
        if kind == SHARD:
            self.receive(request, size, came)
            return True
        if kind not in (MISSING, FAILED) or size > WORDS:
            request.fail(BadShard(f"{self.place.called} sent what is no answer"))
            raise SourceFailed(f"{self.place.called} sent what is no answer")
        words = memoryview(bytearray(size))
        self.fill(words, wanted=lambda: request.wanted)
        request.fail(ShardMissing(read_words(words)) if kind == MISSING else SourceFailed(read_words(words)))
        return False
