"""Several processes write to one home at once, and a foreign shell gets in between."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing

from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from p2pqueue.replica.replica import Replica
from tests.integration.replica.hands import TABLES
from tests.integration.replica.stage import check, finish, start


def hold_write_lock(home: Home, seconds: float) -> None:
    with closing(sqlite3.connect(home.replica_file, timeout=10, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        shell.execute("ROLLBACK")


def test_a_node_and_four_programs_lose_and_double_nothing_while_a_shell_holds_a_transaction(home: Home, identity: Identity) -> None:
    Replica.open(home.replica_file, tables=TABLES, identity=identity).close()
    hands = [start(home, kind, 6.0) for kind in ("node", "command", "command", "one", "bulk")]
    time.sleep(1.5)
    shell = threading.Thread(target=hold_write_lock, args=(home, 3.0))
    shell.start()
    told = [finish(hand) for hand in hands]
    shell.join()
    keys = [key for each in told for key in each]
    assert len(keys) == len(set(keys))
    assert [len(each) > 0 for each in told] == [True] * 5
    check(home.replica_file, set(keys))
    log = home.replica_file.with_name("replica.sqlite-wal")
    assert not log.exists() or log.stat().st_size < 32 << 20


def test_backups_taken_under_heavy_writes_are_sound(home: Home, identity: Identity) -> None:
    from p2pqueue.replica.file.backup import backup, restore

    Replica.open(home.replica_file, tables=TABLES, identity=identity).close()
    hands = [start(home, kind, 4.0) for kind in ("node", "bulk")]
    for index in range(20):
        target = home.path / f"backup-{index}"
        backup(home.replica_file, target)
        check(target, set())
        time.sleep(0.05)
    keys = {key for hand in hands for key in finish(hand)}
    check(home.replica_file, keys)
    restore(home.path / "backup-19", home.path / "restored.sqlite")
    with Replica.open(home.path / "restored.sqlite", tables=TABLES, identity=identity) as restored:
        assert restored.fork_reason is not None
        assert restored.counts("clips") != {}
