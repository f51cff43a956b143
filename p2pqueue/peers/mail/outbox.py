"""What does this device put into the mailbox for devices that are not there now?

What others may lack of what is live here, as batches that `mailbox_format` describes; and what it counts itself, by
which the others know what they need not keep for it. Where nothing has changed, nothing is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, cast

from blake3 import blake3

from p2pqueue.errors import WorldError
from p2pqueue.identity.members import Member
from p2pqueue.payload.origins.objects import Listed
from p2pqueue.peers.mail.format import (
    MOST_PARTS,
    MOST_REFUSED,
    PART_SIZE,
    Batch,
    Counted,
    Index,
    MailKeys,
    MailSigner,
    Part,
    pack_index,
    pack_part,
)
from p2pqueue.peers.mail.inbox import INDEX, MISSING_LOOKS, PART, Seen
from p2pqueue.peers.mail.letters import LETTERS
from p2pqueue.peers.mail.place import Hand, MailPlace
from p2pqueue.peers.mail.plan import (
    highest,
    is_behind,
    kept_batches,
    lowest,
    numbers,
    reach_of,
    reason_to_begin_anew,
    without_acknowledged,
)
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.syncing.effects import Page, ReadEnded, ReadRows, ReadState, ReadUnsent, RowPage, State
from p2pqueue.replica.syncing.messages import MAX_BYTES, MAX_ROWS, MAX_WRITES, Refusal, RoundId, RowId, Writes
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.wire.columns import numbers_of
from p2pqueue.replica.write import Head

PAGE: Final = 4  # messages that are read at once
ROWS_EVERY: Final = 3_600.0  # seconds between asking which long-held rows ended
_ROUND: Final = RoundId(b"mailmail", 1)


@dataclass
class Outbox:
    """The outbox of this device."""

    keys: MailKeys
    signer: MailSigner
    member: Member  # this device
    relays: bool
    place: MailPlace
    hand: Hand
    peering: Peering
    authors_of: Callable[[str], Awaitable[set[bytes]]]
    now: Callable[[], float]  # seconds, monotonic
    wall: Callable[[], int]  # milliseconds UTC
    random: Callable[[int], bytes]
    index: Index | None = None
    name: str = ""  # of the index
    _loose: dict[bytes, Spans] = field(default_factory=dict)  # what was put there above the heads
    _blocked: State | None = None  # of which nothing could be concluded
    _names: set[str] = field(default_factory=set)  # of objects, as listed last
    _missing: int = 0
    _rows: tuple[RowId, ...] = ()
    _rows_after: tuple[str, str] | None = None
    _rows_at: float = float("-inf")
    _answered: tuple[object, ...] = ()
    _ended: tuple[RowId, ...] = ()
    _number: int = 0

    @property
    def tag(self) -> str:
        """The name of the outbox."""
        return self.keys.device(self.member.device_id)

    def listed(self, listed: Iterable[Listed], own: Seen | None) -> None:
        """What a list shows of this outbox, and the index that was read of it: an earlier run's, or another's with this key."""
        start = f"{self.keys.space}/{self.tag}/"
        self._names = {each.name.removeprefix(start) for each in listed if each.name.startswith(start)}
        if own is not None and own.name != self.name and (self.index is None or own.index.number > self.index.number):
            self.index, self.name = own.index, own.name
            self._loose = {}
        parts = () if self.index is None else [part.name for batch in self.index.batches for part in batch.parts]
        self._missing = self._missing + 1 if any(name not in self._names for name in parts) else 0

    async def post(
        self, seen: Mapping[str, Seen], *, known: Iterable[str], refused: Mapping[str, tuple[Refusal, ...]], acknowledge: bool,
        about: bytes = b"",
    ) -> bool:  # fmt: skip
        """Writes what is to be written, and removes what it replaces; says whether anything was.

        `known` are the ids of the other devices; with `acknowledge` a change of what is counted here is reason enough.
        `about` is how to meet this device.
        """
        state = cast(State, await self.hand.answer(self.peering, ReadState(self._next())))
        own = None if self.relays else await self._own_authors(state)
        others = {tag: each for tag, each in seen.items() if tag != self.tag}
        members = [numbers(others[tag].index.heads) if tag in others else {} for tag in map(self.keys.device, known)]
        everywhere = lowest([numbers(state.heads), *members]) if members else {}
        reach = highest(everywhere, await self._reach(state, others))
        anew = reason_to_begin_anew(
            self.index, state.heads, members=members, reach=reach, now=self.wall(), missing=self._missing >= MISSING_LOOKS
        )
        base, batches = ({}, ()) if self.index is None else without_acknowledged(self.index.base, self.index.batches, everywhere)
        if anew is not None or self._has_unsent(state, own, reach):
            kept = 0 if anew is not None else kept_batches(batches)
            if not kept:
                base = {author: seq for author, seq in everywhere.items() if own is None or author in own}
            batches = (*batches[:kept], *await self._new_batch(state, own, base, batches[:kept], reach))
        rows, ended = await self._asked(), await self._answers(state, others)
        told = {tag: refusals[:MOST_REFUSED] for tag, refusals in refused.items() if tag != self.tag}
        found = Index(0 if self.index is None else self.index.number, self.wall(), base, state.heads, batches, rows, ended, told, about)
        if not self._differs(found, acknowledge=acknowledge):
            await self._clean()
            return False
        await self._put_index(found)
        await self._clean()
        return True

    # -- what is to be told -----------------------------------------------------------------------------------

    async def _reach(self, state: State, others: Mapping[str, Seen]) -> Counted:
        """How far others come without this outbox. A device that may not relay counts on others for what isn't its own."""
        if not self.relays:
            return _known(state)
        owners = dict.fromkeys(await self.authors_of(self.member.device_id), self.tag)
        for tag, each in others.items():
            owners.update(dict.fromkeys(await self.authors_of(each.member.device_id), tag))
        outboxes = {tag: each.index.covers for tag, each in others.items() if each.relays and each.is_whole}
        return reach_of(outboxes, owners, self.tag)

    def _has_unsent(self, state: State, own: set[bytes] | None, reach: Counted) -> bool:
        if self._blocked is not None and (self._blocked.heads, self._blocked.held) == (state.heads, state.held):
            return False
        covered: Counted = {} if self.index is None else self.index.covers
        if self.relays:
            covered = highest(covered, reach)
        mine = {author: head for author, head in state.heads.items() if own is None or author in own}
        if any(head.seq > covered.get(author, 0) for author, head in mine.items()):
            return True
        held = {author: spans for author, spans in state.held.items() if own is None or author in own}
        return any(
            not self._loose.get(author, Spans()).covers(max(first, covered.get(author, 0) + 1), last)
            for author, spans in held.items()
            for first, last in spans
        )

    async def _own_authors(self, state: State) -> set[bytes]:
        request = ReadUnsent(self._next(), numbers(state.heads), {}, True, 1, 1, MAX_BYTES)
        page = cast(Page, await self.hand.answer(self.peering, request))
        return {*page.heads, state.author}

    async def _asked(self) -> tuple[RowId, ...]:
        """Rows held for long, of which others may know that they ended: a page at a time."""
        if self.now() - self._rows_at >= ROWS_EVERY:
            self._rows_at = self.now()
            page = cast(RowPage, await self.hand.answer(self.peering, ReadRows(self._next(), self._rows_after, MAX_ROWS)))
            self._rows, self._rows_after = page.rows, page.resume
        return self._rows

    async def _answers(self, state: State, others: Mapping[str, Seen]) -> tuple[RowId, ...]:
        """Those of the rows that others ask after which ended here."""
        asked = [each.index.rows for each in others.values() if each.index.rows] if self.relays else []
        question = (asked, state.heads)
        if question != self._answered:
            self._answered = question
            found: dict[RowId, None] = {}
            for rows in asked:
                ended = await self.hand.answer(self.peering, ReadEnded(self._next(), _ROUND, rows))
                found.update(dict.fromkeys(cast("tuple[RowId, ...]", ended)))
            self._ended = tuple(found)[:MAX_ROWS]
        return self._ended

    def _differs(self, found: Index, *, acknowledge: bool) -> bool:
        last = self.index
        if last is None:
            return True
        if (found.base, found.batches, found.rows, found.ended, found.refused, found.about) != (
            last.base, last.batches, last.rows, last.ended, last.refused, last.about
        ):  # fmt: skip
            return True
        return acknowledge and found.heads != last.heads

    # -- writing ----------------------------------------------------------------------------------------------

    async def _new_batch(
        self, state: State, own: set[bytes] | None, base: Counted, kept: tuple[Batch, ...], reach: Counted
    ) -> tuple[Batch, ...]:  # fmt: skip
        """The batch that follows those that are kept; none where it would say nothing."""
        counted = highest(base, *[numbers(batch.heads or {}) for batch in kept], *[batch.base for batch in kept])
        if kept and self.relays:
            counted = highest(counted, reach)
        if own is not None:
            others = {author: seq for author, seq in _known(state).items() if author not in own}
            counted = {author: seq for author, seq in counted.items() if author in own} | others
        batch = await self._read_batch(counted)
        self._blocked = state if batch.heads is None else None
        if not batch.parts and (batch.heads is None or not is_behind({a: Head(n, b"") for a, n in counted.items()}, batch.heads)):
            return ()
        return (batch,)

    async def _read_batch(self, counted: Counted) -> Batch:
        """Reads and puts every live write above `counted`, until one read transaction finds nothing more.

        Its base is where what lives below that ends: who counts so far lacks nothing that was left out.
        """
        held: dict[bytes, Spans] = {}
        parts = _Parts(self)
        falls: int | None = None
        while True:
            told = {author: tuple(spans) for author, spans in held.items()}
            request = ReadUnsent(self._next(), counted, told, not self.relays, PAGE, MAX_WRITES, MAX_BYTES, True)
            page = cast(Page, await self.hand.answer(self.peering, request))
            if falls is not None and page.falls != falls:
                raise WorldError("a head fell while mail was written; it is written again")
            falls = page.falls
            for message in page.messages:
                for author, seqs in numbers_of(message).items():
                    held.setdefault(author, Spans()).add_all(seqs)
                parts.messages += 1
                await parts.add(await self.hand.pack(Writes(_ROUND, _ROUND.session, parts.messages, message), deflate=True))
            for author, span in page.covered.items():
                held.setdefault(author, Spans()).add(*span)
            if page.rest != "more":
                break
        await parts.flush()
        heads = page.heads if page.rest == "nothing" else None
        for author, spans in held.items():
            spans.forget_to(max(counted.get(author, 0), heads[author].seq if heads and author in heads else 0))
        self._loose = {author: spans for author, spans in held.items() if spans}
        return Batch(page.reached, heads, tuple(parts.done), bool(self._loose))

    async def _put_index(self, found: Index) -> None:
        listed = [int(name[2:18], 16) for name in self._names if name.startswith(INDEX) and _is_hex(name[2:18])]
        number = 1 + max([found.number, *(each for each in listed if each < 1 << 62)])
        index = replace(found, number=number)
        name = f"{INDEX}{number:016x}-{self.random(4).hex()}"
        path = f"{self.keys.space}/{self.tag}/{name}"
        await self.place.put_mail(path, self.keys.seal(path, pack_index(index, name=path, signer=self.signer)))
        self.index, self.name = index, name
        self._names.add(name)

    async def _clean(self) -> None:
        """Removes what the index doesn't name any more."""
        if self.index is None:
            return
        needed = {self.name, *(part.name for batch in self.index.batches for part in batch.parts)}
        for name in sorted(name for name in self._names - needed if not name.startswith(LETTERS)):
            await self.place.delete_mail(f"{self.keys.space}/{self.tag}/{name}")
            self._names.discard(name)

    async def put_part(self, data: bytes) -> Part:
        """Puts a part of a batch."""
        name = f"{PART}{self.random(16).hex()}"
        path = f"{self.keys.space}/{self.tag}/{name}"
        sealed = self.keys.seal(path, data)
        await self.place.put_mail(path, sealed)
        self._names.add(name)
        return Part(name, len(sealed), blake3(sealed).digest())

    def _next(self) -> int:
        self._number += 1
        return self._number


@dataclass
class _Parts:
    """Messages on their way into parts."""

    outbox: Outbox
    messages: int = 0
    done: list[Part] = field(default_factory=list)
    _waiting: list[bytes] = field(default_factory=list)
    _size: int = 0

    async def add(self, message: bytes) -> None:
        self._waiting.append(message)
        self._size += len(message)
        if self._size >= PART_SIZE:
            await self.flush()

    async def flush(self) -> None:
        if self._waiting:
            if len(self.done) == MOST_PARTS:
                raise WorldError("there is more to write to the mailbox than it takes")
            self.done.append(await self.outbox.put_part(pack_part(self._waiting)))
            self._waiting, self._size = [], 0


def _known(state: State) -> Counted:
    """How far there is anything here of each author, counted or not."""
    return highest(numbers(state.heads), {author: spans.highest for author, spans in state.held.items()})


def _is_hex(text: str) -> bool:
    return len(text) == 16 and all(each in "0123456789abcdef" for each in text)
