"""What the tests of the replica stand on: devices of one space, their replicas, and a clock that stands still."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from p2pqueue.clock import COUNTER_BITS
from p2pqueue.identity.certificate import device_id, issue
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.statements import Shape
from p2pqueue.replica.syncing.effects import Page, ReadUnsent
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.tables import Column, Derived, Register, Table
from p2pqueue.replica.write import Write
from p2pqueue.replica.writer import Writer

NOW = 1_800_000_000_000
DAY = 86_400_000

CLIPS = Table(
    "clips",
    "id",
    (
        Register(
            "made",
            (Column("name", "TEXT"), Column("length", "REAL")),
            signed=True,
            first=True,
            creating=True,
            kept=("generation", "hlc", "author"),
        ),
        Register("title", (Column("title", "TEXT"),)),
        Register("stage", (Column("stage", "TEXT"), Column("note", "TEXT"))),
        Register("cover", (Column("cover", "BLOB"), Column("for_made", "TEXT"))),
        Register("life", (Column("deleted", "INTEGER"),)),
    ),
    derived=(
        Derived("status", "TEXT", "coalesce(stage, 'new')", stored=True),
        Derived("live", "INTEGER", "made_generation IS NOT NULL AND coalesce(deleted, 0) = 0", stored=True),
        Derived("cover_counts", "INTEGER", "for_made = made_hlc || ':' || lower(hex(made_author))"),
    ),
    counted=True,
    ended="status = 'done'",
    ended_at="updated_at",
)
NOTES = Table("notes", "id", (Register("note", (Column("text", "TEXT"), Column("stars", "INTEGER")), creating=True),))


@dataclass
class Clock:
    """A wall clock that moves only when it is told to."""

    now: int = NOW

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True)
class Device:
    """A device of a space; what `Replica.open` asks of an identity."""

    label: str
    signing: SigningKey
    certificate: bytes
    root_public: bytes

    @property
    def public_key(self) -> bytes:
        return bytes(self.signing.verify_key)

    @property
    def device_id(self) -> str:
        return device_id(self.public_key)

    def sign(self, body: bytes) -> bytes:
        return self.signing.sign(body).signature


@dataclass
class Space:
    """A space that devices can be made for."""

    root: SigningKey = field(default_factory=SigningKey.generate)

    def device(self, label: str) -> Device:
        key = SigningKey.generate()
        root = bytes(self.root.verify_key)
        certificate = issue(self.root, space_id="space", public_key=bytes(key.verify_key), role="owner")
        return Device(label, key, certificate, root)

    def replica(
        self, label: str = "here", *, tables: Sequence[Table] = (CLIPS, NOTES), path: str | Path = ":memory:", clock: Clock | None = None
    ) -> Replica:
        return open_replica(self.device(label), tables=tables, path=path, clock=clock)


def open_replica(
    device: Device,
    *,
    tables: Sequence[Table] = (CLIPS, NOTES),
    path: str | Path = ":memory:",
    clock: Clock | None = None,
    image: bytes | None = None,
    machine: str = "machine",
) -> Replica:
    """The replica of a device."""
    return Replica.open(path, tables=tables, identity=device, wall=clock or Clock(), random=os.urandom, image=image, machine=machine)


def make_clip(writer: Writer, name: str = "clip", *, key: str | None = None, generation: int | None = None) -> str:
    """Makes a row of clips, gives its key."""
    made = key or writer.new_id()
    writer.put("clips", made, "made", {"name": name, "length": 2}, generation=generation)
    return made


def clip(replica: Replica, key: str) -> dict[str, Any] | None:
    """A row of clips as a map; None if it isn't there or is no row."""
    columns = ("name", "length", "title", "stage", "note", "cover", "status", "live", "updated_at")
    query = f"SELECT {', '.join(columns)} FROM clips WHERE id = ? AND live = 1"
    row = replica.read(lambda connection: connection.execute(query, (key,)).fetchone())
    return None if row is None else dict(zip(columns, row, strict=True))


def everything(replica: Replica) -> list[Write]:
    """Every live write that the replica may pass on."""
    return replica.live_writes(above={}, limit=1_000_000)


def introductions(replica: Replica) -> list[Write]:
    """The writes that say which devices and authors there are."""
    return [write for write in everything(replica) if write.table in ("devices", "authors")]


def sync(sender: Replica, receiver: Replica) -> None:
    """One whole round in one direction."""
    heads = sender.heads()
    merged = receiver.merge(sender.live_writes(above={author: head.seq for author, head in receiver.heads().items()}, limit=1_000_000))
    assert not merged.refused
    assert receiver.move_heads(heads) == ()


def state(replica: Replica) -> dict[str, list[Any]]:
    """Everything that must be equal on two replicas with equal heads."""
    found = {name: replica.read(lambda c, shape=shape: rows(c, shape)) for name, shape in replica.shapes.items()}  # type: ignore[misc]
    columns = "tbl, key, register, author, seq, generation, rank, claim, hlc, body, signature"
    found["changes"] = replica.read(lambda c: c.execute(f"SELECT {columns} FROM changes ORDER BY tbl, key, register").fetchall())
    found["counts"] = replica.read(lambda c: c.execute("SELECT * FROM counts WHERE n <> 0 ORDER BY tbl, status").fetchall())
    return found


def rows(connection: sqlite3.Connection, shape: Shape) -> list[Any]:
    """The rows of a table, each as its columns by name."""
    cursor = connection.execute(f"SELECT * FROM {shape.name} ORDER BY {shape.table.key}")
    names = [column[0] for column in cursor.description]
    return [sorted(zip(names, row, strict=True)) for row in cursor]


def hlc(ms: int, counter: int = 0) -> int:
    """A value of the clock."""
    return ms << COUNTER_BITS | counter


def write_of(
    author: bytes, seq: int, register: str, values: Iterable[Any], *, key: str = "k", table: str = "notes", time: int = NOW,
    generation: int = 0, rank: int = 0, first: bool = False,
) -> Write:  # fmt: skip
    """A write as a peer would send it."""
    stamp = Stamp(generation, rank, 0, -hlc(time) if first else hlc(time), author)
    return Write(table, key, register, stamp, seq, tuple(values))


def signed_write(device: Device, author: bytes, seq: int, register: str, values: Iterable[Any], **rest: Any) -> Write:
    """A signed write as a peer would send it."""
    plain = write_of(author, seq, register, values, **{"table": "clips", "first": True, **rest})
    body = body_of(plain.table, plain.key, plain.register, plain.stamp, plain.seq, plain.values)
    return Write(plain.table, plain.key, plain.register, plain.stamp, plain.seq, plain.values, body, device.sign(body))


def writes_of(page: Page) -> list[Write]:
    """What all its messages hold."""
    return list(chain.from_iterable(page.messages))


def pages(replica: Replica, limit: int) -> list[Page]:
    """All pages that a peer gets that has nothing."""
    held: dict[bytes, Spans] = {}
    got: list[Page] = []
    while not got or got[-1].rest == "more":
        request = ReadUnsent(1, {}, {author: tuple(spans) for author, spans in held.items()}, False, 1, limit, 1 << 20)
        page = Peering(replica, "peer").answer(request)
        assert isinstance(page, Page)
        assert page.messages or page.rest == "nothing"
        got.append(page)
        for write in writes_of(page):
            held.setdefault(write.stamp.author, Spans()).add(write.seq)
        for author, span in page.covered.items():
            held.setdefault(author, Spans()).add(*span)
    return got
