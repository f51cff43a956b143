"""A peer that lacks much gets it row by row, the newest first, whenever the registers of a row were written."""

from __future__ import annotations

import pytest

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.writer import Put, Writer
from tests.unit.replica.kit import Space, pages, writes_of

CLIPS = 300


def fill(replica: Replica) -> list[str]:
    """Clips whose registers were written one after the other, each in all of them; gives their keys, the oldest first."""
    keys = replica.write(lambda writer: writer.make("clips", "made", [(f"clip {number}", 1.0) for number in range(CLIPS)]))

    def write(register: str, values: tuple[object, ...]) -> None:
        def change(writer: Writer) -> None:
            writer.put_many("clips", [Put(key, register, values) for key in keys])

        replica.write(change)

    write("title", ("a title",))
    write("stage", ("done", None))
    return keys


@pytest.mark.parametrize("limit", [3, 50, 100, 250, 5_000])
def test_everything_is_sent_once_whatever_fits_into_a_page(limit: int) -> None:
    with Space().replica("here") as here:
        fill(here)
        sent = [write.seq for page in pages(here, limit) for write in writes_of(page)]
        live = here.read(lambda connection: connection.execute("SELECT seq FROM changes ORDER BY seq").fetchall())
    assert sorted(sent) == [seq for (seq,) in live]


@pytest.mark.parametrize("limit", [100, 250])
def test_all_registers_of_a_row_come_in_one_page_the_newest_rows_first(limit: int) -> None:
    with Space().replica("here") as here:
        keys = fill(here)
        found = [[write.key for write in writes_of(page) if write.table == "clips"] for page in pages(here, limit)]
    assert all(len(page) <= limit for page in found)
    assert all(page.count(key) == 3 for page in found for key in page)
    assert list(dict.fromkeys(key for page in found for key in page)) == keys[::-1]
