"""What lies in a mailbox, and who may have put it there? Sealed for the space, signed by the device.

Theory of operation. Each device has an outbox, `mail/<space>/<device>/…`; both names are hashes under a key of the
space. In it lie *batches* of writes, and an *index* that names them. Nothing is ever changed: what is new has a new
name, and the index with the highest number counts.

A batch holds, of one read transaction of its author's replica, every live write above its `base`; `heads` are those of
that transaction. So whoever counts everything up to `base` and has merged the batch includes everything up to `heads`,
or what outranks it, and may move its heads there: a batch is a round of `replica.sync` whose `done` lies beside it. A
receiver that lacks something below `base` merges it all the same, and moves its heads once it has that from elsewhere.

What others have told in their own indexes counts as acknowledged: below the least that anybody counts, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import nacl.bindings
from blake3 import blake3
from nacl.exceptions import CryptoError

from p2pqueue import wire
from p2pqueue.errors import BadSignature, MalformedMessage
from p2pqueue.identity.certificate import verify
from p2pqueue.identity.members import Member
from p2pqueue.identity.members import Refusal as NotAdmitted
from p2pqueue.replica.syncing.messages import MAX_AUTHORS, MAX_ROWS, Refusal, RowId
from p2pqueue.replica.wire.fields import read_bytes, read_list, read_number, read_text
from p2pqueue.replica.write import Head

VERSION: Final = 1
PART_SIZE: Final = 1024 * 1024  # bytes of messages from which on a batch goes on in another object
PART_LIMIT: Final = PART_SIZE + 2 * wire.MESSAGE_LIMIT  # bytes of an object that is read at all
INDEX_LIMIT: Final = wire.MESSAGE_LIMIT + 1024
MOST_BATCHES: Final = 64  # in one outbox
MOST_PARTS: Final = 1024  # of one batch: 1 GiB
MOST_REFUSED: Final = 100  # writes that are named to their sender
_WHAT: Final = b"p2pqueue mail 1"
_NONCE: Final = 24
_LENGTH: Final = 4  # bytes before each message in a part
ABOUT_LIMIT: Final = 2048  # bytes that a device tells of how to meet it
_REASON: Final = 200  # characters

_seal = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt
_open = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_decrypt
Admit = Callable[[list[bytes]], Member | NotAdmitted]
Counted = Mapping[bytes, int]  # of each author


class MailSigner(Protocol):
    """What is needed of `identity.keys.Identity`."""

    @property
    def chain(self) -> tuple[bytes, ...]: ...  # noqa: D102
    def sign(self, body: bytes) -> bytes: ...  # noqa: D102


class MailKeys:
    """The key of a space's mail, and the names that it gives. The random numbers of nonces come from `random`."""

    def __init__(self, space_key: bytes, random: Callable[[int], bytes]) -> None:
        self._key = blake3(_WHAT, key=space_key).digest()
        self._random = random
        self.space = self._tag(b"space")

    def device(self, device_id: str) -> str:
        """How the outbox of a device is called."""
        return self._tag(b"device " + device_id.encode())

    def between(self, sender: str, receiver: str) -> str:
        """How what one device has for another is called in its outbox, by the names of both outboxes."""
        return self._tag(b"from " + sender.encode() + b" to " + receiver.encode())[:16]

    def seal(self, name: str, plain: bytes) -> bytes:
        """What lies under a name."""
        nonce = self._random(_NONCE)
        return bytes(nonce + _seal(plain, _WHAT + name.encode(), nonce, self._key))

    def open(self, name: str, sealed: bytes) -> bytes:
        """What was sealed for that name. Raises `MalformedMessage`."""
        if len(sealed) < _NONCE:
            raise MalformedMessage("too short for mail")
        try:
            return bytes(_open(sealed[_NONCE:], _WHAT + name.encode(), sealed[:_NONCE], self._key))
        except (CryptoError, ValueError):
            raise MalformedMessage("mail that doesn't open: it is of another space, or was changed") from None

    def _tag(self, what: bytes) -> str:
        return str(blake3(what, key=self._key).hexdigest()[:32])


class Part(NamedTuple):
    """An object with some messages of a batch; `digest` is that of its sealed bytes."""

    name: str
    size: int
    digest: bytes


@dataclass(frozen=True)
class Batch:
    """Every live write above `base`. `heads` is None where nothing may be concluded. `loose`: some lie above the heads."""

    base: Counted
    heads: Mapping[bytes, Head] | None
    parts: tuple[Part, ...]
    loose: bool = False

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True)
class Index:
    """What a device tells of its outbox and of itself. Times in milliseconds UTC.

    Whoever counts up to `base` and has merged the batches lacks nothing; `heads` is what the device counted as it wrote
    this. `rows` are those of which it asks whether they ended, `ended` its answers; `refused` names to a device (by its
    outbox) writes of it that were not taken in. `about` is how to meet it, as `telling` has it.
    """

    number: int
    at: int
    base: Counted
    heads: Mapping[bytes, Head]
    batches: tuple[Batch, ...] = ()
    rows: tuple[RowId, ...] = ()
    ended: tuple[RowId, ...] = ()
    refused: Mapping[str, tuple[Refusal, ...]] = field(default_factory=dict)
    about: bytes = b""

    @property
    def covers(self) -> Counted:
        """Up to where somebody who has read all of it counts."""
        found = dict(self.base)
        for batch in self.batches:
            for author, head in (batch.heads or {}).items():
                found[author] = max(head.seq, found.get(author, 0))
        return found


