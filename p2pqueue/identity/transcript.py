"""How is every message of a pairing bound to all that was said before it, and sealed once there is a key?

Both sides hash what is said, the same on both, in the order in which it was said. A sealed text opens only where that
hash is the same; so whatever was changed, left out, repeated or sent back ends the pairing. Pure.
"""

from __future__ import annotations

from blake3 import blake3
from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_decrypt,
    crypto_aead_chacha20poly1305_ietf_encrypt,
    crypto_aead_chacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from p2pqueue.errors import MalformedMessage
from p2pqueue.identity.spake2 import Side

_CONTEXT = b"p2pqueue pairing transcript\0"
_KEYS = {side: f"p2pqueue 2026-01 pairing: the key under which side {side} seals" for side in ("A", "B")}


class Transcript:
    """What was said so far in one pairing, as one side has it."""

    def __init__(self, side: Side) -> None:
        self._hash = blake3(_CONTEXT)
        self._side = side
        self._keys: dict[str, bytes] = {}
        self._counts = {"A": 0, "B": 0}

    @property
    def digest(self) -> bytes:
        """The hash of all that was said: 32 bytes."""
        return self._hash.digest()

    def said(self, *parts: bytes) -> None:
        """Takes something in that both sides know."""
        for part in parts:
            self._hash.update(len(part).to_bytes(4, "big") + part)

    def agree(self, key: bytes) -> None:
        """From now on texts can be sealed, under a key of its own for each side."""
        self._keys = {side: blake3(key + self.digest, derive_key_context=context).digest() for side, context in _KEYS.items()}

    def seal(self, text: bytes) -> bytes:
        """Seals a text of this side, bound to all that was said; it counts as said."""
        sealed = crypto_aead_chacha20poly1305_ietf_encrypt(text, self.digest, self._nonce(self._side), self._keys[self._side])
        self.said(text, sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        """The other side's text. Raises `MalformedMessage` where it says this in another conversation, or isn't the other side."""
        other = "B" if self._side == "A" else "A"
        try:
            text = crypto_aead_chacha20poly1305_ietf_decrypt(sealed, self.digest, self._nonce(other), self._keys[other])
        except (CryptoError, ValueError, TypeError) as error:
            raise MalformedMessage("a sealed text that doesn't belong here") from error
        self.said(text, sealed)
        return text

    def _nonce(self, side: str) -> bytes:
        self._counts[side] += 1
        return self._counts[side].to_bytes(crypto_aead_chacha20poly1305_ietf_NPUBBYTES, "big")
