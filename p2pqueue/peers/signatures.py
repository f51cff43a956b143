"""Do the signatures of writes that have just arrived hold?

Checking one takes longer than merging it, and needs no database: so it is done beside the merging, in the thread that
reads the message. What can't be checked yet, since its author's key has not come, the replica checks later.
"""

from __future__ import annotations

from p2pqueue.replica.hashtree import Trees
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.signing import Keyring


class Signatures:
    """The keys of authors, as far as they are known here. For one message, since what is unknown may come."""

    def __init__(self, replica: Replica, keyring: Keyring) -> None:
        self._replica = replica
        self._keyring = keyring
        self._keys: dict[bytes, bytes | None] = {}
        self._trees = Trees()

    def holds(self, author: bytes, body: bytes, signature: bytes) -> bool:
        """Says whether this author signed this body; False too where that can't be said yet."""
        if author not in self._keys:
            self._keys[author] = self._replica.read(lambda connection: self._keyring.key_of(connection, author))
        key = self._keys[author]
        return key is not None and self._trees.holds(key, body, signature)
