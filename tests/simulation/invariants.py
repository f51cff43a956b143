"""What must hold at every moment, and what once all is calm?"""

from __future__ import annotations

import sqlite3
from typing import Any

from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.comparing import going_on
from tests.simulation.device import Device

_CHANGES = "SELECT tbl, key, register, generation, rank, claim, hlc, author, seq FROM changes"
_UNVERIFIED = _CHANGES + " WHERE NOT verified"
_VERIFIED = _CHANGES + " WHERE verified"  # a first write whose signature was not checked yet counts for nothing
Register = tuple[str, str, str]
Dropped = dict[tuple[str, str], int]  # the last life of rows that were dropped somewhere


class Violation(AssertionError):
    """An invariant does not hold."""


def registers(device: Device) -> dict[Register, Stamp]:
    """The stamps of everything on a device's disk, whether it is on or off."""
    if device.replica is not None:
        rows = device.replica.read(lambda connection: connection.execute(_VERIFIED).fetchall())
    elif device.image is not None:
        rows = _from_image(device.image)
    else:
        rows = []
    return {(row[0], row[1], row[2]): Stamp(*row[3:8]) for row in rows}


def _from_image(image: bytes) -> list[Any]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(image)
        return connection.execute(_VERIFIED).fetchall()
    finally:
        connection.close()


def covers(found: dict[Register, Stamp], register: Register, stamp: Stamp, creating: dict[str, str]) -> bool:
    """Says whether a write, or something that outranks it, is in these registers."""
    standing = found.get(register)
    if standing is not None and standing >= stamp:
        return True
    birth = found.get((register[0], register[1], creating[register[0]]))
    return birth is not None and birth.life > stamp.life


def is_dropped(dropped: Dropped, register: Register, stamp: Stamp) -> bool:
    """Says whether the write belongs to a row that ended and was dropped."""
    return stamp.life <= dropped.get((register[0], register[1]), -1)


def check_monotone(device: Device, dropped: Dropped, creating: dict[str, str]) -> None:
    """No register of a device goes back: that is what the states of a job rest on."""
    found = registers(device)
    for register, stamp in device.seen.items():
        if not covers(found, register, stamp, creating) and not is_dropped(dropped, register, stamp):
            raise Violation(f"{device.name}: {register} went back from {stamp} to {found.get(register)}")
    device.seen = found


def heads_of(device: Device) -> dict[bytes, int]:
    assert device.replica is not None
    return {author: head.seq for author, head in device.replica.heads().items()}


def loose_of(device: Device, dropped: Dropped) -> dict[bytes, list[int]]:
    """The numbers above the heads: what an author that died with its disk left half sent stays loose for ever."""
    assert device.replica is not None
    heads = heads_of(device)
    found: dict[bytes, list[int]] = {}
    for row in device.replica.read(lambda connection: connection.execute(_VERIFIED).fetchall()):
        stamp, seq = Stamp(*row[3:8]), row[8]
        if seq > heads.get(stamp.author, 0) and not is_dropped(dropped, row[:3], stamp):
            found.setdefault(stamp.author, []).append(seq)
    return {author: sorted(numbers) for author, numbers in found.items()}


def contents(device: Device, dropped: Dropped, *, rows_only: bool = False) -> dict[Any, Any]:
    """Everything replicated on a device, except rows that ended and were dropped somewhere, and (if asked) what has no row."""
    assert device.replica is not None
    replica = device.replica
    found: dict[Any, Any] = {}
    lives: dict[tuple[str, str], int] = {}
    changes = replica.read(lambda connection: connection.execute(_VERIFIED).fetchall())
    born = {(row[0], row[1]) for row in changes if row[0] in replica.shapes and row[2] == replica.shapes[row[0]].creating}
    for row in changes:
        stamp = Stamp(*row[3:8])
        if not is_dropped(dropped, row[:3], stamp) and ((row[0], row[1]) in born or not rows_only):
            found[row[:3]] = row[3:]
            lives[row[0], row[1]] = stamp.life
    for name, shape in replica.shapes.items():
        columns = [column.sql_name for register in shape.table.registers for column in register.columns]
        names = ", ".join(f'"{column}"' for column in [shape.table.key, *columns, *(derived.name for derived in shape.table.derived)])
        for row in replica.connection.execute(f'SELECT {names} FROM "{name}"').fetchall():
            if (name, row[0]) in lives:
                found[name, row[0]] = row
    return found


def going_rows(device: Device) -> set[tuple[str, str]]:
    """The rows of a device that are neither deleted nor terminal."""
    assert device.replica is not None
    found: set[tuple[str, str]] = set()
    for name, shape in device.replica.shapes.items():
        query = f'SELECT "{shape.table.key}" FROM "{name}" WHERE {going_on(shape)}'
        found.update((name, key) for (key,) in device.replica.connection.execute(query))
    return found


def unchecked_rows(device: Device) -> set[tuple[str, str]]:
    """The rows of a device with a first write whose signature can't be checked yet: as if it weren't here."""
    assert device.replica is not None
    return {row[:2] for row in device.replica.read(lambda connection: connection.execute(_UNVERIFIED).fetchall())}


def check_equal(one: Device, two: Device, dropped: Dropped, *, rows_only: bool = False, ended_too: bool = True) -> None:
    """Equal heads and equal loose writes mean equal tables.

    Without `ended_too`, rows that go on nowhere are let be: digests, which find what a fork hid, leave them out.
    """
    first, second = contents(one, dropped, rows_only=rows_only), contents(two, dropped, rows_only=rows_only)
    unchecked = unchecked_rows(one) | unchecked_rows(two)
    first, second = ({name: each for name, each in found.items() if name[:2] not in unchecked} for found in (first, second))
    if not ended_too and first != second:
        going = going_rows(one) | going_rows(two)
        first, second = ({name: each for name, each in found.items() if name[:2] in going} for found in (first, second))
    if first != second:
        names = [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]
        name = min(names, key=str)
        words = f"{one.name} and {two.name} have equal heads and differ in {len(names)} places, as {name}"
        raise Violation(f"{words}:\n  {first.get(name)}\n  {second.get(name)}")
