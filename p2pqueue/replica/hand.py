"""How does this device sign what it writes?

Many bodies are signed in a second thread while their rows go into SQLite, and in both once these are there: the key's
arithmetic needs no lock of the interpreter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from nacl._sodium import ffi, lib  # type: ignore[import-not-found]  # what `nacl.bindings` goes through
from nacl.bindings import crypto_sign

from p2pqueue.replica.merged import Signer

_SIGNATURE_SIZE = 64  # bytes
_SMALL_BODY = 4096  # bytes
_MANY = 16  # bodies from which on a thread is worth its hop


class Hand:
    """Signs with the key of one device; for one thread at a time."""

    def __init__(self, signer: Signer) -> None:
        self.sign = fast_signer(signer)
        self._sign_beside = fast_signer(signer)
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, bodies: Sequence[bytes]) -> Callable[[], list[bytes]]:
        """Begins to sign these bodies; what it gives signs those that are left, and waits for the others."""
        left = deque(range(len(bodies)))
        signatures = [b""] * len(bodies)
        beside = self._beside(lambda: _sign(bodies, left.popleft, self._sign_beside, signatures)) if len(bodies) >= _MANY else None

        def finish() -> list[bytes]:
            _sign(bodies, left.pop, self.sign, signatures)
            if beside is not None:
                beside.result()
            return signatures

        return finish

    def _beside(self, fn: Callable[[], None]) -> Future[None] | None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="p2pqueue-sign")
        try:
            return self._thread.submit(fn)
        except RuntimeError:  # the interpreter ends: it takes no more
            return None

    def close(self) -> None:
        """Lets the thread end."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)


def _sign(bodies: Sequence[bytes], take: Callable[[], int], sign: Callable[[bytes], bytes], signatures: list[bytes]) -> None:
    """Signs bodies as long as there is a place to take."""
    try:
        while True:
            place = take()
            signatures[place] = sign(bodies[place])
    except IndexError:
        return


def fast_signer(signer: Signer) -> Callable[[bytes], bytes]:
    """Signs with the key at hand, for one thread at a time: half the time of going through the key's object for every write."""
    signing = getattr(signer, "signing", None)
    if signing is None:
        return signer.sign
    secret = bytes(signing) + signer.public_key
    # What `nacl.bindings.crypto_sign` does, without its two buffers and three copies for each signature.
    signed = ffi.new("unsigned char[]", _SIGNATURE_SIZE + _SMALL_BODY)
    signature = ffi.buffer(signed, _SIGNATURE_SIZE)
    sign_into, no_length = lib.crypto_sign, ffi.NULL

    def sign(body: bytes) -> bytes:
        size = len(body)
        if size > _SMALL_BODY or sign_into(signed, no_length, body, size, secret):
            return crypto_sign(body, secret)[:_SIGNATURE_SIZE]
        made: bytes = signature[:]
        return made

    return sign
