"""How do the frames of one connection stay secret, whole and in order?

ChaCha20-Poly1305 with a key for each direction; the nonce is the number of the frame, which is never sent. So a frame
that was replayed, left out, moved, reflected or changed doesn't open, and the connection ends. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import nacl.bindings
from nacl.exceptions import CryptoError

from p2pqueue.errors import MalformedMessage

KEY_SIZE = 32  # bytes
TAG_SIZE = 16  # bytes that sealing adds
_LAST = 1 << 48  # frames under one key; a link of 64 KiB frames gets there after 16 EiB

_seal = nacl.bindings.crypto_aead_chacha20poly1305_ietf_encrypt
_open = nacl.bindings.crypto_aead_chacha20poly1305_ietf_decrypt


@dataclass(frozen=True)
class SessionKeys:
    """One key for each direction, from the view of the device that holds them."""

    sending: bytes = field(repr=False)
    receiving: bytes = field(repr=False)


class Sealer:
    """Seals frame after frame in one direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def seal(self, frame: bytes) -> bytes:
        """The sealed frame: `TAG_SIZE` bytes longer."""
        return _seal(frame, None, self._nonce(), self._key)

    def _nonce(self) -> bytes:
        if self._count >= _LAST:
            raise MalformedMessage("too many frames under one key")
        nonce = self._count.to_bytes(12, "little")
        self._count += 1
        return nonce


class Opener(Sealer):
    """Opens what the other side's `Sealer` sealed, in the same order."""

    def open(self, sealed: bytes) -> bytes:
        """The frame. Raises `MalformedMessage` where it isn't the next one of that side."""
        if len(sealed) < TAG_SIZE:
            raise MalformedMessage("a sealed frame that is shorter than its tag")
        try:
            return _open(sealed, None, self._nonce(), self._key)
        except CryptoError:
            raise MalformedMessage("a sealed frame that doesn't open") from None
