"""What have the other devices of the space written into the mailbox, and what of it is not here yet?

Indexes are read when their names are new, batches where something of them is neither counted nor merged. What doesn't
open, isn't signed by a member, or is no message, is left lying and told; nothing that lies there does any harm.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from blake3 import blake3

from p2pqueue.errors import MalformedMessage, PeerError
from p2pqueue.identity.members import Member
from p2pqueue.identity.roles import relays
from p2pqueue.payload.origins.objects import Listed
from p2pqueue.peers.mail.format import INDEX_LIMIT, PART_LIMIT, Admit, Batch, Counted, Index, MailKeys, Part, unpack_index, unpack_part
from p2pqueue.peers.mail.place import Hand, MailPlace
from p2pqueue.peers.mail.plan import countable, dominates, is_behind
from p2pqueue.replica.syncing.effects import (
    DropEnded,
    Merge,
    MoveHeads,
    Observe,
    Observed,
    ReadState,
    Recheck,
    State,
    Taken,
)
from p2pqueue.replica.syncing.messages import Refusal, RowId, Writes
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.write import Head

INDEX: Final = "i-"  # begins the names of indexes; the number follows in hexadecimal digits
PART: Final = "p-"
TRIES: Final = 3  # newest indexes of an outbox that are looked at at once, should the first be none
RETRY_FIRST: Final = 5.0  # seconds until a batch is tried again that could not be had or was refused; doubles
RETRY_LAST: Final = 600.0  # seconds
MISSING_LOOKS: Final = 3  # lists in which a part is missing before it counts as gone: a list may be late
MOST_OUTBOXES: Final = 1_000
_NAME = re.compile(r"p-[0-9a-f]{32}")


@dataclass(frozen=True)
class Seen:
    """The newest index of one outbox that was read here."""

    tag: str
    name: str  # of the index
    member: Member
    index: Index
    is_whole: bool = True  # all that the index names was listed lately

    @property
    def relays(self) -> bool:
        """Says whether it may pass on what others wrote."""
        return relays(self.member.role)


@dataclass
class _Trial:
    """A batch that could not be had, or was refused."""

    again_at: float
    pause: float
    heads: Mapping[bytes, Head]  # counted here then
    refused: tuple[Refusal, ...] = ()


@dataclass
class Inbox:
    """Reads what others put into the mailbox. `brought` hears whether a fork was seen, `dropped` of rows that ended elsewhere."""

    keys: MailKeys
    device_id: str
    admit: Admit
    place: MailPlace
    hand: Hand
    peering: Callable[[str, bool], Peering]
    authors_of: Callable[[str], Awaitable[set[bytes]]]
    now: Callable[[], float]
    brought: Callable[[bool], object] = lambda forked: None
    dropped: Callable[[tuple[RowId, ...]], object] = lambda rows: None
    seen: dict[str, Seen] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)  # by outbox, in words
    _bad: set[str] = field(default_factory=set)  # names of indexes that are none
    _observed: set[str] = field(default_factory=set)  # names of indexes whose heads were compared with what is known here
    _rechecked: set[tuple[bytes, int]] = field(default_factory=set)
    _merged: set[str] = field(default_factory=set)
    _trials: dict[str, _Trial] = field(default_factory=dict)
    _missing: dict[str, int] = field(default_factory=dict)  # by outbox: in how many lists on end a part of it was missing
    _falls: int = -1
    _number: int = 0

    # -- indexes ----------------------------------------------------------------------------------------------

    async def look(self, listed: Iterable[Listed]) -> bool:
        """Reads the indexes that are new; says whether there was one."""
        outboxes: dict[str, list[str]] = {}
        oversized: set[str] = set()
        for each in listed:
            _, tag, name = each.name.split("/")
            if name.startswith(INDEX) and each.size > INDEX_LIMIT:
                oversized.add(tag)
            else:
                outboxes.setdefault(tag, []).append(name)
        changed = False
        for tag, names in list(outboxes.items())[:MOST_OUTBOXES]:
            changed |= await self._look_into(tag, sorted((name for name in names if name.startswith(INDEX)), reverse=True))
            self._note_missing(tag, names)
        for tag in self.seen.keys() - outboxes.keys() - {self.keys.device(self.device_id)}:
            del self.seen[tag]
            changed = True
        self._bad &= {name for names in outboxes.values() for name in names}
        self._forget()
        self.troubles.update(dict.fromkeys(oversized, "an index of a mailbox that is larger than any may be"))
        return changed

    async def _look_into(self, tag: str, names: Sequence[str]) -> bool:
        known = self.seen.get(tag)
        for name in [each for each in names if each not in self._bad][:TRIES]:
            if known is not None and name <= known.name:
                return False
            path = f"{self.keys.space}/{tag}/{name}"
            sealed = await self.place.get_mail(path, limit=INDEX_LIMIT)
            if sealed is None:
                continue  # replaced meanwhile
            try:
                index, member = unpack_index(self.keys.open(path, sealed), name=path, admit=self.admit)
                if self.keys.device(member.device_id) != tag:
                    raise MalformedMessage("an index that lies in the outbox of another device")
            except PeerError as error:
                self._bad.add(name)
                self.troubles[tag] = str(error)
                continue
            self.seen[tag] = Seen(tag, name, member, index)
            self.troubles.pop(tag, None)
            return True
        return False

    def _forget(self) -> None:
        """Forgets what was remembered of indexes and batches that are not there any more."""
        names = {seen.name for seen in self.seen.values()}
        self._observed &= names | {_ended(name) for name in names}
        batches = {_id(batch) for seen in self.seen.values() for batch in seen.index.batches}
        self._merged &= batches
        self._trials = {name: trial for name, trial in self._trials.items() if name in batches}
        self.troubles = {tag: words for tag, words in self.troubles.items() if tag in self.seen or self._bad}

    def _note_missing(self, tag: str, names: Sequence[str]) -> None:
        seen = self.seen.get(tag)
        if seen is None:
            return
        is_whole = all(part.name in names for batch in seen.index.batches for part in batch.parts)
        self._missing[tag] = 0 if is_whole else self._missing.get(tag, 0) + 1
        if seen.is_whole != (self._missing[tag] < MISSING_LOOKS):
            self.seen[tag] = replace(seen, is_whole=not seen.is_whole)

    def posted(self, tag: str, name: str, member: Member, index: Index) -> None:
        """This device has put an index there."""
        self.seen[tag] = Seen(tag, name, member, index)
        self._observed.add(name)
        self._merged.update(map(_id, index.batches))

    # -- batches ----------------------------------------------------------------------------------------------

    async def take(self) -> bool:
        """Merges what is new, and counts what may be counted; says whether anything came."""
        state = await self._state()
        for seen in list(self.seen.values()):
            if seen.name not in self._observed:
                state = await self._observe(seen, state)
        came = False
        for all_of_them in (False, True):  # first what can be counted at once: much of the rest is known then
            while await self._pass(all_of_them):
                came = True
        await self._drop_ended()
        return came

    @property
    def refused(self) -> dict[str, tuple[Refusal, ...]]:
        """What of each outbox was not taken in."""
        found: dict[str, tuple[Refusal, ...]] = {}
        for seen in self.seen.values():
            trials = [self._trials[_id(batch)] for batch in seen.index.batches if _id(batch) in self._trials]
            told = tuple(refusal for trial in trials for refusal in trial.refused)
            if told:
                found[seen.tag] = told
        return found

    async def _pass(self, all_of_them: bool) -> bool:
        came = False
        state = await self._state()
        for seen in list(self.seen.values()):
            for batch in seen.index.batches:
                if self._is_had(batch, state.heads):
                    continue
                at_once = batch.heads is not None and dominates(state.heads, batch.base)
                if _id(batch) not in self._merged:
                    if not (at_once or all_of_them) or not self._is_due(batch, state) or not await self._merge(seen, batch, state):
                        continue
                    came = True
                    state = await self._state()
        return await self._count() or came

    def _is_had(self, batch: Batch, heads: Mapping[bytes, Head]) -> bool:
        if _id(batch) in self._merged:
            return batch.heads is None or not is_behind(heads, batch.heads)
        return batch.heads is not None and not batch.loose and not is_behind(heads, batch.heads)

    def _is_due(self, batch: Batch, state: State) -> bool:
        trial = self._trials.get(_id(batch))
        return trial is None or self.now() >= trial.again_at or (bool(trial.refused) and trial.heads != state.heads)

    async def _merge(self, seen: Seen, batch: Batch, state: State) -> bool:
        """Merges a batch whole; says whether it could be had and all of it was taken."""
        peering = self.peering(seen.member.device_id, seen.relays)
        refusals: list[Refusal] = []
        try:
            for part in batch.parts:
                for message in await self._read(seen, part):
                    taken = cast(Taken, await self.hand.answer(peering, Merge(self._next(), message.writes)))
                    refusals += taken.refusals
                    self.brought(taken.forked)
        except (PeerError, _NotThere) as error:
            self._put_off(batch, state, ())
            self.troubles[seen.tag] = str(error)
            return False
        if refusals:
            self._put_off(batch, state, tuple(refusals))
            self.troubles[seen.tag] = f"{len(refusals)} writes were refused: {refusals[0].reason}"
            return False
        self._trials.pop(_id(batch), None)
        self.troubles.pop(seen.tag, None)
        self._merged.add(_id(batch))
        return True

    async def _read(self, seen: Seen, part: Part) -> list[Writes]:
        if not _NAME.fullmatch(part.name):
            raise MalformedMessage("a part of a mailbox with a name that is none")
        path = f"{self.keys.space}/{seen.tag}/{part.name}"
        sealed = await self.place.get_mail(path, limit=PART_LIMIT)
        if sealed is None or blake3(sealed).digest() != part.digest:
            raise _NotThere("a part of its outbox is not there, or not whole; it is looked for again")
        messages: list[Writes] = []
        for data in unpack_part(self.keys.open(path, sealed)):
            message = await self.hand.read(data)
            if not isinstance(message, Writes):
                raise MalformedMessage("mail that holds no writes")
            messages.append(message)
        return messages

    def _put_off(self, batch: Batch, state: State, refused: tuple[Refusal, ...]) -> None:
        last = self._trials.get(_id(batch))
        pause = RETRY_FIRST if last is None else min(2 * last.pause, RETRY_LAST)
        self._trials[_id(batch)] = _Trial(self.now() + pause, pause, state.heads, refused)

    async def _count(self) -> bool:
        """Moves heads to what may be counted by all that is merged; says whether they moved."""
        state = await self._state()
        merged: list[Batch] = []
        told: list[tuple[Counted, Mapping[bytes, Head]]] = []
        for seen in self.seen.values():
            if seen.member.device_id == self.device_id:
                continue  # what it says of our own heads may be of before a fork
            for batch in seen.index.batches:
                if batch.heads is not None and _id(batch) in self._merged and is_behind(state.heads, batch.heads):
                    authors = None if seen.relays else await self.authors_of(seen.member.device_id)
                    told.append((batch.base, {a: head for a, head in batch.heads.items() if authors is None or a in authors}))
                    merged.append(batch)
        heads = countable(state.heads, told)
        if not heads:
            return False
        answer = await self.hand.answer(self.peering(self.device_id, True), MoveHeads(self._next(), heads, state.falls))
        refused = cast("tuple[Refusal, ...] | None", answer)
        for batch in merged if refused else ():
            self._merged.discard(_id(batch))
            self._put_off(batch, state, refused or ())
        self.brought(False)
        return refused == ()  # None: a head fell, and what was merged before is merged again

    # -- the rest ---------------------------------------------------------------------------------------------

    async def _state(self) -> State:
        state = cast(State, await self.hand.answer(self.peering(self.device_id, True), ReadState(self._next())))
        if state.falls != self._falls:  # a batch that was merged before says nothing any more
            self._falls = state.falls
            self._merged.clear()
        return state

    async def _observe(self, seen: Seen, state: State) -> State:
        """Compares what a device knows of this one's writes with what was written here: a copied database is found so."""
        own = seen.member.device_id == self.device_id
        peering = self.peering(seen.member.device_id, seen.relays)
        observed = cast(Observed, await self.hand.answer(peering, Observe(self._next(), seen.index.heads, {}, {}, not own)))
        self._observed.add(seen.name)
        told = seen.index.refused.get(self.keys.device(self.device_id), ())
        told = tuple(each for each in told if (each.author, each.seq) not in self._rechecked)
        if told and not own:
            self._rechecked.update((each.author, each.seq) for each in told)
            await self.hand.answer(peering, Recheck(self._next(), told))
        if not observed.forked:
            return state
        self.brought(True)
        return await self._state()

    async def _drop_ended(self) -> None:
        """Drops rows that ended while this device was away for long, as others tell."""
        state = await self._state()
        for seen in list(self.seen.values()):
            own = seen.member.device_id == self.device_id
            mark = _ended(seen.name)
            if own or not seen.relays or not seen.index.ended or mark in self._observed or not dominates(state.heads, seen.index.covers):
                continue
            self._observed.add(mark)
            await self.hand.answer(self.peering(seen.member.device_id, True), DropEnded(self._next(), seen.index.ended, state.falls))
            self.dropped(seen.index.ended)

    def _next(self) -> int:
        self._number += 1
        return self._number


class _NotThere(Exception):
    pass


def _ended(name: str) -> str:
    """Under what it is remembered that the ended rows of an index were dropped."""
    return f"ended {name}"


def _id(batch: Batch) -> str:
    """What tells a batch from all others: its parts, or what it says where it has none."""
    if batch.parts:
        return batch.parts[0].name
    heads = sorted((batch.heads or {}).items())
    return f"{heads} {sorted(batch.base.items())}"
