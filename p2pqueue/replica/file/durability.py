"""When is on the disk what a store has committed?

A commit of a store doesn't wait for the disk: a sync of the log follows it, beside the next transaction where somebody
is in a hurry to go on. Until then nobody who wrote is answered, and nothing that was read goes out. One sync stands
for all commits before it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from p2pqueue.errors import WorldError
from p2pqueue.private import in_words
from p2pqueue.replica.file.connection import MEMORY
from p2pqueue.replica.file.database import Database

Then = Callable[[WorldError | None], object]  # called in the syncing thread, with what the disk said where it failed

_sync = getattr(os, "fdatasync", os.fsync)
_AGAIN = 0.001  # seconds until it is looked again whether a commit has ended that was about to


class Durability:
    """Makes the commits of one database durable. From `take_over` on its connection leaves that to this."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log = -1
        self._durable = 0  # of the commits so many are on the disk
        self._failed = False  # the last sync did: the system may take for written what isn't, so a next one proves nothing by itself
        self._asked: SimpleQueue[Then | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def take_over(self) -> None:
        """From now on commits need `sync` or `sync_soon`. Raises in words; then they are durable by themselves, as before."""
        database = self._database
        if database.path == MEMORY:
            return
        try:
            self._log = os.open(database.path + "-wal", os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise in_words(error, Path(database.path + "-wal")) from error
        self._durable = database.commits_ended
        database.connection.execute("PRAGMA synchronous = NORMAL")  # checkpoints still sync

    @property
    def is_due(self) -> bool:
        """Says whether something was committed that may not be on the disk."""
        return self._log >= 0 and self._durable < self._database.commits_begun

    def sync(self) -> WorldError | None:
        """Puts on the disk what has been committed; gives what the disk says where it fails."""
        ended = self._database.commits_ended
        if self._log < 0 or self._durable >= ended:
            return None
        try:
            if self._failed and not self._database.log.move_all():
                raise OSError(errno.EIO, "after a failed sync the log can't be moved into the database yet")
            _sync(self._log)
        except OSError as error:
            self._failed = True
            return in_words(error, Path(self._database.path))
        self._failed = False
        self._durable = max(self._durable, ended)
        return None

    def sync_soon(self, then: Then) -> None:
        """The same in a thread of its own, which tells of it."""
        self._asked.put(then)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="p2pqueue-durability", daemon=True)
            self._thread.start()

    async def settle(self) -> None:
        """Returns when all is on the disk that could be read until now. Raises what the disk says."""
        begun, loop = self._database.commits_begun, asyncio.get_running_loop()
        while self._log >= 0 and self._durable < begun:
            if self._durable < self._database.commits_ended:
                await self._synced(loop)
            else:
                await asyncio.sleep(_AGAIN)

    async def _synced(self, loop: asyncio.AbstractEventLoop) -> None:
        synced: asyncio.Future[WorldError | None] = loop.create_future()

        def tell(failure: WorldError | None) -> None:
            loop.call_soon_threadsafe(_settle, synced, failure)

        self.sync_soon(tell)
        failure = await synced
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Tells all that asked, and gives the log back."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _run(self) -> None:
        while True:
            asked = [self._asked.get()]
            while not self._asked.empty():
                asked.append(self._asked.get())
            failure = self.sync()
            for then in asked:
                if then is None:
                    return
                then(failure)


def _settle(synced: asyncio.Future[WorldError | None], failure: WorldError | None) -> None:
    if not synced.done():
        synced.set_result(failure)
