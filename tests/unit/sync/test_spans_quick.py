"""The quick ways to make and to lessen a set of runs give what the slow ones give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.replica.spans import Spans

NUMBERS = st.sets(st.integers(1, 60))


@given(NUMBERS)
def test_a_set_made_from_sorted_numbers_is_that_of_the_same_numbers_added(numbers: set[int]) -> None:
    assert Spans.of_sorted(sorted(numbers)) == Spans((number, number) for number in numbers)


@given(NUMBERS)
def test_a_set_found_by_halves_is_that_of_the_same_numbers_added(numbers: set[int]) -> None:
    assert Spans.of_distinct(sorted(numbers)) == Spans((number, number) for number in numbers)


@given(NUMBERS, st.integers(0, 61))
def test_a_number_that_was_taken_out_is_not_in_and_all_others_are(numbers: set[int], gone: int) -> None:
    spans = Spans((number, number) for number in numbers)
    spans.remove(gone)
    assert spans == Spans((number, number) for number in numbers - {gone})


def test_numbers_that_come_twice_count_once() -> None:
    assert list(Spans.of_sorted([1, 1, 2, 2, 4])) == [(1, 2), (4, 4)]
