"""What does a replication session want done, and what does it want to know?

A `Session` returns effects: messages to send, and requests to its replica, whose answers come back through
`Session.answered`. `peering` carries them out. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from p2pqueue.replica.spans import Span, Spans
from p2pqueue.replica.syncing.messages import Bucket, Marks, Message, Refusal, RoundId, RowId
from p2pqueue.replica.write import Head, Write


@dataclass(frozen=True)
class Send:
    """Send this message to the peer."""

    message: Message


@dataclass(frozen=True)
class Report:
    """Something to count, log and show: what, and about what."""

    kind: Literal["fork", "twin", "digest", "refused", "refused there", "set aside", "flood"]
    detail: str


@dataclass(frozen=True)
class ReadState:
    """Read, in one transaction, what is counted and held here."""

    number: int


@dataclass(frozen=True)
class State:
    """Answers `ReadState`: `falls` counts how often a head of this replica fell."""

    author: bytes
    heads: Mapping[bytes, Head]
    held: Mapping[bytes, Spans]
    falls: int
    marks: Marks = field(default_factory=dict)  # of what is held under the peer's authors


@dataclass(frozen=True)
class ReadUnsent:
    """Read live writes that the peer neither counts nor holds, newest first, with the heads of the same transaction.

    With `own_only` this device may not relay: only writes of its own authors are given out, but what it may
    not give out counts as unsent.
    """

    number: int
    counted: Mapping[bytes, int]
    held: Mapping[bytes, tuple[Span, ...]]
    own_only: bool
    messages: int
    max_writes: int  # in a message
    max_bytes: int  # in a message
    reached: bool = False  # tell what lives at or below `counted` too


@dataclass(frozen=True)
class Page:
    """Answers `ReadUnsent`, by the writes of so many messages.

    `rest` says what is left beyond these: nothing, more to send, or only what may not be relayed. `covered` are numbers of
    which nothing is unsent beside these writes: what is not among them there was not live any more. `reached`, where it was
    asked for, is of each author the highest number of a live write that the peer counts.
    """

    messages: tuple[Sequence[Write], ...]
    rest: Literal["nothing", "more", "not ours to relay"]
    heads: Mapping[bytes, Head]
    falls: int
    covered: Mapping[bytes, Span] = field(default_factory=dict)
    reached: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """Merge a peer's writes; durable when answered. No head moves."""

    number: int
    writes: Sequence[Write]
    repair: bool = False


@dataclass(frozen=True)
class Taken:
    """Answers `Merge`: what was refused; what made this node fail, was set aside and counts as held; whether a fork was seen."""

    refusals: tuple[Refusal, ...] = ()
    set_aside: tuple[Refusal, ...] = ()
    forked: bool = False


@dataclass(frozen=True)
class MoveHeads:
    """Move heads to the maximum of what they are and these.

    Answered by None if a head fell since `falls` was read, else by the signed writes of the round that don't hold
    (then nothing moved), () once moved.
    """

    number: int
    heads: Mapping[bytes, Head]
    falls: int


@dataclass(frozen=True)
class Observe:
    """Compare what the peer knows of this replica's own author with what it wrote, before it is served.

    If `record`, the acknowledgement is noted.
    """

    number: int
    heads: Mapping[bytes, Head]
    held: Mapping[bytes, Spans]
    marks: Marks
    record: bool


@dataclass(frozen=True)
class Observed:
    """Answers `Observe`: what is counted here, and whether the peer knows what was never written here: a fork."""

    heads: Mapping[bytes, Head]
    forked: bool


@dataclass(frozen=True)
class Recheck:
    """The peer refused these: check them here; set aside what fails, write anew what is our own."""

    number: int
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class ReadRows:
    """Read live rows held for more than a day, from behind a row on."""

    number: int
    after: tuple[str, str] | None
    limit: int


@dataclass(frozen=True)
class RowPage:
    """Answers `ReadRows`; `resume` is None at the end."""

    rows: tuple[RowId, ...]
    resume: tuple[str, str] | None


@dataclass(frozen=True)
class ReadEnded:
    """Read which of these rows have ended: their creating write is counted here, and they are not here."""

    number: int
    round: RoundId
    rows: tuple[RowId, ...]
    unasked: bool = False


@dataclass(frozen=True)
class DropEnded:
    """Drop these rows, where their creating write is still that one."""

    number: int
    rows: tuple[RowId, ...]
    falls: int


@dataclass(frozen=True)
class ReadDigest:
    """Read the digest of all buckets."""

    number: int


@dataclass(frozen=True)
class DigestRead:
    """Answers `ReadDigest`."""

    heads: Mapping[bytes, Head]
    held: Mapping[bytes, Spans]
    buckets: Mapping[str, bytes]


@dataclass(frozen=True)
class ReadBucket:
    """Read a page of the writes of a bucket, from behind a key on."""

    number: int
    bucket: Bucket
    after: str | None


@dataclass(frozen=True)
class BucketPage:
    """Answers `ReadBucket`; `resume` is None at the end."""

    writes: tuple[Write, ...]
    resume: str | None


@dataclass(frozen=True)
class ReadGreater:
    """Read the registers of the rows of these writes that stand above them, or that they don't name."""

    number: int
    bucket: Bucket
    writes: Sequence[Write] = field(repr=False)


Request = (
    ReadState
    | ReadUnsent
    | Merge
    | MoveHeads
    | Observe
    | Recheck
    | ReadRows
    | ReadEnded
    | DropEnded
    | ReadDigest
    | ReadBucket
    | ReadGreater
)
Effect = Send | Report | Request
Answer = (
    State
    | Page
    | Taken
    | Observed
    | RowPage
    | DigestRead
    | BucketPage
    | tuple[RowId, ...]
    | tuple[Write, ...]
    | tuple[Refusal, ...]
    | bool
    | None
)
