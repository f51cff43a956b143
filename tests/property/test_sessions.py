"""Two replicas come to hold the same, whatever the network does to the messages of their sessions.

Hypothesis chooses every step: who writes, which message in flight arrives, arrives twice, is lost, overtakes
another, when a session is cut, when time passes. Then the network behaves, and both must be equal and miss nothing.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pqueue.jobs.tables import TABLES
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.syncing.effects import Effect, Report, Send
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.syncing.sync import Session
from p2pqueue.replica.wire.codec import decode, encode
from tests.simulation.device import EPOCH_MS, Key

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1), st.integers(0, 5)),
        st.tuples(st.sampled_from(["deliver", "deliver", "deliver", "repeat", "lose"]), st.integers(0, 1), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 30)),
        st.tuples(st.just("cut"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@pytest.fixture(scope="module")
def images() -> list[bytes]:
    found = []
    for name in ("left", "right"):
        with Replica.open(":memory:", tables=TABLES, identity=Key(name), machine=name, random=random.Random(name).randbytes) as replica:
            found.append(replica.image())
    return found


class Pair:
    """Two replicas, the sessions between them, and the messages in flight."""

    def __init__(self, images: list[bytes], page: int) -> None:
        self.now = 0.0
        self.page = page
        self.random = random.Random(1)
        names = ("left", "right")
        self.replicas = [
            Replica.open(":memory:", tables=TABLES, identity=Key(name), machine=name, wall=self.wall, image=image)
            for name, image in zip(names, images, strict=True)
        ]
        self.peerings = [Peering(self.replicas[side], Key(names[1 - side]).device_id) for side in (0, 1)]
        self.flying: list[list[bytes]] = [[], []]  # to each side
        self.written: set[str] = set()
        self.cut()

    def wall(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def cut(self) -> None:
        """Both begin anew; what was in flight still arrives."""
        self.sessions = [Session(self.random.randbytes(8), jitter=self.random.random, now=self.now, max_writes=self.page) for _ in (0, 1)]
        for side in (0, 1):
            self.do(side, self.sessions[side].start(self.now))

    def do(self, side: int, effects: list[Effect]) -> None:
        session = self.sessions[side]
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Send):
                self.flying[1 - side].append(encode(effect.message))
            elif not isinstance(effect, Report):
                queue += session.answered(effect, self.peerings[side].answer(effect), self.now)

    def write(self, side: int, choice: int) -> None:
        def fn(writer: Any) -> None:
            key = f"job {choice}"
            if choice < 3 or writer.connection.execute("SELECT 1 FROM jobs WHERE id = ?", (key,)).fetchone() is None:
                writer.put("jobs", key, "spec", {"queue": "q", "task": "t", "created_at": writer.now})
                self.written.add(key)
            for _ in range(choice):
                writer.put("jobs", key, "tune", {"title": f"{side} {writer.hlc}"})

        self.replicas[side].write(fn)
        self.do(side, self.sessions[side].committed(self.now, local=True))

    def deliver(self, side: int, index: int, *, keep: bool) -> None:
        flying = self.flying[side]
        if flying:
            raw = flying[index % len(flying)] if keep else flying.pop(index % len(flying))
            message = decode(raw)
            assert message is not None
            self.do(side, self.sessions[side].received(message, self.now))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := min(session.due for session in self.sessions)) <= until:
            self.now = max(self.now + 0.001, due)
            for side in (0, 1):
                self.do(side, self.sessions[side].tick(self.now))
        self.now = until

    def settle(self) -> None:
        """From here on the network is perfect."""
        for _ in range(40):
            for side in (0, 1):
                while self.flying[side]:
                    self.deliver(side, 0, keep=False)
            if not any(self.flying):
                self.wait(0.5)

    def state(self, side: int) -> Any:
        connection = self.replicas[side].connection
        changes = connection.execute("SELECT * FROM changes ORDER BY tbl, key, register").fetchall()
        jobs = connection.execute("SELECT id, title, status FROM jobs ORDER BY id").fetchall()
        return changes, jobs, dict(self.replicas[side].heads())

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()


@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS, page=st.sampled_from([1, 2, 200]))
def test_two_replicas_settle_whatever_becomes_of_their_messages(images: list[bytes], steps: list[tuple[str, int, int]], page: int) -> None:
    pair = Pair(images, page)
    try:
        for kind, side, number in steps:
            if kind == "write":
                pair.write(side, number)
            elif kind == "wait":
                pair.wait(number / 10)
            elif kind == "cut":
                pair.cut()
            elif kind == "lose":
                del pair.flying[side][number : number + 1]
            else:
                pair.deliver(side, number, keep=kind == "repeat")
        pair.settle()
        left, right = pair.state(0), pair.state(1)
        assert left == right
        assert pair.written <= {row[0] for row in left[1]}
        assert not pair.replicas[0].held()
        assert not pair.replicas[1].held()
    finally:
        pair.close()
