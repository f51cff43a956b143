"""What the commands of a device are told of the workers around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from p2pqueue.jobs import local
from p2pqueue.jobs.waiting import Ability
from p2pqueue.workers.claiming.around import Around
from p2pqueue.workers.claiming.company import Company
from p2pqueue.workers.claiming.presence import Presence, Roster
from tests.unit.jobs.desk import Desk

ME = Presence("a" * 32, Ability("box", frozenset({"work"})), 30, slots=1, free=1)


class Written:
    """The store of a desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def write(self, fn: Callable[[Any], Any], *, quiet: bool = False) -> Any:
        return self._desk.write(fn)


async def settled(seen: Callable[[], bool]) -> None:
    while not seen():  # noqa: ASYNC110 - what a desk shows is asked for
        await asyncio.sleep(0.01)


async def test_a_job_says_that_its_device_has_just_started_as_long_as_that_is_why_it_waits() -> None:
    desk = Desk()
    desk.write(lambda writer: local.remember_ability(writer.connection, ME.ability))
    job_id = desk.enqueue()
    roster = Roster(started=time.monotonic() + 600, others=True)  # the machine of the test may be slow
    around = Around(cast("Any", Written(desk)), roster, Company(roster, lambda: ME, lambda: None, lambda begun, back: None))
    running = asyncio.get_running_loop().create_task(around.run())
    try:
        async with asyncio.timeout(30):
            await settled(lambda: desk.why(job_id) != "waiting for a free slot")
            assert desk.why(job_id) == "box has just started, and hears first what other devices did (7 s at most)"
            roster.others = False
            await settled(lambda: "has just started" not in (desk.why(job_id) or ""))
        assert desk.why(job_id) == "waiting for a free slot"
    finally:
        running.cancel()
        await asyncio.wait([running])
