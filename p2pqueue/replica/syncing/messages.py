"""What do two replicas say to one another? Pure; `codec` gives the wire form.

A *round* carries one side's missing writes to it. The side that receives opens it: `Heads` says what it
counts and holds; `Writes` follow, each answered by an `Ack` once durable; `Done` moves its heads. Rounds of
both directions run side by side. `RoundId` names the receiver's session and counts its rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from p2pqueue.replica.spans import Spans
from p2pqueue.replica.write import Head, Write

MAX_WRITES = 400  # writes in one message: with 200 a cold sync took an eighth more of the processor
MAX_BYTES = 112 * 1024  # bytes of writes in one message, unless it is one larger write
MAX_MENDED = 200  # writes in one message that mends, whose bytes nobody counts
MAX_RUNS = 16_000  # runs of held numbers told for one author; the rest is sent again, which does no harm
HELD_BYTES = 128 * 1024  # that all of them take in a message, about
MAX_AUTHORS = 4_096  # authors named in one message
MAX_ROWS = 500  # rows named in one message
MAX_MARKS = 500  # marks of held writes in one message
MAX_TABLES = 64  # tables in one digest
BUCKETS = 128  # buckets of the digest of a table
HASH_BYTES = 8  # bytes of the digest of one bucket


class RoundId(NamedTuple):
    """The nonce of the receiver's session, and the number of its round."""

    session: bytes
    number: int


class RowId(NamedTuple):
    """A row and its creating write."""

    table: str
    key: str
    author: bytes
    seq: int


class Bucket(NamedTuple):
    """A bucket of the keys of one table."""

    table: str
    number: int


class Refusal(NamedTuple):
    """A write that was not taken in, and why."""

    author: bytes
    seq: int
    reason: str


Marks = Mapping[bytes, Mapping[int, int]]  # by author and number: the mark of a write


@dataclass(frozen=True)
class Heads:
    """Opens a round, or (with the number of the round that is open) tells how far its sender has come.

    `serving` is the round of the other side that the sender serves; None asks for that side's heads. `marks` are
    of the writes held under the receiver's own authors, by number: heads have tags, held numbers need something
    of the kind for a forked author to see that they aren't its own. `inflates`: writes may come deflated.
    """

    round: RoundId
    serving: RoundId | None
    heads: Mapping[bytes, Head]
    held: Mapping[bytes, Spans] = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    inflates: bool = True


@dataclass(frozen=True)
class Writes:
    """The `index`-th message of writes in a round, counted from 1. `session` is the sender's own."""

    round: RoundId
    session: bytes
    index: int
    writes: Sequence[Write]


@dataclass(frozen=True)
class Ack:
    """These messages of the round are durable here."""

    round: RoundId
    indexes: Spans


@dataclass(frozen=True)
class Done:
    """Messages 1 to `count` of the round hold all that was missing below `heads`."""

    round: RoundId
    session: bytes
    count: int
    heads: Mapping[bytes, Head]


@dataclass(frozen=True)
class Refused:
    """These writes of the round were refused: it ends for both sides."""

    round: RoundId
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class Again:
    """The sender can't finish this round (a head of its own fell); open another."""

    round: RoundId


@dataclass(frozen=True)
class Rows:
    """Live rows that the sender has held for more than a day: have any of them ended?"""

    round: RoundId
    rows: tuple[RowId, ...]


@dataclass(frozen=True)
class Ended:
    """Of the rows asked after, those whose creating write is counted here and which are no longer here.

    `unasked`: nobody asked, the sender has just learned it from another peer.
    """

    round: RoundId
    rows: tuple[RowId, ...]
    unasked: bool = False


@dataclass(frozen=True)
class Digest:
    """The digests of each table's buckets, taken in one read transaction at these heads.

    `held` is a hash of the numbers held above them: what an author that died left half sent stays loose for ever.
    """

    heads: Mapping[bytes, Head]
    held: bytes
    buckets: Mapping[str, bytes]


@dataclass(frozen=True)
class Mend:
    """A page of the writes of one bucket; `answer` if it replies to the other's page.

    The other side merges them, answers with what it has above them, and asks for the next page by `resume`.
    """

    bucket: Bucket
    writes: Sequence[Write]
    answer: bool = False
    resume: str | None = None


@dataclass(frozen=True)
class More:
    """Asks for the writes of a bucket, from behind a key on (None: from its beginning)."""

    bucket: Bucket
    after: str | None = None


Message = Heads | Writes | Ack | Done | Refused | Again | Rows | Ended | Digest | Mend | More


def write_size(write: Write) -> int:
    """About how many bytes a write takes in a message, rather more than less."""
    _, key, _, _, _, values, body, signature, _ = write
    if body is not None:
        return 64 + len(key) + len(body) + len(signature or b"")
    size = 64 + len(key) + 9 * len(values)
    for value in values:
        if value is None:
            continue
        if isinstance(value, str):
            size += len(value) if value.isascii() else 4 * len(value)
        elif isinstance(value, bytes):
            size += len(value)
    return size
