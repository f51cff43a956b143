"""Memory for shards on their way out is bounded, in all and for each peer, and used again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from p2pqueue.errors import WorldError
from p2pqueue.peers.shards.buffers import Buffers

KIB = 1024


def test_a_buffer_has_at_least_the_size_that_was_asked_for_and_is_used_again() -> None:
    buffers = Buffers(1024 * KIB)
    with buffers.of(100 * KIB, "one") as first:
        assert len(first) >= 100 * KIB
        first[0] = 7
    with buffers.of(99 * KIB, "two") as second:
        assert second[0] == 7  # the same memory
    buffers.clear()
    with buffers.of(100 * KIB, "one") as third:
        assert third[0] == 0
    assert buffers.used == 0


def test_one_peer_gets_half_of_the_room_and_another_one_the_rest() -> None:
    buffers = Buffers(512 * KIB, patience=0.01)
    with buffers.of(128 * KIB, "slow"), buffers.of(128 * KIB, "slow"):
        with pytest.raises(WorldError, match="no memory for more shards"), buffers.of(64 * KIB, "slow"):
            pass
        with buffers.of(256 * KIB, "quick"):
            with pytest.raises(WorldError), buffers.of(64 * KIB, "third"):
                pass


def test_what_is_larger_than_the_room_is_given_alone() -> None:
    buffers = Buffers(128 * KIB, patience=0.01)
    with buffers.of(1024 * KIB, "one") as buffer:
        assert len(buffer) == 1024 * KIB
        with pytest.raises(WorldError), buffers.of(1, "two"):
            pass


def test_whoever_waits_gets_what_comes_free_and_the_room_is_never_passed() -> None:
    buffers, most, lock = Buffers(512 * KIB), [0], threading.Lock()

    def work(number: int) -> None:
        with buffers.of(64 * KIB * (1 + number % 3), f"peer {number % 4}"), lock:
            most[0] = max(most[0], buffers.used)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(400)))
    assert buffers.used == 0
    assert 0 < most[0] <= 512 * KIB
