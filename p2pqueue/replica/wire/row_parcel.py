"""How do many rows with the same registers look on the wire?

As [table, keys, registers], each register as [name, generations, ranks, claims, times, indexes of authors, numbers,
columns of values, signatures or None]. A column of one entry stands for all rows; of times and numbers the first is told,
and behind it how much each differs from the one before. Signed bodies don't travel: whoever has all that they say packs
them again. That takes a third of the bytes off, and nobody has to make a write of each register of each row. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, repeat
from operator import sub
from typing import Any

from p2pqueue import wire
from p2pqueue.replica.signatures.bodies import new_packer
from p2pqueue.replica.signatures.hashtree import is_signature
from p2pqueue.replica.syncing.messages import MAX_WRITES
from p2pqueue.replica.system import SYSTEM_NAMES
from p2pqueue.replica.wire.checks import MAX_COLUMNS, check_authors, check_names, check_numbers, check_stamps, check_values
from p2pqueue.replica.wire.columns import AlikeRows, RegisterColumns

# Of authors, bodies and signatures, whether each of these made that signature over that body.
Holds = Callable[[Sequence[bytes], Sequence[bytes], Sequence[bytes]], list[bool]]


def pack_rows(rows: AlikeRows, authors: dict[bytes, int]) -> list[Any]:
    """How rows travel; their authors get their places in `authors`."""
    return [rows.table, rows.keys, [_pack_register(each, authors) for each in rows.registers]]


def _pack_register(register: RegisterColumns, authors: dict[bytes, int]) -> list[Any]:
    generations, ranks, claims, hlcs, makers = register.stamps
    places = [authors.setdefault(maker, len(authors)) for maker in makers]
    columns = [_short(column) for column in register.values]
    numbers = [_short(generations), _short(ranks), _short(claims), _steps(hlcs), _short(places), _steps(register.seqs)]
    return [register.name, *numbers, columns, register.signatures]


def _short(column: Sequence[Any]) -> Sequence[Any]:
    """A column, by one entry where all are the same; a float's sign may differ where nothing else does."""
    first = column[0]
    alike = type(first) is not float and column.count(first) == len(column) and len(set(map(type, column))) == 1
    return column[:1] if alike else column


def _steps(numbers: Sequence[int]) -> list[Any]:
    return [numbers[0], _short(tuple(map(sub, numbers[1:], numbers))) if len(numbers) > 1 else ()]


def unpack_rows(packed: Any, authors: Sequence[Any], holds: Holds | None) -> AlikeRows:
    """What `pack_rows` packed; `holds` checks signatures. Raises ValueError, TypeError and IndexError for anything else."""
    table, keys, registers = packed
    if not isinstance(keys, list) or not isinstance(registers, list) or not 0 < len(keys) * len(registers) <= MAX_WRITES:
        raise ValueError(f"not the registers of rows, of at most {MAX_WRITES} writes")
    check_names({table, *(name for name, *_ in registers)}, keys)
    if table in SYSTEM_NAMES:
        raise ValueError("rows of the system go one by one")
    _check_size(len(keys), registers)
    return AlikeRows(table, keys, tuple([_unpack_register(table, keys, authors, holds, *each) for each in registers]))


def _check_size(rows: int, registers: Sequence[Any]) -> None:
    """Raises ValueError where the columns, each entry of its own in every row, take more than a message may."""
    texts = (column[0] for _, _, _, _, _, _, _, columns, _ in registers for column in columns if len(column) == 1)
    size = sum(rows * len(text) for text in texts if isinstance(text, (str, bytes)))
    if size > wire.MESSAGE_LIMIT:
        raise ValueError(f"rows of {size} bytes where at most {wire.MESSAGE_LIMIT} are accepted")


def _unpack_register(
    table: str, keys: list[str], authors: Sequence[Any], holds: Holds | None,
    name: str, generations: Any, ranks: Any, claims: Any, hlcs: Any, places: Any, seqs: Any, columns: Any, signatures: Any,
) -> RegisterColumns:  # fmt: skip
    rows = len(keys)
    times, numbers = _from_steps(hlcs, rows), _from_steps(seqs, rows)
    check_stamps(generations, ranks, claims, times)
    check_numbers(numbers)
    if set(map(type, places)) != {int} or min(places) < 0:
        raise ValueError("an author that isn't listed")
    makers = _whole([authors[place] for place in places], rows)
    check_authors(makers)
    if not isinstance(columns, list) or len(columns) > MAX_COLUMNS:
        raise ValueError(f"not a list of at most {MAX_COLUMNS}")
    check_values(chain.from_iterable(columns))
    stamps = (_whole(generations, rows), _whole(ranks, rows), _whole(claims, rows), times, makers)
    values = tuple([_whole(column, rows) for column in columns])
    if signatures is None:
        return RegisterColumns(name, stamps, numbers, values)
    if not isinstance(signatures, list) or len(signatures) != rows or not all(map(is_signature, signatures)):
        raise ValueError("a signature that is none")
    pack = new_packer().pack
    of_rows = zip(*values, strict=True) if values else repeat(())
    parts = zip(repeat(table), keys, repeat(name), zip(*stamps, strict=True), numbers, of_rows)
    bodies = list(map(pack, parts))
    checked = [False] * rows if holds is None else holds(makers, bodies, signatures)
    return RegisterColumns(name, stamps, numbers, values, bodies, signatures, checked)


def _whole(column: Any, rows: int) -> list[Any]:
    if not isinstance(column, list) or len(column) not in (1, rows):
        raise ValueError("a column that is none")
    return column if len(column) == rows else column * rows


def _from_steps(packed: Any, rows: int) -> list[int]:
    first, steps = packed
    if {type(first), *map(type, steps)} != {int}:
        raise ValueError("a number that is none")
    return list(accumulate(chain((first,), _whole(steps, rows - 1) if rows > 1 else ())))
