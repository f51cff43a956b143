"""How do the commands of this device know what the workers around it can do, and to whom jobs are left?

The node keeps it in one local row, so that listing jobs costs no question to the node. It changes when another device
comes, goes or can do something else; who has a free slot just now is not told.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

from p2pqueue.jobs import local
from p2pqueue.jobs.waiting import Ability
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.claiming.company import Company
from p2pqueue.workers.claiming.presence import Roster

LOOK_EVERY: Final = 1.0  # seconds between two looks at what has changed
LOOK_SOON: Final = 0.2  # seconds, while nothing is claimed yet
WORTH_TELLING: Final = 1.0  # seconds for which a job must still be left to another worker to say so
TOLD: Final = 200  # jobs that are told of
EVERY_JOB: Final = ""  # stands for an id where something is told of all jobs


class Around:
    """Keeps what commands are told of other workers, while `run` runs."""

    def __init__(self, store: Store, roster: Roster, company: Company) -> None:
        self._store = store
        self._roster = roster
        self._company = company
        self._kept: tuple[dict[str, Ability], dict[str, str]] | None = None

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            now = time.monotonic()
            self._roster.look(now, time.time())
            found = self.others(now), self.left(now)
            if found != self._kept:
                await self._store.write(partial(_keep, others=found[0], left=found[1]), quiet=True)
                self._kept = found
            await asyncio.sleep(LOOK_SOON if EVERY_JOB in found[1] else LOOK_EVERY)

    def others(self, now: float) -> dict[str, Ability]:
        """What each other worker can do."""
        return {each.device_id: each.ability for each in self._roster.live(now) if each.slots > 0}

    def left(self, now: float) -> dict[str, str]:
        """Why jobs wait that are left to another worker for a while, or all of them while nothing is claimed yet."""
        if (words := self._company.holds_off()) is not None:
            return {EVERY_JOB: words}
        found = {job_id: words for job_id, (words, until) in self._company.reasons().items() if until > now + WORTH_TELLING}
        return dict(list(found.items())[:TOLD])


def _keep(writer: Writer, others: dict[str, Ability], left: dict[str, str]) -> None:
    local.remember_others(writer.connection, others, left)
