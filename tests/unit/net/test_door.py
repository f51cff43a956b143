"""Strangers at the door."""

from __future__ import annotations

import asyncio
from typing import Any

from p2pqueue.net.door import FAILURES, MOST_FROM_ONE, MOST_UNKNOWN, Door
from tests.unit.net.kit import until


class Visitor:
    """A transport, as far as the door cares."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 4000) if name == "peername" else None

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


async def test_few_unknown_connections_come_from_one_address_and_few_in_all() -> None:
    door = Door()
    assert [door.knock(Visitor("10.0.0.1")) for _ in range(MOST_FROM_ONE + 2)] == [True] * MOST_FROM_ONE + [False] * 2
    others = [door.knock(Visitor(f"10.0.1.{number}")) for number in range(MOST_UNKNOWN)]
    assert sum(others) == MOST_UNKNOWN - MOST_FROM_ONE
    door.close()


async def test_a_device_that_is_known_doesnt_count() -> None:
    door = Door()
    for _ in range(3 * MOST_FROM_ONE):
        visitor = Visitor("10.0.0.1")
        assert door.knock(visitor)
        door.vouched(visitor)
    door.close()


async def test_connections_that_ended_dont_count() -> None:
    door = Door()
    for _ in range(3 * MOST_FROM_ONE):
        visitor = Visitor("10.0.0.1")
        assert door.knock(visitor)
        visitor.abort()
    door.close()


async def test_a_request_that_doesnt_come_in_time_ends_the_connection() -> None:
    door, slow, quick = Door(request_wait=0.05), Visitor("10.0.0.1"), Visitor("10.0.0.2")
    assert door.knock(slow)
    assert door.knock(quick)
    door.arrived(quick)
    await until(lambda: slow.closed)
    await asyncio.sleep(0.05)
    assert not quick.closed
    door.answered(quick)  # a stranger's second request has as little time
    await until(lambda: quick.closed)


async def test_an_address_that_fails_again_and_again_waits() -> None:
    now = [1000.0]
    door = Door(clock=lambda: now[0])

    def fail() -> bool:
        visitor = Visitor("10.0.0.1")
        if not door.knock(visitor):
            return False
        door.failed(visitor)
        return True

    assert sum(fail() for _ in range(2 * FAILURES)) == FAILURES
    assert door.knock(Visitor("10.0.0.2"))
    now[0] += 3.0
    assert sum(fail() for _ in range(10)) == 3
    door.close()


async def test_what_is_remembered_of_many_addresses_is_bounded() -> None:
    now = [1000.0]
    door = Door(clock=lambda: now[0])
    for number in range(5000):
        visitor = Visitor(f"10.{number >> 8}.{number & 255}.1")
        assert door.knock(visitor)
        door.failed(visitor)
        now[0] += 0.0001
    assert len(door._failed) <= 1024
