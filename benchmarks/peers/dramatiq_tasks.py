"""Which actors does a Dramatiq worker run in the benchmark? `BENCH_REDIS` is the port of its Redis."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.marks import mark

broker = RedisBroker(host="127.0.0.1", port=int(os.environ["BENCH_REDIS"]))  # type: ignore[no-untyped-call]
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def noop() -> None:
    """Does nothing."""


@dramatiq.actor(max_retries=0)
def note(sent_ns: int) -> None:
    """Tells when it started."""
    mark(sent_ns)
