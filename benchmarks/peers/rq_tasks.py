"""Which functions does an RQ worker run in the benchmark?"""

from __future__ import annotations

from benchmarks.peers.marks import mark


def noop() -> None:
    """Does nothing."""


def note(sent_ns: int) -> None:
    """Tells when it started."""
    mark(sent_ns)
