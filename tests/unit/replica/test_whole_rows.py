"""A peer that lacks much gets it row by row, the newest first, whenever the registers of a row were written."""

from __future__ import annotations

import pytest

from p2pqueue.replica.effects import Page, ReadUnsent
from p2pqueue.replica.peering import Peering
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.writer import Put, Writer
from tests.unit.replica.kit import Space

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


def pages(replica: Replica, limit: int) -> list[Page]:
    """All pages that a peer gets that has nothing."""
    held: dict[bytes, Spans] = {}
    got: list[Page] = []
    while not got or got[-1].rest == "more":
        request = ReadUnsent(1, {}, {author: tuple(spans) for author, spans in held.items()}, False, limit, 1 << 20)
        page = Peering(replica, "peer").answer(request)
        assert isinstance(page, Page)
        assert page.writes or page.rest == "nothing"
        got.append(page)
        for write in page.writes:
            held.setdefault(write.stamp.author, Spans()).add(write.seq)
        for author, span in page.covered.items():
            held.setdefault(author, Spans()).add(*span)
    return got


@pytest.mark.parametrize("limit", [3, 50, 100, 250, 5_000])
def test_everything_is_sent_once_whatever_fits_into_a_page(limit: int) -> None:
    with Space().replica("here") as here:
        fill(here)
        sent = [write.seq for page in pages(here, limit) for write in page.writes]
        live = here.read(lambda connection: connection.execute("SELECT seq FROM changes ORDER BY seq").fetchall())
    assert sorted(sent) == [seq for (seq,) in live]


@pytest.mark.parametrize("limit", [100, 250])
def test_all_registers_of_a_row_come_in_one_page_the_newest_rows_first(limit: int) -> None:
    with Space().replica("here") as here:
        keys = fill(here)
        found = [[write.key for write in page.writes if write.table == "clips"] for page in pages(here, limit)]
    assert all(len(page) <= limit for page in found)
    assert all(page.count(key) == 3 for page in found for key in page)
    assert list(dict.fromkeys(key for page in found for key in page)) == keys[::-1]
