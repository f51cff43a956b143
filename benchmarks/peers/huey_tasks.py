"""Which tasks does a Huey consumer run in the benchmark? `BENCH_HUEY` names the store: `sqlite:PATH` or `redis:PORT`."""

from __future__ import annotations

import os
from typing import Any

from huey import RedisHuey, SqliteHuey

from benchmarks.peers.marks import mark


def make_huey(store: str) -> Any:
    """A Huey on that store; the SQLite one as durable as ours (`synchronous=FULL`)."""
    kind, place = store.split(":", 1)
    if kind == "sqlite":
        return SqliteHuey(filename=place, fsync=True)
    return RedisHuey(host="127.0.0.1", port=int(place))


huey = make_huey(os.environ["BENCH_HUEY"])


@huey.task()  # type: ignore[untyped-decorator]
def noop() -> None:
    """Does nothing."""


@huey.task()  # type: ignore[untyped-decorator]
def note(sent_ns: int) -> None:
    """Tells when it started."""
    mark(sent_ns)
