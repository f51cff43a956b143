"""Do the signatures of writes that have just arrived hold?

Checking one takes longer than merging it, and needs no database: so it is done beside the merging, in the thread that
reads the message. What can't be checked yet, since its author's key has not come, the replica checks later.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.signatures.hashtree import Trees
from p2pqueue.replica.signatures.signing import Keyring


class Signatures:
    """The keys of authors, as far as they are known here. For one message, since what is unknown may come."""

    def __init__(self, replica: Replica, keyring: Keyring) -> None:
        self._replica = replica
        self._keyring = keyring
        self._keys: dict[bytes, bytes | None] = {}
        self._trees = Trees()

    def all_hold(self, authors: Sequence[bytes], bodies: Sequence[bytes], signatures: Sequence[bytes]) -> list[bool]:
        """Says of each body whether this author signed it; False too where that can't be said yet."""
        found: list[bool] = []
        start = 0
        for author, run in groupby(authors):
            end = start + len(list(run))
            key = self._key_of(author)
            found += [False] * (end - start) if key is None else self._trees.all_hold(key, bodies[start:end], signatures[start:end])
            start = end
        return found

    def _key_of(self, author: bytes) -> bytes | None:
        if author not in self._keys:
            self._keys[author] = self._replica.read(lambda connection: self._keyring.key_of(connection, author))
        return self._keys[author]
