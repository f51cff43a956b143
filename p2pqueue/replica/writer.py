"""What may a transaction write, and under which stamps?

A `Writer` lives as long as one IMMEDIATE transaction. Author, number and clock are read inside it and written
back before it commits, since other processes of the same home write under the same author.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from p2pqueue.clock import COUNTER_BITS, tick
from p2pqueue.errors import ArgumentError
from p2pqueue.replica.counting import BLOCK, add_all, counting, fold, pack_moved
from p2pqueue.replica.merging.batch import Batch, Known
from p2pqueue.replica.merging.making import RANDOM_SIZE, id_of, maker
from p2pqueue.replica.merging.merged import Done, Put, Signer
from p2pqueue.replica.merging.pending import Pending
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.signatures.signing import Keyring
from p2pqueue.replica.stamp import RETRY_BITS, Stamp
from p2pqueue.replica.statements import Shape, insert_changes
from p2pqueue.replica.values import in_order

__all__ = ["Put", "Writer"]

# The clock of the last commit counts, unless something was merged or an id given out since.
SELECT_OWN = (
    "SELECT author, max(incarnation.hlc, coalesce(commits.hlc, 0)), coalesce(seq, 0) FROM incarnation "
    "LEFT JOIN commits ON seq = (SELECT max(seq) FROM commits)"
)
_INSERT_COMMIT = "INSERT INTO commits (seq, tag, hlc, moved) VALUES (?, ?, ?, ?)"
_TAG_SIZE = 8  # bytes

Own = tuple[bytes, int, int]  # author, clock, last number


class Writer:
    """The hand that writes in one transaction. Every value it gives is good as long as that lasts."""

    _pending: Pending | None = None
    _savepoint: str | None = None  # the one to open before the function that runs now touches the connection
    _opened = False

    def __init__(
        self,
        connection: sqlite3.Connection,
        shapes: Mapping[str, Shape],
        signer: Signer,
        *,
        sign: Callable[[bytes], bytes],
        keyring: Keyring,
        now: int,
        random: Callable[[int], bytes],
        own: Own | None = None,
    ) -> None:
        self._connection = connection
        self.shapes = shapes
        self.signer = signer
        self.keyring = keyring
        self.now = now
        self.random = random
        self.touched: set[tuple[str, str]] = set()
        self.sign = sign
        self._fresh: set[str] = set()  # keys that were made in this transaction and that SQLite hasn't seen
        began: Own = connection.execute(SELECT_OWN).fetchone() if own is None else own
        self._began = began
        self.author, self.hlc, self.seq = began
        self.began_at = self.seq  # the author's last number when the transaction began
        self._moved: dict[tuple[str, str], int] = {}  # counters that go with the commit

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, with everything on it that was put so far."""
        pending = self._pending
        if pending is None and not self._moved and self._savepoint is None:
            return self._connection
        if self._savepoint is not None and not self._opened:
            if pending is not None:
                pending.flush_others()
            self._connection.execute(self._savepoint)
            self._opened = True
        if pending is not None and pending.mine:
            self._fresh.difference_update(pending.flush_mine())
        if self._moved:
            self._flush_moved()
        return self._connection

    @property
    def device_id(self) -> str:
        """The device that writes."""
        return self.signer.device_id

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.signer.label

    def new_id(self) -> str:
        """A new id that carries the time of its making: a UUIDv7 made from the clock."""
        self.hlc = hlc = tick(self.hlc, self.now)
        made = id_of(hlc, int.from_bytes(self.random(RANDOM_SIZE), "big"))
        self._fresh.add(made)
        return made

    def put(
        self,
        table: str,
        key: str,
        register: str,
        values: Mapping[str, Any] | tuple[Any, ...],
        *,
        generation: int | None = None,
        rank: int = 0,
        claim: int = 0,
        earliest: bool = False,
    ) -> Stamp:
        """Writes one register, under a stamp above everything seen here; gives the stamp.

        `values` go by the columns' wire names, a missing one is None; or they are a tuple in declared order. It
        merges like a peer's write: where a greater generation, rank or claim stands, it changes nothing. Raises
        `ArgumentError` for a name unknown.
        """
        return self._write(table, (Put(key, register, values, generation, rank, claim, earliest),))[0]

    def put_many(self, table: str, puts: Sequence[Put]) -> None:
        """Writes many registers of one table at once: the cheap way for more than one."""
        self._write(table, puts)

    def make(self, table: str, register: str, rows: Sequence[tuple[Any, ...]], *, ids: Sequence[str] | None = None) -> list[str]:
        """Makes new rows with their creating register, and gives their new ids: the cheapest way of all.

        Of each row the values, in declared order and with the types of their columns. `ids`, where they were given
        out before, are ids that no row has had.
        """
        if not rows:
            return []
        shape = self._shape(table)
        make = shape.makers.get(register)
        if make is None:
            make = shape.makers[register] = maker(shape, register)
        keys, counts = make(self, rows, ids)
        self.count(table, counts)
        self.touched.update(zip(repeat(table), keys))
        return keys

    def put_known(self, table: str, register: str, puts: Sequence[Put], *, new: bool = False) -> None:
        """Writes one register of rows that this transaction has read, or that are `new`: the cheapest way.

        The caller knows that each put outranks what stands, one for a key; `values` are tuples in declared order
        with the types of their columns, and `generation` is given.
        """
        shape, connection = self._shape(table), self.connection
        author, now, hlc, seq = self.author, self.now, self.hlc, self.seq
        parts, signed, first = shape.kept[register], register in shape.signed, register in shape.first
        rows: list[tuple[Any, ...]] = []
        changes: list[tuple[Any, ...]] = []
        body = signature = None
        for key, _, values, generation, rank, claim, earliest in puts:
            hlc = tick(hlc, now)
            seq += 1
            stamp = (generation or 0, rank, claim, -hlc if earliest or first else hlc, author)
            if signed:
                body = body_of(table, key, register, stamp, seq, values)
                signature = self.sign(body)
            changes.append((table, key, register, author, seq, *stamp[:4], body, signature, 1))
            rows.append((key, hlc >> COUNTER_BITS, *values, *parts(stamp)))
        self.hlc, self.seq = hlc, seq
        keys = [put.key for put in puts]
        if new:
            self.count(table, shape.inserting.insert(connection, (register,), rows))
        else:
            with counting(connection, shape, keys):
                connection.executemany(shape.update((register,)), rows)
        insert_changes(connection, changes)
        self.note(table, keys)
        self._fresh.difference_update(keys)

    def delete(self, table: str, key: str) -> None:
        """Deletes a row, in the life that it is in."""
        self._write(table, (Put(key, "life", (1,)),))

    def life(self, table: str, key: str) -> int:
        """The life that a row is in: 0 for one that never was, one more than the last for one that is gone."""
        batch = Batch(self.connection, self._shape(table))
        batch.load((key,))
        return batch.life(key)

    def alone(self, owner: int, fn: Callable[[Writer], Any]) -> Done:
        """Runs one of several functions that share the transaction; if it raises, it is undone alone."""
        pending = self._gathering()
        pending.owner, self._savepoint, self._opened = owner, "SAVEPOINT alone", False
        before = (self.author, self.seq)
        try:
            done = Done(fn(self))
            if self._opened:
                self._connection.execute("RELEASE alone")
            pending.keep()
            self._fresh.clear()  # what another function puts into these rows finds them in SQLite
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not self._connection.in_transaction:
                raise
            if self._opened:
                self._connection.execute("ROLLBACK TO alone")
                self._connection.execute("RELEASE alone")
            pending.mine = {}
            self.author, self.seq = before  # the clock stays where it is, so that no time is used twice
            done = Done(error=error)
        self._savepoint = None
        return done

    @property
    def failures(self) -> Mapping[int, Exception]:
        """Of functions that ended well: what SQLite said of their writes in the end."""
        return self._pending.failures if self._pending is not None else {}

    def note(self, table: str, keys: Iterable[str]) -> None:
        """Marks rows as touched."""
        self.touched.update(zip(repeat(table), keys))

    def finish(self) -> None:
        """Writes author, number and clock back; the caller commits."""
        if self._pending is not None:
            self._pending.flush_others()
        author, hlc, before = self._began
        seq = self.seq
        if before // BLOCK != seq // BLOCK or self.author != author:
            fold(self.connection, before)
        moved, self._moved = self._moved, {}
        connection = self.connection
        if before != seq or self.author != author:
            connection.execute(_INSERT_COMMIT, (seq, self.random(_TAG_SIZE), self.hlc, pack_moved(moved) if moved else None))
        elif self.hlc != hlc:
            connection.execute("UPDATE incarnation SET hlc = ?", (self.hlc,))

    def count(self, table: str, counts: Mapping[str, int]) -> None:
        """Counts new rows in: with the commit itself where nothing here can be undone alone."""
        if self._savepoint is None:
            moved = self._moved
            for status, number in counts.items():
                counter = table, status
                moved[counter] = moved.get(counter, 0) + number
        else:
            add_all(self._connection, table, counts)

    def _flush_moved(self) -> None:
        moved, self._moved = self._moved, {}
        for (table, status), number in moved.items():
            add_all(self._connection, table, {status: number})

    def _shape(self, table: str) -> Shape:
        shape = self.shapes.get(table)
        if shape is None:
            raise ArgumentError(f"no replicated table {table!r} is declared here")
        return shape

    def _write(self, table: str, puts: Sequence[Put]) -> list[Stamp]:
        shape = self._shape(table)
        if self._fresh and all(put.key in self._fresh and not (put.generation or 0) >> RETRY_BITS for put in puts):
            return [self._gather(shape, put) for put in puts]
        batch = Batch(self.connection, shape)
        batch.load({put.key for put in puts})
        stamps = [self._offer(batch, put) for put in puts]
        batch.apply()
        self.note(table, batch.keys)
        self._fresh.difference_update(batch.keys)
        return stamps

    def _gather(self, shape: Shape, put: Put) -> Stamp:
        """Puts a register of a row that is new in this transaction: nothing stands there but what was gathered before."""
        key, register, values, generation, rank, claim, earliest = put
        values = in_order(shape, register, values)
        self.hlc = hlc = tick(self.hlc, self.now)
        stamp = Stamp(generation or 0, rank, claim, -hlc if earliest or register in shape.first else hlc, self.author)
        pending = self._gathering()
        standing = pending.stands(shape.name, key, register)
        if standing is None or standing.stamp < stamp:
            pending.put(shape.name, key, register, self._signed(shape, key, register, stamp, values))
            self.touched.add((shape.name, key))
        return stamp

    def _gathering(self) -> Pending:
        if self._pending is None:
            self._pending = Pending(self._connection, self.shapes)
        return self._pending

    def _signed(self, shape: Shape, key: str, register: str, stamp: Stamp, values: tuple[Any, ...]) -> Known:
        self.seq = seq = self.seq + 1
        if register not in shape.signed:
            return Known(stamp, seq, 1, 0, values)
        body = body_of(shape.name, key, register, stamp, seq, values)
        return Known(stamp, seq, 1, 0, values, body, self.sign(body))

    def _offer(self, batch: Batch, put: Put) -> Stamp:
        key, register, values, generation, rank, claim, earliest = put
        shape = batch.shape
        values = in_order(shape, register, values)
        if generation is None:
            generation = batch.life(key) << RETRY_BITS
        self.hlc = hlc = tick(self.hlc, self.now)
        stamp = Stamp(generation, rank, claim, -hlc if earliest or register in shape.first else hlc, self.author)
        rival = batch.rival(key, register, stamp)
        while rival and self.drop_unless_verified(batch, key, rival):
            rival = batch.rival(key, register, stamp)
        if rival is not None:
            return stamp
        batch.take(key, register, self._signed(shape, key, register, stamp, values))
        return stamp

    def drop_unless_verified(self, batch: Batch, key: str, register: str) -> bool:
        """Verifies a write that is about to outrank another; says whether it failed and was taken out."""
        known = batch.known.get(key, {}).get(register)
        if known is None or known.verified:
            return False
        from p2pqueue.replica.signatures.verification import verify_one

        if verify_one(self, batch.shape.name, key, register) is None:
            batch.known[key][register] = known._replace(verified=1)
            return False
        batch.forget(key, register)
        return True
