"""Whose hand does a signed write bear?

A signed register carries Ed25519 over the canonical MessagePack of (table, key, register, stamp, seq, values).
The key is found through the row of `authors` that ties an author to its device, and the device's certificate.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgpack

from p2pqueue.errors import BadSignature, MalformedMessage, P2PQueueError
from p2pqueue.identity.certificate import device_id, read_certificate
from p2pqueue.replica.merging.merged import Signer
from p2pqueue.replica.signatures.bodies import body_of, write_from_body
from p2pqueue.replica.signatures.hashtree import Trees, is_signature
from p2pqueue.replica.write import Write

UNKNOWN_AUTHOR = "the key of its author isn't known here yet"
_CERTIFYING = ("owner", "admin")


class Keyring:
    """The public keys of authors, as far as their rows are here and hold."""

    def __init__(self, signer: Signer) -> None:
        self._own = (signer.device_id, signer.public_key)
        self._root: bytes | None = getattr(signer, "root_public", None)
        self._by_author: dict[bytes, bytes] = {}
        self._trees = Trees()

    def forget(self) -> None:
        """Drops what was learned in a transaction that was rolled back."""
        self._by_author.clear()

    def problem(self, connection: sqlite3.Connection, write: Write) -> str | None:
        """What is wrong with a signed write, in words; None if its signature holds."""
        if write.body is None or write.signature is None:
            return "it bears no signature"
        problem = mismatch(write)
        if problem is not None:
            return problem
        if (write.table, write.register) == ("devices", "cert"):
            return self._certificate_problem(connection, write)
        if (write.table, write.register) == ("authors", "author"):
            return self._author_problem(connection, write)
        key = self.key_of(connection, write.stamp.author)
        if key is None:
            return UNKNOWN_AUTHOR
        return self._signature_problem(key, write)

    def key_of(self, connection: sqlite3.Connection, author: bytes) -> bytes | None:
        """The public key that an author signs with, None as long as its rows aren't here or don't hold."""
        known = self._by_author.get(author)
        if known is not None:
            return known
        row = connection.execute(
            "SELECT body, signature, verified FROM changes WHERE tbl = 'authors' AND key = ? AND register = 'author'", (author.hex(),)
        ).fetchone()
        if row is None:
            return None
        try:
            write = write_from_body(row[0], row[1])
        except MalformedMessage:
            return None
        if not row[2] and self._author_problem(connection, write) is not None:
            return None
        key = self._device_key(connection, write.values[0])
        if key is not None:
            self._by_author[author] = key
        return key

    def _device_key(self, connection: sqlite3.Connection, device: Any) -> bytes | None:
        if device == self._own[0]:
            return self._own[1]
        row = connection.execute("SELECT public_key FROM devices WHERE id = ?", (device,)).fetchone()
        return None if row is None else row[0]

    def _author_problem(self, connection: sqlite3.Connection, write: Write) -> str | None:
        if write.key != write.stamp.author.hex():
            return "an author's row is written under another author"
        (device,) = write.values
        standing = connection.execute(
            "SELECT body, signature FROM changes WHERE tbl = 'authors' AND key = ? AND register = 'author' AND verified = 1", (write.key,)
        ).fetchone()
        if standing is not None and write_from_body(*standing).values != write.values:
            return "an author can't pass to another device"
        key = self._device_key(connection, device)
        return UNKNOWN_AUTHOR if key is None else self._signature_problem(key, write)

    def _certificate_problem(self, connection: sqlite3.Connection, write: Write) -> str | None:
        key, _, _, certificate = write.values
        if not isinstance(key, bytes) or device_id(key) != write.key:
            return "the certificate's key is not that of its device"
        if self._root is not None:
            problem = self._chain_problem(connection, key, certificate)
            if problem is not None:
                return problem
        if self._signature_problem(key, write) is None:
            return None
        author = self.key_of(connection, write.stamp.author)
        return UNKNOWN_AUTHOR if author is None else self._signature_problem(author, write)

    def _signature_problem(self, key: bytes, write: Write) -> str | None:
        fits = self._trees.holds(key, write.body or b"", write.signature or b"")
        return None if fits else "its signature doesn't fit"

    def _chain_problem(self, connection: sqlite3.Connection, key: bytes, certificate: Any) -> str | None:
        try:
            read = read_certificate(certificate if isinstance(certificate, bytes) else b"")
        except (MalformedMessage, BadSignature) as error:
            return str(error)
        if read.public_key != key:
            return "the certificate is another device's"
        if read.issuer == self._root:
            return None
        issuer = connection.execute("SELECT role FROM devices WHERE public_key = ?", (read.issuer,)).fetchone()
        if issuer is None or issuer[0] not in _CERTIFYING:
            return "the certificate's issuer may not certify devices of this space"
        return None


def mismatch(write: Write) -> str | None:
    """Says in words whether a signed body says something else than the write that carries it."""
    if write.body is None or not is_signature(write.signature):
        return "it bears no signature"
    try:
        if body_of(write.table, write.key, write.register, write.stamp, write.seq, write.values) == write.body:
            return None  # as it is canonical
        said = msgpack.unpackb(write.body, strict_map_key=False)
        expected = [write.table, write.key, write.register, list(write.stamp), write.seq, list(write.values)]
        return None if said == expected else "its signed body says something else"
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException, P2PQueueError):
        return "its signed body can't be read"
