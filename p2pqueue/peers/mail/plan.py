"""What has to be written into an outbox anew, and from where on?

An outbox need not repeat what lies in another: a new batch begins above both. Lest two outboxes each leave to the other
what then lies in neither, those that hold an author's writes stand in one order, his own device's first, and each
leaves out only what stands in one before it. Should that vanish, what rested on it is written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from p2pqueue.peers.mail.format import MOST_BATCHES, Batch, Counted, Index
from p2pqueue.replica.write import Head

REFRESH_AFTER: Final = 7 * 86_400_000  # milliseconds after which an outbox is written anew, so that it never looks abandoned
SMALL = 4 * 1024  # bytes that a new batch is taken to have


def dominates(heads: Mapping[bytes, Head], base: Counted) -> bool:
    """Says whether all of `base` is counted by these heads."""
    return all(author in heads and heads[author].seq >= seq for author, seq in base.items() if seq)


def is_behind(heads: Mapping[bytes, Head], others: Mapping[bytes, Head]) -> bool:
    """Says whether the others count something that these heads don't."""
    return any(author not in heads or heads[author].seq < head.seq for author, head in others.items())


def numbers(heads: Mapping[bytes, Head]) -> dict[bytes, int]:
    """Heads without their tags."""
    return {author: head.seq for author, head in heads.items()}


def highest(*counted: Counted) -> dict[bytes, int]:
    """The highest number of each author."""
    found: dict[bytes, int] = {}
    for each in counted:
        for author, seq in each.items():
            found[author] = max(seq, found.get(author, 0))
    return found


def lowest(counted: Sequence[Counted]) -> dict[bytes, int]:
    """What all of them count; nothing where there are none."""
    if not counted:
        return {}
    return {author: seq for author in counted[0] if (seq := min(each.get(author, 0) for each in counted))}


def countable(heads: Mapping[bytes, Head], merged: Sequence[tuple[Counted, Mapping[bytes, Head]]]) -> dict[bytes, Head]:
    """The heads that may be counted above these, once batches with such bases and heads are merged.

    Of each author the batches must follow one another without a gap, up from what is counted; and the base of each must
    lie within what is counted in the end. Then a write below those heads is here, or what outranks it is, or that is
    outranked in its turn, and so on up to one that was sent. Two devices may so rest on one another.
    """
    left = list(merged)
    while True:
        found = dict(heads)
        grows = True
        while grows:
            grows = False
            for base, told in left:
                for author, head in told.items():
                    reached = found[author].seq if author in found else 0
                    if base.get(author, 0) <= reached < head.seq:
                        found[author] = head
                        grows = True
        resting = [(base, told) for base, told in left if dominates(found, base)]
        if len(resting) == len(left):
            return {author: head for author, head in found.items() if heads.get(author) != head}
        left = resting


def reach_of(outboxes: Mapping[str, Counted], owners: Mapping[bytes, str], own: str) -> dict[bytes, int]:
    """How far anybody comes, of each author, by the outboxes before the own one. `owners` names that of each author's device."""
    found: dict[bytes, int] = {}
    for tag, covers in outboxes.items():
        for author, seq in covers.items():
            first = owners.get(author)
            if first != own and (tag == first or tag < own):
                found[author] = max(seq, found.get(author, 0))
    return found


def reason_to_begin_anew(
    index: Index | None, heads: Mapping[bytes, Head], *, members: Iterable[Counted], reach: Counted, now: int, missing: bool
) -> str | None:
    """Why an outbox can't go on as it is, in words; None where it can.

    `members` is what each other device counts as far as is known; `missing`: a part of the outbox isn't listed any more.
    """
    if index is None:
        return "there is none yet"
    if missing:
        return "parts of it are gone"
    covers = index.covers
    if any(author not in heads or heads[author].seq < seq for author, seq in covers.items()):
        return "a head fell"
    if any(each.get(author, 0) < seq for each in members for author, seq in index.base.items()):
        return "a device lacks what lies below it"
    if not _rests_on(index, reach):
        return "another outbox on which it rested is gone"
    if index.batches and not 0 <= now - index.at < REFRESH_AFTER:
        return "it is old"
    return None


def _rests_on(index: Index, reach: Counted) -> bool:
    """Says whether whoever counts up to the base of an outbox can count all of it, with what `reach` says."""
    known = highest(index.base, reach)
    for batch in index.batches:
        if any(known.get(author, 0) < seq for author, seq in batch.base.items()):
            return False
        known = highest(known, numbers(batch.heads or {}))
    return True


def without_acknowledged(base: Counted, batches: Sequence[Batch], everywhere: Counted) -> tuple[Counted, tuple[Batch, ...]]:
    """An outbox without its first batches that everybody counts, and its base then."""
    left = list(batches)
    while left and left[0].heads is not None and not left[0].loose:
        told = numbers(left[0].heads)
        if any(everywhere.get(author, 0) < seq for author, seq in told.items()):
            break
        base = highest(base, told)
        left.pop(0)
    return base, tuple(left)


def kept_batches(batches: Sequence[Batch]) -> int:
    """How many batches stay when another is added; those behind are written again together with it.

    Sizes fall by halves, so that there are few, and each write is written again a few times at most.
    """
    total = SMALL
    for kept in range(len(batches), 0, -1):
        if batches[kept - 1].size > 2 * total and kept < MOST_BATCHES and batches[kept - 1].heads is not None:
            return kept
        total += batches[kept - 1].size
    return 0
