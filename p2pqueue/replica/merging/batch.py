"""Which writes of a batch win, and how do they reach the rows?

The winners of one table are gathered by row, so that a row gets one statement whatever number of registers
changes, and go into `changes` beside it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from typing import Any, NamedTuple

from p2pqueue import wire
from p2pqueue.clock import COUNTER_BITS
from p2pqueue.replica.counting import counting, insert_new
from p2pqueue.replica.signatures.bodies import BODY_LIMIT, write_from_body
from p2pqueue.replica.stamp import RETRY_BITS, Stamp
from p2pqueue.replica.statements import DELETE_CHANGE, SELECT_KNOWN, SELECT_KNOWN_ONE, Shape, insert_changes


class Known(NamedTuple):
    """What stands in a register now; of a write that won in this batch also what it brings."""

    stamp: Stamp
    seq: int
    verified: int
    unread: int = 0  # its values are kept in `changes` alone: its register is unknown, or it waits for its life to begin
    values: tuple[Any, ...] = ()
    body: bytes | None = None
    signature: bytes | None = None


_Rows = dict[tuple[bool, tuple[str, ...]], list[list[Any]]]


class Batch:
    """Decides and applies writes of one table."""

    def __init__(self, connection: sqlite3.Connection, shape: Shape) -> None:
        self.connection = connection
        self.shape = shape
        self.known: dict[str, dict[str, Known]] = {}
        self.ended: dict[str, int] = {}  # lives of rows that are only remembered as tombstones
        self.winners: dict[str, dict[str, Known]] = {}
        self._here: set[str] = set()  # rows that stand in the table
        self._outlived: list[tuple[str, str]] = []

    @classmethod
    def of_new_rows(cls, connection: sqlite3.Connection, shape: Shape, rows: dict[str, dict[str, Known]]) -> Batch:
        """A batch that only makes rows that were not there."""
        batch = cls(connection, shape)
        batch.known = batch.winners = rows
        return batch

    def load(self, keys: Collection[str]) -> None:
        """Reads what stands in the rows with these keys."""
        name = self.shape.name
        if len(keys) == 1:
            (key,) = keys
            rows = self.connection.execute(SELECT_KNOWN_ONE, (name, key))
            listed = None
        else:
            listed = json.dumps(list(keys))
            rows = self.connection.execute(SELECT_KNOWN, (name, listed))
        known, make = self.known, tuple.__new__  # a named tuple's own way of making takes three times as long
        kept, here = self.shape.kept, self._here
        for key, register, generation, rank, claim, hlc, author, seq, verified, unread in rows:
            if register in kept:
                here.add(key)
            entry = make(Known, (make(Stamp, (generation, rank, claim, hlc, author)), seq, verified, unread, (), None, None))
            registers = known.get(key)
            if registers is None:
                known[key] = {register: entry}
            else:
                registers[register] = entry
        if self.shape.has_life and self.connection.execute("SELECT 1 FROM tombstones LIMIT 1").fetchone() is not None:
            query = "SELECT key, life FROM tombstones WHERE tbl = ? AND key IN (SELECT value FROM json_each(?))"
            self.ended.update(self.connection.execute(query, (name, listed or json.dumps(list(keys)))))

    def life(self, key: str) -> int:
        """The life that the row is in, 0 for a new one."""
        registers = self.known.get(key)
        creating = registers.get(self.shape.creating) if registers else None
        return creating.stamp.generation >> RETRY_BITS if creating else self.ended.get(key, -1) + 1

    def rival(self, key: str, register: str, stamp: Stamp) -> str | None:
        """The register whose write outranks this one: itself, or the creating one of a later life; None if it wins.

        The empty string stands for a row that ended and is gone.
        """
        if self.ended and stamp.generation >> RETRY_BITS <= self.ended.get(key, -1):
            return ""
        registers = self.known.get(key)
        if registers is None:
            return None
        creating = registers.get(self.shape.creating)
        if creating is not None and stamp.generation >> RETRY_BITS < creating.stamp.generation >> RETRY_BITS:
            return self.shape.creating
        standing = registers.get(register)
        return register if standing is not None and stamp <= standing.stamp else None

    def replaces(self, key: str, register: str, stamp: Stamp) -> bool:
        """Says whether a winning write would take the place of another, or end an earlier life."""
        registers = self.known.get(key)
        if not registers:
            return False
        if register in registers:
            return True
        life = stamp.generation >> RETRY_BITS
        return register == self.shape.creating and any(each.stamp.generation >> RETRY_BITS < life for each in registers.values())

    def forget(self, key: str, register: str) -> None:
        """Takes out of the picture what was removed from the database."""
        self.known.get(key, {}).pop(register, None)
        self.winners.get(key, {}).pop(register, None)

    def take(self, key: str, register: str, winner: Known) -> None:
        """Notes a write that won."""
        registers = self.known.get(key)
        if registers is None:
            registers = self.known[key] = {}
        won = self.winners.get(key)
        if won is None:
            won = self.winners[key] = {}
        if register == self.shape.creating and registers:
            life = winner.stamp.generation >> RETRY_BITS
            self._outlive(key, registers, won, life)
            self._reconsider(key, registers, won, life)
        registers[register] = won[register] = winner

    def _outlive(self, key: str, registers: dict[str, Known], won: dict[str, Known], life: int) -> None:
        for name in [name for name, each in registers.items() if each.stamp.generation >> RETRY_BITS < life]:
            del registers[name]
            won.pop(name, None)
            if name != self.shape.creating:
                self._outlived.append((key, name))

    def _reconsider(self, key: str, registers: dict[str, Known], won: dict[str, Known], life: int) -> None:
        """Shows what waited for this life to begin, and hides what turns out to be of a later one."""
        for name, each in registers.items():
            if name in won or name == self.shape.creating or name not in self.shape.kept:
                continue
            # Of a signed one it isn't seen in `changes` whether its values show: it has its body either way.
            if name in self.shape.signed or bool(each.unread) != (each.stamp.generation >> RETRY_BITS > life):
                won[name] = self._standing(key, name, each)

    def _standing(self, key: str, register: str, known: Known) -> Known:
        query = "SELECT body, signature FROM changes WHERE tbl = ? AND key = ? AND register = ?"
        body, signature = self.connection.execute(query, (self.shape.name, key, register)).fetchone()
        if signature is not None:
            values = write_from_body(body, signature).values
        elif body is not None:
            values, body = tuple(wire.unpack(body, limit=BODY_LIMIT)), None
        else:
            values = tuple(self.connection.execute(self.shape.select(register), (json.dumps([key]),)).fetchone()[1:])
        return Known(known.stamp, known.seq, known.verified, 0, values, body, signature)

    def waits(self, key: str, register: str, stamp: Stamp) -> bool:
        """Says whether a write of a row that is known here is of a life that has not begun."""
        creating = self.known[key].get(self.shape.creating)
        return (
            creating is not None
            and stamp.generation >> RETRY_BITS > creating.stamp.generation >> RETRY_BITS
            and register != self.shape.creating
        )

    @property
    def keys(self) -> list[str]:
        """The keys of the rows that changed."""
        return [key for key, won in self.winners.items() if won]

    def apply(self) -> int:
        """Writes the winners; gives how many there were."""
        standing = [key for key in self.keys if key in self._here]
        with counting(self.connection, self.shape, standing):
            return self._apply()

    def _apply(self) -> int:
        execute = self.connection.execute
        for key, register in self._outlived:
            execute(DELETE_CHANGE, (self.shape.name, key, register))
            if register in self.shape.kept:
                execute(self.shape.clear((register,)), (key,))
        rows, changes = self._parameters()
        for (here, registers), parameters in rows.items():
            if not here:
                insert_new(self.connection, self.shape, registers, parameters)
            elif len(parameters) == 1:
                execute(self.shape.settle(registers), parameters[0])
            else:
                self.connection.executemany(self.shape.settle(registers), parameters)
        insert_changes(self.connection, changes)
        return len(changes)

    def _parameters(self) -> tuple[_Rows, list[tuple[Any, ...]]]:
        name, kept, here = self.shape.name, self.shape.kept, self._here
        rows: _Rows = {}
        changes: list[tuple[Any, ...]] = []
        authors: dict[bytes, bytearray] = {}  # the sqlite3 module binds a bytearray in a third of the time
        for key in sorted(self.winners):  # pages are met in their order
            won = self.winners[key]
            unknown, shows = 0, False
            row: list[Any] = [key, 0]
            for register, (stamp, seq, verified, _, values, body, signature) in won.items():
                generation, rank, claim, hlc, author = stamp
                parts = kept.get(register)
                if parts is None:
                    unknown += 1
                else:
                    if generation >> RETRY_BITS and self.waits(key, register, stamp):
                        body = body or wire.pack(list(values))
                        values = (None,) * len(values)
                    row += values
                    row += parts(stamp)
                    shows = True
                by = authors.get(author) or authors.setdefault(author, bytearray(author))
                changes.append((name, key, register, by, seq, generation, rank, claim, hlc, body, signature, verified))
            if shows:
                row[1] = self._newest(key) >> COUNTER_BITS
                names = tuple(register for register in won if register in kept) if unknown else tuple(won)
                statement = (key in here, names)
                known = rows.get(statement)
                if known is None:
                    rows[statement] = [row]
                else:
                    known.append(row)
        return rows, changes

    def _newest(self, key: str) -> int:
        """The latest time among the registers of a row as they stand now: what was outranked leaves no trace in it."""
        kept, newest = self.shape.kept, 0
        for register, each in self.known[key].items():
            if not each.unread and register in kept:
                newest = max(newest, abs(each.stamp.hlc))
        return newest

    def content(self, key: str, register: str) -> bytes | None:
        """The bytes of a winner of this batch, None if the register's write is not of this batch."""
        winner = self.winners.get(key, {}).get(register)
        return None if winner is None else winner.body or wire.pack(list(winner.values))
