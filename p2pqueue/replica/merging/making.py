"""How are rows made that nobody can have made before, with the least work?

Their keys are new ids, so nothing stands that could outrank them and nothing is read: a row is one insert into its
table and one into `changes`. Jobs come this way, one by one or thousands at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from struct import unpack
from typing import TYPE_CHECKING, Any

from p2pqueue.clock import COUNTER_BITS, tick
from p2pqueue.replica.merging.first_changes import insert_changes_of_rows
from p2pqueue.replica.signatures.bodies import new_packer
from p2pqueue.replica.signatures.hashtree import sign_together

if TYPE_CHECKING:
    from p2pqueue.replica.merging.inserting import Counts
    from p2pqueue.replica.statements import Shape
    from p2pqueue.replica.writer import Writer

Make = Callable[["Writer", Sequence[tuple[Any, ...]], "Sequence[str] | None"], "tuple[list[str], Counts]"]

RANDOM_SIZE = 8  # bytes that an id takes
_ID = "%08x-%04x-7%03x-%04x-%012x"


def maker(shape: Shape, register: str) -> Make:
    """What makes rows of a table with one register: it takes their values in declared order.

    It gives their ids, which are new unless given, and how many rows begin with which status. For one transaction at
    a time.
    """
    table, registers, inserting = shape.name, (register,), shape.inserting
    signed, first, parts = register in shape.signed, register in shape.first, shape.kept[register]
    pack = new_packer().pack

    def make(writer: Writer, rows: Sequence[tuple[Any, ...]], given: Sequence[str] | None) -> tuple[list[str], Counts]:
        many, connection, begin = len(rows), writer.connection, tick(writer.hlc, writer.now)
        keys = list(given) if given is not None else new_ids(begin, many, writer.random)
        times = range(begin, begin + many)
        seqs = range(writer.seq + 1, writer.seq + many + 1)
        writer.hlc, writer.seq = begin + many - 1, writer.seq + many
        none, hlcs = (0,) * many, [-time for time in times] if first else times
        by = (bytearray(writer.author),) * many  # the sqlite3 module binds a bytearray in a third of the time
        moments = [time >> COUNTER_BITS for time in times]
        kept = parts((none, none, none, hlcs, by))  # type: ignore[arg-type]  # a column of each
        columns: list[Sequence[Any]] = [keys, moments, *zip(*rows, strict=True), *kept]
        if many == 1:
            counts = inserting.insert(connection, registers, [tuple([column[0] for column in columns])])
        else:
            counts = inserting.insert_columns(connection, registers, columns)
        changes: list[Iterable[Any]] = [keys, by, seqs, none, none, none, hlcs]
        if signed:
            stamps = zip(none, none, none, hlcs, repeat(writer.author))
            bodies = list(map(pack, zip(repeat(table), keys, repeat(register), stamps, seqs, rows)))
            changes += (bodies, sign_together(bodies, writer.sign), repeat(1))
        insert_changes_of_rows(connection, table, ((register, signed),), list(zip(*changes)))  # noqa: B905  one may be repeated
        return keys, counts

    return make


def new_ids(hlc: int, number: int, random: Callable[[int], bytes]) -> list[str]:
    """So many new ids, whose times begin with that one."""
    return [id_of(hlc + place, each) for place, each in enumerate(unpack(f">{number}Q", random(RANDOM_SIZE * number)))]


def id_of(hlc: int, random: int) -> str:
    """The id that carries the time of its making: a UUIDv7 made from the clock and of 64 random bits, which get 58."""
    tail = random >> 6
    after = 0x8000 | (hlc & 0xF) << 10 | tail >> 48
    return _ID % (hlc >> 32, hlc >> 16 & 0xFFFF, hlc >> 4 & 0xFFF, after, tail & 0xFFFF_FFFF_FFFF)
