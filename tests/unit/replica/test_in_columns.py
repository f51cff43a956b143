"""Of the rows that a peer lacks, those with the same registers are read column by column, and everything else is left to go singly."""

from __future__ import annotations

import pytest

from p2pqueue.errors import DamagedHome
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.wire.columns import WellFormed
from p2pqueue.replica.wire.in_columns import FEWEST, in_columns
from p2pqueue.replica.write import Write
from tests.unit.replica.kit import Space, everything, make_clip, write_of

_CHANGES = "SELECT tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature FROM changes ORDER BY tbl, key, register"


def read(replica: Replica) -> WellFormed:
    return replica.read(lambda connection: in_columns(connection, replica.shapes, connection.execute(_CHANGES).fetchall()))


def fill(replica: Replica, count: int) -> list[str]:
    keys = [replica.write(make_clip) for _ in range(count)]
    for key in keys:
        replica.write(lambda writer, key=key: writer.put("clips", key, "title", {"title": "t"}))  # type: ignore[misc]
    return keys


def as_sent(write: Write) -> tuple[object, ...]:
    return (*write[:5], write.body or write.values, write.signature)


def test_all_writes_are_there_whichever_way_they_go() -> None:
    with Space().replica("here") as here:
        fill(here, 20)
        here.write(lambda writer: writer.put("clips", "half", "title", {"title": "alone"}))
        found = read(here)
        assert {as_sent(write) for write in found} == {as_sent(write) for write in everything(here)}
        assert [(rows.table, len(rows.keys), [each.name for each in rows.registers]) for rows in found.alike] == [
            ("clips", 20, ["made", "title"])
        ]
        assert {write.table for write in found.single if write.key != "half"} == {"devices", "authors"}


def test_few_rows_of_a_kind_go_one_by_one() -> None:
    with Space().replica("here") as here:
        fill(here, FEWEST - 1)
        assert read(here).alike == ()
        fill(here, 1)
        assert len(read(here).alike) == 1


def test_a_body_that_says_the_same_in_other_bytes_goes_singly_and_so_do_its_neighbours() -> None:
    with Space().replica("here") as here:
        key = fill(here, 5)[2]
        body = here.read(
            lambda connection: connection.execute("SELECT body FROM changes WHERE key = ? AND register = 'made'", (key,)).fetchone()[0]
        )
        longer = b"\xdc\x00\x06" + body[1:]  # an array whose length takes two bytes more
        here.write(
            lambda writer: writer.connection.execute("UPDATE changes SET body = ? WHERE key = ? AND register = 'made'", (longer, key))
        )
        found = read(here)
        assert found.alike == ()
        assert longer in {write.body for write in found.single}


def test_what_is_unknown_here_goes_singly() -> None:
    author = b"a" * 16
    with Space().replica("here") as here:
        here.merge([write_of(author, seq, "colour", ("red",), key=f"k{seq}", table="clips") for seq in range(1, 9)])
        here.merge([write_of(author, seq, "colour", ("red",), key=f"k{seq}", table="cars") for seq in range(9, 17)])
        found = read(here)
        assert found.alike == ()
        assert len([write for write in found.single if write.register == "colour"]) == 16


def test_a_change_without_its_values_is_told_as_damage() -> None:
    with Space().replica("here") as here:
        key = fill(here, 5)[0]
        here.write(lambda writer: writer.connection.execute("DELETE FROM clips WHERE id = ?", (key,)))
        with pytest.raises(DamagedHome, match="no values"):
            read(here)
