"""In which transactions do the functions run that writers have handed in?

Neighbours share one, each under a savepoint of its own; one that takes the whole replica makes its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from p2pqueue.replica.merging.alike import run_together
from p2pqueue.replica.merging.merged import Done
from p2pqueue.replica.subscription import Rows

if TYPE_CHECKING:
    from p2pqueue.replica.replica import Replica
    from p2pqueue.replica.watching import Watch
    from p2pqueue.replica.writer import Writer

Then = Callable[[Done], object]  # called in the loop with what became of a function


class Companion(Protocol):
    """Who writes along with others, and hears of what they wrote before anybody is answered; in the loop."""

    def join(self, *, loud: bool) -> tuple[Callable[[Writer], Any], Then] | None:
        """A function for the end of the transaction that begins now; `loud`: others write in it."""

    def news(self, rows: Rows | None, *, seen: bool) -> None:
        """Rows that others wrote (None: it isn't known which); `seen`: those who were asked to join saw them."""


class Change:
    """A function that waits for its transaction."""

    __slots__ = ("fn", "looks", "quiet", "then", "whole")

    def __init__(self, fn: Callable[[Any], Any], then: Then, *, quiet: bool = True, whole: bool = False, looks: bool = False) -> None:
        self.fn = fn
        self.then = then
        self.looks = looks  # it is the companion's, and sees what the others wrote
        self.quiet = quiet
        self.whole = whole  # it makes a transaction of its own, and takes the replica


class Committed:
    """What a transaction came to, whose writers are still to be answered."""

    __slots__ = ("answers", "changes", "seen", "touched")

    def __init__(self, changes: list[Change], answers: list[Done], touched: list[Rows | None], seen: bool) -> None:
        self.changes = changes
        self.answers = answers
        self.touched = touched
        self.seen = seen  # the companion saw what others wrote

    @property
    def is_hurried(self) -> bool:
        """Says whether the companion waits for it, who goes on without the disk."""
        return any(change.looks for change in self.changes)

    def answer_companion(self) -> None:
        """Tells the companion: what it claimed shall start at once."""
        for change, done in zip(self.changes, self.answers, strict=True):
            if change.looks:
                change.then(done)

    def answer(self, failure: Exception | None) -> None:
        """Tells the others, all of them if what they wrote is not durable."""
        failed = Done(error=failure) if failure is not None else None
        for change, done in zip(self.changes, self.answers, strict=True):
            if not change.looks:
                change.then(failed or done)


def commit(replica: Replica, watch: Watch, changes: list[Change]) -> tuple[list[Done], list[Rows | None]]:
    """Runs changes, neighbours in one transaction; gives what became of each, and the rows to tell of. In the writer's thread."""
    answers: list[Done] = []
    touched: list[Rows | None] = []
    start = 0
    while start < len(changes):
        end = start + 1
        if not changes[start].whole:
            while end < len(changes) and not changes[end].whole:
                end += 1
        done, rows = _commit_part(replica, watch, changes[start:end])
        answers += done
        touched += rows
        start = end
    return answers, touched


def _commit_part(replica: Replica, watch: Watch, changes: list[Change]) -> tuple[list[Done], list[Rows | None]]:
    try:
        if changes[0].whole:
            done = [_attempt(changes[0].fn, replica)]
            return done, watch.after_own(quiet=False)
        done, loud = run_together(replica, [change.fn for change in changes], loud=[not change.quiet for change in changes])
    except Exception as error:  # noqa: BLE001 - each caller gets it
        return [Done(error=error)] * len(changes), []
    return done, [loud, *watch.after_own(quiet=True)]


def _attempt(fn: Callable[[Replica], Any], replica: Replica) -> Done:
    try:
        return Done(fn(replica))
    except Exception as error:  # noqa: BLE001 - its caller gets it
        return Done(error=error)
