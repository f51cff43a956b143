"""Who should have a file is told by the jobs that name it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from p2pqueue import File, Queue
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from p2pqueue.peers.shards.whereabouts import holders


def test_whoever_enqueued_an_input_that_is_needed_still_should_have_it(home: Home, identity: Identity, tmp_path: Path) -> None:
    queue = Queue("studio", home=home)

    @queue.task
    def count(text: File) -> int:
        return len(text.bytes())

    path = tmp_path / "text.txt"
    path.write_bytes(b"x" * 5000)
    job = count.enqueue(File(path))
    queue.close()
    with sqlite3.connect(home.replica_file) as connection:
        (manifest,) = connection.execute("SELECT input_manifest FROM jobs WHERE id = ?", (job.id,)).fetchone()
        assert holders(connection, manifest, here="another") == [(identity.device_id, identity.label)]
        assert holders(connection, manifest, here=identity.device_id) == []
        assert holders(connection, "p2pq1-other", here="another") == []
    connection.close()
