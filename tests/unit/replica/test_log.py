"""The write-ahead log of a replica, where several threads have written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.replica.file.connection import WAL_LIMIT
from p2pqueue.replica.replica import Replica
from tests.unit.replica.kit import Space, make_clip, open_replica


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    opened = open_replica(Space().device("here"), path=tmp_path / "replica.sqlite")
    yield opened
    opened.close()


def test_a_thread_may_look_while_another_begins_to_move(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that reads carries out what was deferred, and so looks at the log beside the one that writes."""
    begun: list[str] = []
    failures: list[BaseException] = []

    def look() -> None:
        try:
            replica.log.checkpoint_if_due()
        except RuntimeError as error:
            failures.append(error)

    start = threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        if thread.name == "p2pqueue-log":
            begun.append(thread.name)
            beside = threading.Thread(target=look)
            start(beside)
            beside.join()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    for _ in range(20):
        replica.write(lambda writer: [make_clip(writer, "x" * 10_000) for _ in range(100)])
        replica.log.checkpoint_if_due()
        if begun:
            break
    assert begun == ["p2pqueue-log"]
    assert failures == []
    assert Path(f"{replica.path}-wal").stat().st_size > WAL_LIMIT
