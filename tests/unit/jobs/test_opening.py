"""A home whose database was lost is told so, and nothing is begun in its place."""

from __future__ import annotations

import pytest

from p2pqueue.errors import DamagedHome
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from p2pqueue.jobs.opening import open_replica, open_store


async def test_a_database_that_was_cut_down_to_nothing_is_refused(home: Home, identity: Identity) -> None:
    open_replica(home, identity).close()
    home.replica_file.write_bytes(b"")
    with pytest.raises(DamagedHome, match="is empty"):
        open_replica(home, identity)
    with pytest.raises(DamagedHome, match="is empty"):
        await open_store(home, identity)
    assert home.replica_file.stat().st_size == 0
