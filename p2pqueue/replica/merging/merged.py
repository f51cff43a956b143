"""What came of a merge, and what do the functions of a replica take and give? Plain values, pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from p2pqueue.replica.stamp import Stamp


class Signer(Protocol):
    """Who writes here: `identity.Identity`, or a stand-in in tests."""

    @property
    def device_id(self) -> str:
        """32 hexadecimal digits."""
        ...

    @property
    def label(self) -> str:
        """The device's name for people."""
        ...

    @property
    def public_key(self) -> bytes:
        """The Ed25519 key that `sign` answers to."""
        ...

    def sign(self, body: bytes) -> bytes:
        """The signature over `body`."""
        ...


class Put(NamedTuple):
    """One local write for `Writer.put_many`.

    `values` is a map by the columns' wire names, or a tuple in declared order. Without a `generation` the row's
    life decides. `earliest` makes the first by the clocks win among equals.
    """

    key: str
    register: str
    values: Any
    generation: int | None = None
    rank: int = 0
    claim: int = 0
    earliest: bool = False


class RowRef(NamedTuple):
    """A row, named with its creating write."""

    table: str
    key: str
    author: bytes
    seq: int


@dataclass(frozen=True)
class Refused:
    """A write that was not taken, and why. A `lasting` refusal was set aside; the others may pass in a later round."""

    table: str
    key: str
    register: str
    stamp: Stamp
    seq: int
    reason: str
    lasting: bool = True

    @property
    def author(self) -> bytes:
        """Whose write it was."""
        return self.stamp.author


@dataclass(frozen=True)
class Merged:
    """What came of merging a batch.

    `applied` writes changed something; `counted` ones were outranked or known already; `ignored` ones lie at or
    below their author's head. `refused` ones (malformed, or their signature doesn't fit) end the sender's round;
    `set_aside` ones made SQLite fail here, are kept with their reason, and count as held. `forked`: the batch
    showed that this database had been copied or restored, and it goes on under a new author.
    """

    applied: int = 0
    counted: int = 0
    ignored: int = 0
    refused: tuple[Refused, ...] = ()
    set_aside: tuple[Refused, ...] = ()
    touched: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    forked: bool = False


@dataclass(frozen=True)
class Done:
    """The answer of one function among those that shared a transaction: its value, or what it raised."""

    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """The value; raises what the function raised."""
        if self.error is not None:
            raise self.error
        return self.value


def stamp_text(stamp: Stamp) -> str:
    """How a value names a stamp of its own row: "<hlc>:<author in hex>". A fork that reissues that write follows it."""
    return f"{stamp.hlc}:{stamp.author.hex()}"
