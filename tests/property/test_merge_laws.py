"""Merging is commutative, associative and idempotent over every register, whatever the order, the batches and the repetitions.

The same writes are merged twice into one replica, under two keys and in two orders; both rows must come out the
same, and as a few lines of Python say that they should.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pqueue.jobs.tables import TABLES
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.stamp import RETRY_BITS, Stamp
from p2pqueue.replica.system import SYSTEM_TABLES
from p2pqueue.replica.tables import Register, Table
from p2pqueue.replica.write import Write
from tests.simulation.device import EPOCH_MS, Key

# A certificate and the row that ties an author to its device say who may sign: they don't merge as plain registers do.
BY_THE_CHAIN = {("devices", "cert"), ("authors", "author")}
EVERY_TABLE = (*TABLES, *SYSTEM_TABLES)
TYPES: dict[str, list[Any]] = {
    "TEXT": [None, "", "a", "b"],
    "INTEGER": [None, 0, 1, 2],
    "REAL": [None, 0.0, 0.5],
    "BLOB": [None, b"", b"x"],
}
KEYS = [Key(name) for name in ("one", "two", "three")]


class Bench:
    """A replica that knows three authors, and their keys."""

    def __init__(self) -> None:
        self.replica = Replica.open(
            ":memory:", tables=TABLES, identity=Key("here"), wall=lambda: EPOCH_MS, random=random.Random(0).randbytes
        )
        self.authors: list[tuple[bytes, Key]] = []
        for number, key in enumerate(KEYS):
            with Replica.open(
                ":memory:", tables=TABLES, identity=key, wall=lambda: EPOCH_MS, random=random.Random(number + 1).randbytes
            ) as other:
                self.replica.merge(other.live_writes(above={}))
                self.authors.append((other.author, key))
        assert self.replica.move_heads({}) == ()
        self.rows = 0

    def key(self) -> str:
        self.rows += 1
        return f"row {self.rows}"

    def write(self, table: Table, key: str, register: Register, stamp: Stamp, seq: int, values: tuple[Any, ...], by: Key) -> Write:
        if not register.signed:
            return Write(table.name, key, register.name, stamp, seq, values)
        body = body_of(table.name, key, register.name, stamp, seq, values)
        return Write(table.name, key, register.name, stamp, seq, values, body, by.sign(body))

    def row(self, table: Table, key: str) -> tuple[Any, Any]:
        connection = self.replica.connection
        query = "SELECT register, generation, rank, claim, hlc, author, seq FROM changes WHERE tbl = ? AND key = ? ORDER BY register"
        columns = [f'"{column.sql_name}"' for register in table.registers for column in register.columns]
        row = connection.execute(f'SELECT updated_at, {", ".join(columns)} FROM "{table.name}" WHERE "{table.key}" = ?', (key,)).fetchone()
        return connection.execute(query, (table.name, key)).fetchall(), row


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.replica.close()


@st.composite
def some_writes(draw: st.DrawFn) -> tuple[Table, list[tuple[Register, Stamp, int, tuple[Any, ...], int]]]:
    """A table, and writes of one of its rows: register, stamp, number, values, index of the author."""
    table = draw(st.sampled_from(EVERY_TABLE))
    registers = [register for register in table.registers if (table.name, register.name) not in BY_THE_CHAIN]
    found = []
    for number in range(draw(st.integers(1, 7))):
        register = draw(st.sampled_from(registers))
        author = draw(st.integers(0, 2))
        hlc = ((EPOCH_MS << 16) + draw(st.integers(0, 3))) * (-1 if register.first else 1)
        generation = draw(st.sampled_from([0, 0, 1, 65_536, 65_537]))
        stamp = Stamp(generation, draw(st.integers(0, 3)), draw(st.integers(0, 2)), hlc, b"")
        values = tuple(draw(st.sampled_from(TYPES[column.type])) for column in register.columns[:3])
        values += (None,) * (len(register.columns) - len(values))
        found.append((register, stamp, 1000 + number, values, author))
    return table, found


def expected(table: Table, writes: list[Write]) -> list[tuple[Any, ...]]:
    """What should stand in `changes`: the greatest of each register, in the life of the creating one or a later."""
    best: dict[str, Write] = {}
    for write in writes:
        rival = best.get(write.register)
        if rival is None or write.stamp > rival.stamp:
            best[write.register] = write
    made = best.get(table.creating.name)
    life = made.stamp.generation >> RETRY_BITS if made else 0
    kept = [write for write in best.values() if write.stamp.generation >> RETRY_BITS >= life]
    return sorted((write.register, *write.stamp, write.seq) for write in kept)


def in_batches(bench: Bench, writes: list[Write], rng: random.Random) -> None:
    while writes:
        size = rng.randint(1, len(writes))
        bench.replica.merge(writes[:size])
        writes = writes[size:]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=some_writes(), rng=st.randoms(use_true_random=False))
def test_order_batches_and_repetition_change_nothing(bench: Bench, some: Any, rng: random.Random) -> None:
    table, drawn = some
    rows = []
    for _ in range(2):
        key = bench.key()
        writes, stamps = [], set()
        for register, stamp, seq, values, index in drawn:
            author, signer = bench.authors[index]
            stamped = stamp._replace(author=author)
            if (register.name, stamped) not in stamps:  # a stamp is given once
                stamps.add((register.name, stamped))
                writes.append(bench.write(table, key, register, stamped, seq, values, signer))
        plan = [*writes, *rng.sample(writes, rng.randint(0, len(writes)))]
        rng.shuffle(plan)
        in_batches(bench, plan, rng)
        bench.replica.verify_pending()
        found, row = bench.row(table, key)
        assert found == expected(table, writes)
        rows.append(row)
    assert rows[0] == rows[1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=4), rng=st.randoms(use_true_random=False))
def test_under_one_stamp_the_bytes_decide(bench: Bench, values: list[str], rng: random.Random) -> None:
    """Two databases under one author can give one stamp twice; all replicas then settle on one of the two."""
    author, _ = bench.authors[0]
    found = []
    for _ in range(2):
        key = bench.key()
        base = Write("jobs", key, "tune", Stamp(0, 0, 0, EPOCH_MS << 16, author), 500, ("", 0))
        writes = [base._replace(values=(value, 0), seq=500 + number) for number, value in enumerate(values)]
        rng.shuffle(writes)
        in_batches(bench, writes, rng)
        found.append(bench.replica.connection.execute("SELECT title FROM jobs WHERE id = ?", (key,)).fetchone())
    assert found == [(max(values),)] * 2


def test_a_repair_changes_nothing_about_the_laws(bench: Bench) -> None:
    author, _ = bench.authors[0]
    key = bench.key()
    writes = [
        Write("jobs", key, "hold", Stamp(0, 0, 0, (EPOCH_MS << 16) + number, author), 600 + number, (number % 2,)) for number in range(4)
    ]
    bench.replica.merge(writes[::2], repair=True)
    bench.replica.merge(writes)
    bench.replica.merge(writes[:2], repair=True)
    found, _ = bench.row(TABLES[0], key)
    assert found == [("hold", *writes[-1].stamp, writes[-1].seq)]
