"""Which numbers are in, and which gaps are left? Sets of numbers kept as runs. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

Span = tuple[int, int]  # first and last number of a run, both in


class Spans:
    """A set of whole numbers, cheap where they stand in runs."""

    __slots__ = ("_first", "_last")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        for first, last in spans:
            self.add(first, last)

    @classmethod
    def of_sorted(cls, numbers: Iterable[int]) -> Spans:
        """The set of numbers that come in their order: quicker than adding one by one."""
        spans = cls()
        reached = -2
        for number in numbers:
            if number > reached + 1:
                spans._first.append(number)
                spans._last.append(reached)
            reached = number
        spans._last.append(reached)
        del spans._last[0]  # what stands before the first
        return spans

    @classmethod
    def of_distinct(cls, numbers: Sequence[int]) -> Spans:
        """As `of_sorted`, of numbers that come once each: where they are few runs only some of them are looked at."""
        spans = cls()
        parts = [(0, len(numbers) - 1)] if numbers else []
        while parts:
            start, end = parts.pop()
            first, last = numbers[start], numbers[end]
            if last - first > end - start:
                middle = (start + end) // 2
                parts += [(middle + 1, end), (start, middle)]  # the lower half is looked at first
            elif spans._last and spans._last[-1] == first - 1:
                spans._last[-1] = last
            else:
                spans._first.append(first)
                spans._last.append(last)
        return spans

    def remove(self, number: int) -> None:
        """Takes out one number."""
        index = bisect_left(self._last, number)
        if index == len(self._first) or self._first[index] > number:
            return
        first, last = self._first[index], self._last[index]
        parts = [(a, b) for a, b in ((first, number - 1), (number + 1, last)) if a <= b]
        self._first[index : index + 1] = [a for a, _ in parts]
        self._last[index : index + 1] = [b for _, b in parts]

    def add(self, first: int, last: int | None = None) -> None:
        """Takes in a number, or all from `first` to `last`."""
        last = first if last is None else last
        if last < first:
            return
        left = bisect_left(self._last, first - 1)  # the first run that touches or follows
        right = bisect_right(self._first, last + 1)  # the first run beyond
        if left < right:
            first = min(first, self._first[left])
            last = max(last, self._last[right - 1])
        self._first[left:right] = [first]
        self._last[left:right] = [last]

    def add_all(self, numbers: Iterable[int]) -> None:
        """Takes in numbers in any order; those that stand in a run cost little more than one."""
        found = set(numbers)
        if found and max(found) - min(found) < len(found):
            self.add(min(found), max(found))
        elif found:
            self.update(Spans.of_sorted(sorted(found)))

    def update(self, spans: Iterable[Span]) -> None:
        """Takes in every run of another set."""
        for first, last in spans:
            self.add(first, last)

    def forget_to(self, number: int) -> None:
        """Drops every number up to and with `number`."""
        index = bisect_right(self._last, number)
        del self._first[:index], self._last[:index]
        if self._first and self._first[0] <= number:
            self._first[0] = number + 1

    def covers(self, first: int, last: int) -> bool:
        """Says whether all numbers from `first` to `last` are in."""
        if last < first:
            return True
        index = bisect_left(self._last, first)
        return index < len(self._first) and self._first[index] <= first and last <= self._last[index]

    def first_missing(self) -> int:
        """The lowest number from 1 on that isn't in."""
        return self._last[0] + 1 if self._first and self._first[0] <= 1 else 1

    def gaps(self, above: int) -> Iterator[Span]:
        """The runs that are missing between `above` and the highest number in, highest first."""
        for index in range(len(self._first) - 1, -1, -1):
            last = self._first[index] - 1
            first = self._last[index - 1] + 1 if index else above + 1
            if last <= above:
                return
            if first <= last:
                yield max(first, above + 1), last

    def __contains__(self, number: int) -> bool:
        index = bisect_left(self._last, number)
        return index < len(self._first) and self._first[index] <= number

    def __iter__(self) -> Iterator[Span]:
        return iter(list(zip(self._first, self._last, strict=True)))

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._first)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and self._first == other._first and self._last == other._last

    def __repr__(self) -> str:
        return f"Spans({list(self)})"

    @property
    def highest(self) -> int:
        """The highest number in, 0 if there is none."""
        return self._last[-1] if self._last else 0


def run_lengths(spans: Iterable[Span], above: int, *, limit: int) -> list[int]:
    """Gap and length by turns, counted from `above`; of a longer set the `limit` highest runs."""
    runs = list(spans)[-limit:]
    coded: list[int] = []
    reached = above
    for first, last in runs:
        if last <= reached:
            continue
        first = max(first, reached + 1)
        coded += (first - reached - 1, last - first + 1)
        reached = last
    return coded


def from_run_lengths(coded: Sequence[int], above: int) -> Spans:
    """The set that `run_lengths` coded; raises ValueError for what it can't have made."""
    if len(coded) % 2:
        raise ValueError("a run without its length")
    spans = Spans()
    first, last = spans._first, spans._last
    reached = above
    for gap, length in zip(coded[::2], coded[1::2], strict=True):
        if gap < 0 or length < 1 or reached + gap + length >= 1 << 63:
            raise ValueError("a run that goes backwards")
        if gap == 0 and first:
            last[-1] += length
        else:
            first.append(reached + gap + 1)
            last.append(reached + gap + length)
        reached += gap + length
    return spans
