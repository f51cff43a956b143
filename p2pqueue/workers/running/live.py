"""What happens to jobs right now, for those who watch?

Kept in memory: progress reaches watchers at every step, while the row gets it every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from typing import Any

Event = dict[str, Any]


class Watcher:
    """One who watches some jobs, or all of them. Events of one job that were not taken yet become one."""

    def __init__(self, jobs: Collection[str] | None) -> None:
        self.jobs = None if jobs is None else frozenset(jobs)
        self._waiting: dict[str, Event] = {}
        self._news = asyncio.Event()

    def wants(self, job_id: str) -> bool:
        """Says whether this watcher asked for the job."""
        return self.jobs is None or job_id in self.jobs

    def tell(self, event: Event) -> None:
        """Hands over an event; the newest of a job replaces an older one."""
        self._waiting[event["id"]] = event
        self._news.set()

    async def events(self) -> AsyncIterator[Event]:
        """Gives the events as they come, without end."""
        while True:
            await self._news.wait()
            self._news.clear()
            waiting, self._waiting = self._waiting, {}
            for event in waiting.values():
                yield event


class Live:
    """Passes on what happens to jobs."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()

    @contextmanager
    def watch(self, jobs: Collection[str] | None) -> Iterator[Watcher]:
        """A watcher of these jobs (None: of all), for as long as the block runs."""
        watcher = Watcher(jobs)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    @property
    def watched(self) -> bool:
        """Says whether anybody watches; if not, nobody need read rows for them."""
        return bool(self._watchers)

    def asked(self, jobs: Collection[str]) -> list[str]:
        """Those of the jobs that somebody watches."""
        return [job_id for job_id in jobs if any(watcher.wants(job_id) for watcher in self._watchers)]

    def tell(self, event: Event) -> None:
        """Tells an event (a map with the job's `id`) to those who asked for its job."""
        for watcher in self._watchers:
            if watcher.wants(event["id"]):
                watcher.tell(event)