def pack_index(index: Index, *, name: str, signer: MailSigner) -> bytes:
    """The bytes of an index, signed for that name. Raises `ArgumentError` where it is beyond all limits."""
    body = wire.pack(
        {
            "n": index.number, "t": index.at, "l": dict(index.base), "h": _packed_heads(index.heads),
            "b": [_packed_batch(batch) for batch in index.batches], "r": [tuple(row) for row in index.rows],
            "e": [tuple(row) for row in index.ended], "x": {tag: [tuple(each) for each in told] for tag, told in index.refused.items()},
            "a": index.about,
        }
    )  # fmt: skip
    return wire.pack({"v": VERSION, "c": list(signer.chain), "b": body, "s": signer.sign(_signed(name, body))})


def unpack_index(data: bytes, *, name: str, admit: Admit) -> tuple[Index, Member]:
    """An index, and who signed it. Raises `MalformedMessage`, and `BadSignature` also for a device that isn't admitted."""
    fields = wire.unpack(data, limit=INDEX_LIMIT)
    if not isinstance(fields, dict) or fields.get("v") != VERSION:
        raise MalformedMessage("an index of a mailbox in a form that this version doesn't know")
    chain, body, signature = fields.get("c"), fields.get("b"), fields.get("s")
    if not isinstance(chain, list) or not all(isinstance(each, bytes) for each in chain):
        raise MalformedMessage("an index of a mailbox that is none")
    if not isinstance(body, bytes) or not isinstance(signature, bytes):
        raise MalformedMessage("an index of a mailbox that is none")
    member = admit(chain)
    if isinstance(member, NotAdmitted):
        raise BadSignature(f"a mailbox is not read: {member.words}")
    if not verify(member.public_key, _signed(name, body), signature):
        raise BadSignature("an index of a mailbox whose signature doesn't fit")
    try:
        return _read_index(wire.unpack(body)), member
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedMessage(f"an index of a mailbox that is none: {type(error).__name__} {error}") from error


def pack_part(messages: Iterable[bytes]) -> bytes:
    """The messages of a part, one behind the other."""
    return b"".join(len(each).to_bytes(_LENGTH, "big") + each for each in messages)


def unpack_part(data: bytes) -> list[bytes]:
    """What `pack_part` packed. Raises `MalformedMessage`."""
    found, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + _LENGTH], "big")
        place += _LENGTH + size
        if size > wire.MESSAGE_LIMIT or place > len(data):
            raise MalformedMessage("a part of a mailbox that is cut short")
        found.append(data[place - size : place])
    return found


# --- inside -----------------------------------------------------------------------------------------------------


def _signed(name: str, body: bytes) -> bytes:
    return _WHAT + b" index " + name.encode() + b"\0" + body


def _packed_heads(heads: Mapping[bytes, Head]) -> list[Any]:
    return [(author, *head) for author, head in heads.items()]


def _packed_batch(batch: Batch) -> list[Any]:
    heads = None if batch.heads is None else _packed_heads(batch.heads)
    return [dict(batch.base), heads, [tuple(part) for part in batch.parts], batch.loose]


def _read_index(raw: Mapping[str, Any]) -> Index:
    refused = {read_text(tag, 32): tuple(_refusal(each) for each in read_list(told, MOST_REFUSED)) for tag, told in raw["x"].items()}
    about = raw.get("a")
    return Index(
        read_number(raw["n"]), read_number(raw["t"]), _counted(raw["l"]), _heads(raw["h"]),
        tuple(_batch(each) for each in read_list(raw["b"], MOST_BATCHES)),
        tuple(_row(each) for each in read_list(raw["r"], MAX_ROWS)), tuple(_row(each) for each in read_list(raw["e"], MAX_ROWS)),
        refused, about if isinstance(about, bytes) and len(about) <= ABOUT_LIMIT else b"",
    )  # fmt: skip


def _batch(raw: Any) -> Batch:
    base, heads, parts, loose, *_ = raw
    found = tuple(
        Part(read_text(name, 200), read_number(size), read_bytes(digest, 32)) for name, size, digest, *_ in read_list(parts, MOST_PARTS)
    )
    return Batch(_counted(base), None if heads is None else _heads(heads), found, bool(loose))


def _heads(raw: Any) -> dict[bytes, Head]:
    return {read_bytes(author, 16): Head(read_number(seq), read_bytes(tag, 0, 64)) for author, seq, tag in read_list(raw, MAX_AUTHORS)}


def _counted(raw: Any) -> dict[bytes, int]:
    if not isinstance(raw, dict) or len(raw) > MAX_AUTHORS:
        raise ValueError("not a map of authors")
    return {read_bytes(author, 16): read_number(seq) for author, seq in raw.items()}


def _row(raw: Sequence[Any]) -> RowId:
    table, key, author, seq, *_ = raw
    return RowId(read_text(table, 200), read_text(key, 1024), read_bytes(author, 16), read_number(seq))


def _refusal(raw: Sequence[Any]) -> Refusal:
    author, seq, reason, *_ = raw
    return Refusal(read_bytes(author, 16), read_number(seq), str(reason)[:_REASON])
