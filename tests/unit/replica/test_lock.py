"""Writers of one home come one after the other, and none waits without end."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from p2pqueue.errors import HomeBusy
from p2pqueue.replica.file.lock import WriteLock
from tests.unit.replica.kit import Space, make_clip, open_replica


def test_a_lock_that_is_held_is_waited_for(tmp_path: Path) -> None:
    one, two = WriteLock(tmp_path / "lock"), WriteLock(tmp_path / "lock")
    order: list[str] = []

    def second() -> None:
        with two.held():
            order.append("two")

    thread = threading.Thread(target=second)
    with one.held():
        thread.start()
        time.sleep(0.05)
        order.append("one")
    thread.join()
    assert order == ["one", "two"]
    one.close()
    two.close()


def test_a_lock_that_stays_held_is_given_up_in_words(tmp_path: Path) -> None:
    one, two = WriteLock(tmp_path / "lock"), WriteLock(tmp_path / "lock", wait=0.05)
    with one.held(), pytest.raises(HomeBusy, match="another program has held the write lock"), two.held():
        pass
    with two.held():
        pass
    one.close()
    two.close()


def test_a_busy_writer_does_not_starve_another(tmp_path: Path) -> None:
    one, two = WriteLock(tmp_path / "lock"), WriteLock(tmp_path / "lock")
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with one.held():
                time.sleep(0.001)

    thread = threading.Thread(target=busy)
    thread.start()
    waits = []
    for _ in range(50):
        before = time.perf_counter()
        with two.held():
            waits.append(time.perf_counter() - before)
    stop.set()
    thread.join()
    assert sorted(waits)[45] < 0.25
    one.close()
    two.close()


def test_a_foreign_transaction_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.replica.file.connection.BUSY_WAIT_MS", 50)
    path = tmp_path / "a.sqlite"
    with open_replica(Space().device("here"), path=path) as replica, closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(HomeBusy, match="sqlite3 shell"):
            replica.write(make_clip)
        shell.execute("ROLLBACK")
        replica.write(make_clip)


def test_a_short_foreign_transaction_costs_nothing_but_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    shell = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with open_replica(Space().device("here"), path=path) as replica, closing(shell):
        shell.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, lambda: shell.execute("ROLLBACK"))
        timer.start()
        replica.write(make_clip)
        timer.join()
        assert replica.counts("clips") == {"new": 1}
