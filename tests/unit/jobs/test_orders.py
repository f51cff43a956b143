"""Which jobs shall stop, by what was written here."""

from __future__ import annotations

from typing import Any

import pytest

from p2pqueue.jobs.orders import MOST, Order, given, read_order
from tests.unit.jobs.desk import Desk


def orders(desk: Desk, *, after: int = 0) -> list[Order]:
    """The orders that this device gave by its writes beyond that number."""
    replica = desk.replica
    author, _, upto = replica.numbers
    return replica.read(lambda connection: given(connection, author, after=after, upto=upto))


def test_what_was_cancelled_paused_or_deleted_is_ordered_to_stop_and_nothing_else() -> None:
    desk = Desk()
    cancelled, paused, deleted, resumed, _queued = (desk.enqueue() for _ in range(5))
    before = desk.replica.numbers[2]
    ran = desk.claim_one()
    desk.end(ran, "succeeded")
    others = [job_id for job_id in (cancelled, paused, deleted, resumed, _queued) if job_id != ran.job_id]
    cancelled, paused, deleted, resumed = others
    desk.cancel(cancelled)
    desk.hold(paused)
    desk.hold(resumed)
    desk.resume(resumed)
    desk.delete(deleted)
    found = {order.job_id: order.action for order in orders(desk)}
    assert found == {cancelled: "cancel", paused: "pause", deleted: "delete"}
    assert orders(desk, after=before) == orders(desk)
    assert orders(desk, after=desk.replica.numbers[2]) == []


def test_an_order_names_the_generation_that_is_meant() -> None:
    desk = Desk()
    job = desk.enqueue()
    desk.cancel(job)
    first = orders(desk)
    desk.retry(job)
    assert orders(desk) == []
    desk.cancel(job)
    assert [order.generation - first[0].generation for order in orders(desk)] == [1]


def test_of_very_many_those_come_first_that_somebody_runs() -> None:
    desk = Desk()
    ids = [desk.enqueue() for _ in range(MOST + 5)]
    running = desk.claim_one().job_id
    for job_id in ids:
        desk.cancel(job_id)
    found = orders(desk)
    assert len(found) == MOST
    assert running in {order.job_id for order in found}


@pytest.mark.parametrize("values", [None, 7, "job", [], ["job", "cancel"], ["job", "run", 0], [7, "cancel", 0], ["job", "cancel", -1],
                                    ["job", "cancel", True], ["job", "cancel", 1 << 40], ["x" * 65, "cancel", 0]])  # fmt: skip
def test_what_is_no_order_is_none(values: Any) -> None:
    assert read_order(values) is None


def test_an_order_is_read_as_it_was_told() -> None:
    assert read_order(["job", "pause", 3]) == Order("job", "pause", 3)
