"""A queue with its home, and a worker by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from p2pqueue import Queue
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.unit.jobs.hand import Hand


@pytest.fixture
def queue(home: Home, identity: Identity) -> Iterator[Queue]:
    """A queue on a new home, with the task `double`."""
    made = Queue("studio", home=home)

    @made.task
    def double(n: int, *, times: int = 2) -> int:
        return n * times

    yield made
    made.close()


@pytest.fixture
def hand(queue: Queue) -> Hand:
    """A worker that has the task `double`."""
    return Hand(queue, "double")
