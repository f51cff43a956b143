"""How are writes cut into messages, each within its limits? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from p2pqueue.replica.syncing.messages import write_size
from p2pqueue.replica.wire.columns import AlikeRows, WellFormed

_ABOUT = 64  # bytes of what every write has beside its key
_CELL = 9  # bytes of a value that is no text


def cut(writes: WellFormed, *, max_writes: int, max_bytes: int) -> Iterator[WellFormed]:
    """Messages of at most so many writes and bytes, unless one write takes more. Rows that take more go write by write."""
    of_rows = [row_sizes(rows) for rows in writes.alike]
    if any(max(sizes) > max_bytes for sizes in of_rows):
        yield from cut(_without_large(writes, of_rows, max_bytes), max_writes=max_writes, max_bytes=max_bytes)
        return
    sizes = [*map(write_size, writes.single), *chain.from_iterable(of_rows)]
    numbers = chain(
        repeat(1, len(writes.single)), chain.from_iterable(repeat(len(each.registers), len(each.keys)) for each in writes.alike)
    )
    start = number = size = 0
    for place, (its_size, its_number) in enumerate(zip(sizes, numbers, strict=True)):
        if number and (number + its_number > max_writes or size + its_size > max_bytes):
            yield writes.part(start, place)
            start, number, size = place, 0, 0
        number += its_number
        size += its_size
    if number:
        yield writes.part(start, len(sizes))


def _without_large(writes: WellFormed, of_rows: Sequence[Sequence[int]], max_bytes: int) -> WellFormed:
    """The same writes, those of the larger rows one by one."""
    single, alike = list(writes.single), []
    for rows, sizes in zip(writes.alike, of_rows, strict=True):
        start = 0
        for place, size in enumerate(sizes):
            if size > max_bytes:
                single += rows.part(place, place + 1).writes()
                alike.append(rows.part(start, place))
                start = place + 1
        alike.append(rows.part(start, len(rows.keys)))
    return WellFormed(single, [rows for rows in alike if rows.keys])


def row_sizes(rows: AlikeRows) -> list[int]:
    """About how many bytes the writes of each row take, rather more than less."""
    cells = sum(len(each.values) for each in rows.registers if each.bodies is None)
    columns: list[Iterable[int]] = [repeat(_ABOUT * len(rows.registers) + _CELL * cells)]
    columns.append([len(rows.registers) * len(key) for key in rows.keys])
    for each in rows.registers:
        if each.bodies is not None and each.signatures is not None:
            columns += [map(len, each.bodies), map(len, each.signatures)]
        else:
            columns += [_lengths(column) for column in each.values if not {str, bytes}.isdisjoint(map(type, column))]
    return list(map(sum, zip(*columns)))  # noqa: B905  one is repeated


def _lengths(column: Sequence[Any]) -> list[int]:
    return [_length(value) for value in column]


def _length(value: Any) -> int:
    if type(value) is str:
        return len(value) if value.isascii() else 4 * len(value)
    return len(value) if type(value) is bytes else 0
