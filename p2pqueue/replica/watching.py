"""Which rows did other processes of this home change?

They write under the same author, so what they touched is what carries own numbers that weren't given out here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pqueue.replica.subscription import Rows

if TYPE_CHECKING:
    from p2pqueue.replica.replica import Replica

_OWN = "SELECT author, coalesce((SELECT max(seq) FROM commits), 0) FROM incarnation"
_TOUCHED = "SELECT tbl, key FROM changes INDEXED BY changes_by_author WHERE author = ? AND seq > ? AND seq <= ?"
_MOST = 5_000  # numbers; beyond, it is cheaper to look at everything


class Watch:
    """Follows the numbers and the version of the database; runs in the writer's thread."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._author, self._seen = replica.connection.execute(_OWN).fetchone()
        self._version = self._data_version()
        self.deferred = False  # at the last look that found something, changes were waiting to be carried out

    @property
    def number(self) -> tuple[bytes, int]:
        """The own author and its last number, as of the last look; from whatever thread."""
        return self._author, self._seen

    def look(self) -> list[Rows | None]:
        """What was committed elsewhere since the last look."""
        version = self._data_version()
        if version == self._version:
            self.deferred = False
            return []
        self._version = version
        self.deferred = self._replica.has_deferred(self._replica.connection)
        author, seq = self._replica.connection.execute(_OWN).fetchone()
        before, self._seen = self._seen, seq
        if author != self._author:
            self._author = author
            return [None]
        if self.deferred and seq == before:
            return []  # what was deferred is all there is, and has no number yet
        return [self._between(before, seq)]

    def after_own(self, *, quiet: bool) -> list[Rows | None]:
        """What was committed elsewhere before the transaction that just ended here; unless quiet, that one's rows too."""
        author, began, ended = self._replica.numbers
        before, self._seen = self._seen, ended
        if author != self._author:
            self._author = author
            return [None]
        found: list[Rows | None] = []
        if began > before:
            self._version = self._data_version()
            found.append(self._between(before, began))
        if not quiet:
            found.append(frozenset(self._replica.touched))
        return found

    def _between(self, before: int, seq: int) -> Rows | None:
        if not 0 < seq - before <= _MOST:
            return None
        rows: Rows = frozenset(self._replica.connection.execute(_TOUCHED, (self._author, before, seq)))
        return rows

    def _data_version(self) -> int:
        (version,) = self._replica.connection.execute("PRAGMA data_version").fetchone()
        return int(version)
