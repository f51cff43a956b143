"""How do two devices that share a short password come to share a strong key, and everybody else gets one guess?

SPAKE2 as in RFC 9382, over edwards25519 with SHA-256, HKDF and HMAC. Side A speaks first. M and N are the points of
that RFC, which nobody chose: `derive_point` finds them again. Pure but for the group: randomness is an argument.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from nacl import bindings

from p2pqueue.errors import MalformedMessage

SHARE_SIZE = 32  # bytes of a point
MAC_SIZE = 32  # bytes of a confirmation
Side = Literal["A", "B"]

M = bytes.fromhex("d048032c6ea0b6d697ddc2e86bda85a33adac920f1bf18e1b0c6d166a5cecdaf")
N = bytes.fromhex("d3bfb518f44f3430f29d0c92af503865a1ed3281dc69b35dd868ba85f886c4ab")
_COFACTOR = (8).to_bytes(32, "little")
_W = b"p2pqueue pairing password"


@dataclass(frozen=True)
class Agreed:
    """What both sides have after an exchange, if their passwords were the same. Its text form shows no key."""

    key: bytes = field(repr=False)  # 16 bytes, to derive others from
    confirmation: bytes = field(repr=False)  # to be sent to the other side
    _expected: bytes = field(repr=False)

    def confirms(self, confirmation: bytes) -> bool:
        """Says whether the other side has the same key, which it shows by this."""
        return hmac.compare_digest(confirmation, self._expected)


class Exchange:
    """One side of one exchange; `share` is what it sends."""

    def __init__(self, password: bytes, side: Side, *, random: Callable[[int], bytes]) -> None:
        self._side = side
        self._w = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(_W + password).digest())
        self._secret = bindings.crypto_core_ed25519_scalar_reduce(random(64))
        own, theirs = (M, N) if side == "A" else (N, M)
        self._their_mask = bindings.crypto_scalarmult_ed25519_noclamp(self._w, theirs)
        mask = bindings.crypto_scalarmult_ed25519_noclamp(self._w, own)
        self.share = bindings.crypto_core_ed25519_add(bindings.crypto_scalarmult_ed25519_base_noclamp(self._secret), mask)

    def finish(self, share: bytes, *, context: bytes) -> Agreed:
        """The outcome with the other side's share. `context` is public, and bound into the confirmations.

        Raises `MalformedMessage` for what is no point of the group of prime order.
        """
        if not is_share(share):
            raise MalformedMessage("a share that is no point of the group")
        try:
            theirs = bindings.crypto_core_ed25519_sub(share, self._their_mask)
            scalar = bindings.crypto_core_ed25519_scalar_mul(self._secret, _COFACTOR)
            point = bindings.crypto_scalarmult_ed25519_noclamp(scalar, theirs)
        except RuntimeError as error:  # the outcome would be the neutral element, whoever sent it
            raise MalformedMessage("a share that leads to no key") from error
        shares = (self.share, share) if self._side == "A" else (share, self.share)
        transcript = b"".join(len(each).to_bytes(8, "little") + each for each in (b"joiner", b"inviter", *shares, point, self._w))
        return _keys(transcript, context, self._side)


def is_share(share: bytes) -> bool:
    """Says whether these bytes are a point of the group of prime order: none of small order, and in its one form."""
    return len(share) == SHARE_SIZE and bindings.crypto_core_ed25519_is_valid_point(share)


def derive_point(seed: bytes) -> bytes:
    """The point that RFC 9382 derives from a seed: the first hash of a chain of SHA-256 that is one of prime order."""
    candidate = seed
    while True:
        candidate = hashlib.sha256(candidate).digest()
        if bindings.crypto_core_ed25519_is_valid_point(candidate):
            return candidate


def _keys(transcript: bytes, context: bytes, side: Side) -> Agreed:
    hashed = hashlib.sha256(transcript).digest()
    extracted = hmac.digest(bytes(32), hashed[16:], "sha256")
    keys = hmac.digest(extracted, b"ConfirmationKeys" + context + b"\x01", "sha256")
    of_a, of_b = (hmac.digest(key, transcript, "sha256") for key in (keys[:16], keys[16:]))
    own, theirs = (of_a, of_b) if side == "A" else (of_b, of_a)
    return Agreed(hashed[:16], own, theirs)
