"""Bytes under way: no more are taken than there are, except by force, and all come back."""

from __future__ import annotations

from p2pqueue.payload.fetching.budget import Budget, Buffers


def test_no_more_is_given_than_there_is() -> None:
    budget = Budget(10)
    assert budget.try_take(6)
    assert not budget.try_take(5)
    assert budget.try_take(4)
    budget.give(6)
    assert budget.try_take(6)


def test_what_is_larger_than_all_takes_all() -> None:
    budget = Budget(10)
    assert budget.try_take(50)
    assert not budget.try_take(1)
    budget.give(50)
    assert budget.try_take(10)


def test_what_is_taken_by_force_is_owed() -> None:
    budget = Budget(10)
    assert budget.try_take(8)
    budget.force(8)
    budget.give(8)
    assert not budget.try_take(3)
    budget.give(8)
    assert budget.try_take(10)


def test_a_buffer_is_used_again() -> None:
    buffers = Buffers(100)
    first = buffers.take()
    assert len(first) == 100
    buffers.give(first)
    assert buffers.take() is first
    assert buffers.take() is not first
