"""How are rows made that nobody can have made before, with the least work?

Their keys are new ids, so nothing stands that could outrank them and nothing is read: a row is one insert into its
table and one into `changes`. Jobs come this way, one by one or thousands at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from p2pqueue.clock import COUNTER_BITS, tick
from p2pqueue.replica.signing import new_packer
from p2pqueue.replica.statements import insert_new_changes

if TYPE_CHECKING:
    from p2pqueue.replica.inserting import Counts
    from p2pqueue.replica.statements import Shape
    from p2pqueue.replica.writer import Writer

RANDOM_SIZE = 8  # bytes that an id takes


def make(writer: Writer, shape: Shape, register: str, rows: Sequence[tuple[Any, ...]]) -> tuple[list[str], Counts]:
    """Makes rows with one register, their values in declared order; gives their ids, and how many begin with which status."""
    connection, sign = writer.connection, writer.sign
    table, author, now = shape.name, writer.author, writer.now
    signed, first, parts = register in shape.signed, register in shape.first, shape.kept[register]
    pack, by = new_packer().pack, bytearray(author)  # the sqlite3 module binds a bytearray in a third of the time
    random = writer.random(RANDOM_SIZE * len(rows))
    hlc, seq, place = writer.hlc, writer.seq, 0
    body = signature = None
    keys, inserts, changes = [], [], []
    for values in rows:
        hlc = tick(hlc, now)
        seq += 1
        key = id_of(hlc, random[place : place + RANDOM_SIZE])
        place += RANDOM_SIZE
        time = -hlc if first else hlc
        stamp = (0, 0, 0, time, author)
        if signed:
            body = pack((table, key, register, stamp, seq, values))
            signature = sign(body)
        keys.append(key)
        inserts.append((key, hlc >> COUNTER_BITS, *values, *parts(stamp)))
        changes.append((table, key, register, by, seq, 0, 0, 0, time, body, signature, 1))
    writer.hlc, writer.seq = hlc, seq
    counts = shape.inserting.insert(connection, (register,), inserts)
    insert_new_changes(connection, changes)
    return keys, counts


def id_of(hlc: int, random: bytes) -> str:
    """The id that carries the time of its making: a UUIDv7 made from the clock."""
    tail = int.from_bytes(random, "big") >> 6  # 58 random bits
    number = hlc >> 16 << 80 | (0x7000 | hlc >> 4 & 0xFFF) << 64 | (0x8000 | (hlc & 0xF) << 10) << 48 | tail
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
