"""When was a device heard last that is not linked any more? In a local table that never replicates.

It is written once for each link that ends, not while it lasts.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import TYPE_CHECKING

from p2pqueue.errors import P2PQueueError

if TYPE_CHECKING:
    from p2pqueue.replica.store import Store
    from p2pqueue.replica.writer import Writer

_TABLE = "CREATE TABLE IF NOT EXISTS seen (device TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID"

_log = logging.getLogger(__name__)


def read(connection: sqlite3.Connection) -> dict[str, int]:
    """When each device was heard last before its link ended, in milliseconds UTC."""
    try:
        return dict(connection.execute("SELECT device, at FROM seen").fetchall())
    except sqlite3.OperationalError:  # no link has ended yet
        return {}


class Seen:
    """Keeps when devices were heard last whose links have ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[str, int] = {}
        self._changed = asyncio.Event()

    def lost(self, device_id: str, heard_at: float | None) -> None:
        """The link to a device has ended; it was heard last at that time, in seconds UTC."""
        if heard_at is not None:
            self._pending[device_id] = int(heard_at * 1000)
            self._changed.set()

    async def run(self) -> None:
        """Keeps what comes, for ever."""
        while True:
            await self._changed.wait()
            await self.save()

    async def save(self) -> None:
        """Keeps what has come. A full disk costs nothing more than the times themselves."""
        self._changed.clear()
        rows, self._pending = list(self._pending.items()), {}
        if not rows:
            return
        try:
            await self._store.write(lambda writer: _keep(writer, rows), quiet=True)
        except P2PQueueError as error:
            _log.warning("when other devices were heard last is not kept: %s", error)


def _keep(writer: Writer, rows: list[tuple[str, int]]) -> None:
    writer.connection.execute(_TABLE)
    writer.connection.executemany("INSERT OR REPLACE INTO seen (device, at) VALUES (?, ?)", rows)
