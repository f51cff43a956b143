"""How does a test's program reach the home of its device, and what happens at once when it has written there?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from p2pqueue.errors import ResultTimeout
from p2pqueue.home import Home
from p2pqueue.jobs import rows
from p2pqueue.jobs.access import Access

if TYPE_CHECKING:
    import sqlite3

    from p2pqueue.clock import Wall
    from p2pqueue.jobs.follower import Follower, Tell
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.writer import Writer

T = TypeVar("T")


class Program(Access):
    """The program's way to a device of a test; `then` is called after each thing that it writes, `bring` for each file
    that isn't there."""

    def __init__(self, home: Home, *, wall: Wall, then: Callable[[], object], bring: Callable[[str], object]) -> None:
        super().__init__(home, wall=wall)
        self.bring = bring
        self._then = then
        self._ends = _Ends(self)

    @property
    def follower(self) -> Follower:
        """Whom those ask who wait: in a test nothing ends a job while somebody waits for it."""
        return cast("Follower", self._ends)

    def write(self, fn: Callable[[Writer], T]) -> T:
        """As in life; and what can be run then has run on return."""
        value = super().write(fn)
        self._then()
        return value

    async def awrite(self, fn: Callable[[Writer], T]) -> T:
        """As `write`, without blocking the loop."""
        value = await super().awrite(fn)
        await asyncio.to_thread(self._then)
        return value


class Rows:
    """The replica of a test's device, as the parts of its worker write there: they start nothing by it."""

    companion: Any = None

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def replica(self) -> Replica:
        """The replica itself."""
        return self._access.replica

    def put(self, fn: Callable[[Writer], T]) -> T:
        """Runs one transaction."""
        return Access.write(self._access, fn)

    async def write(self, fn: Callable[[Writer], T], *, quiet: bool = False) -> T:
        """Runs one transaction."""
        return self.put(fn)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs one short read transaction."""
        return self._access.read(fn)


class _Ends:
    """Tells those who wait for a job that has not ended that nothing ends it but the test itself."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @contextmanager
    def following(self, job_id: str, tell: Tell) -> Iterator[None]:
        row = self._access.read(lambda connection: rows.get(connection, job_id))
        if row is not None and not row.ended:
            now = self._access.replica.now()
            why = self._access.read(lambda connection: rows.why(connection, row, node_running=True, now=now)) or "it runs"
            words = f"job {job_id} is {row.status} ({why}), and in a test waiting doesn't end it: advance the clock, or join the devices"
            raise ResultTimeout(words, job_id=job_id)
        yield

    def close(self) -> None:
        pass
