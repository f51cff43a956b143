"""How are changes of one kind made together, for much less than one by one?

Enqueues of many producers share a commit anyway; as one batch they share the statements too. A batch that fails is
made again one by one, so that only who is at fault hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from p2pqueue.replica.merging.merged import Done

if TYPE_CHECKING:
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.subscription import Rows
    from p2pqueue.replica.writer import Writer

T = TypeVar("T")


class Alike(Generic[T]):
    """A change that can be made together with others of its kind, for much less than one by one.

    `all` makes the changes for several items and gives what became of each. Called, it makes the one for its own.
    `defer` gives it in the form in which it may be deferred, and what will have become of it.
    """

    __slots__ = ("all", "defer", "item")

    def __init__(
        self, item: Any, all: Callable[[Writer, Sequence[Any]], list[T]], *, defer: Callable[[Any], tuple[bytes, T]] | None = None
    ) -> None:
        self.item = item
        self.all = all
        self.defer = defer

    def __call__(self, writer: Writer) -> T:
        """Makes this change alone."""
        return self.all(writer, [self.item])[0]


@dataclass(frozen=True)
class _Group:
    """Neighbours of one kind, that are told of in the same way."""

    fns: tuple[Callable[[Any], Any], ...]
    loud: bool

    def __call__(self, writer: Writer) -> list[Any]:
        first = self.fns[0]
        if len(self.fns) == 1 or not isinstance(first, Alike):
            return [first(writer)]
        return first.all(writer, [fn.item for fn in self.fns])  # type: ignore[attr-defined]  # all of a group are alike


def run_together(replica: Replica, fns: Sequence[Callable[[Any], Any]], *, loud: Sequence[bool]) -> tuple[list[Done], Rows]:
    """Runs functions in one transaction, as `Replica.commit` does, those that are alike in one batch."""
    groups = list(_groups(fns, loud))
    if len(groups) == len(fns):
        return replica.commit(fns, loud=loud)
    made, heard = replica.commit(groups, loud=[group.loud for group in groups])
    done: list[Done] = []
    for group, each in zip(groups, made, strict=True):
        if each.error is None:
            done += [Done(value) for value in each.value]
        else:
            alone, rows = replica.commit(group.fns, loud=[group.loud] * len(group.fns))
            done, heard = done + alone, heard | rows
    return done, heard


def _groups(fns: Sequence[Callable[[Any], Any]], loud: Sequence[bool]) -> Iterator[_Group]:
    def kind(index: int) -> tuple[object, bool]:
        fn = fns[index]
        return (fn.all if isinstance(fn, Alike) else index), loud[index]

    for (_, told), indexes in groupby(range(len(fns)), kind):
        yield _Group(tuple(fns[index] for index in indexes), told)
