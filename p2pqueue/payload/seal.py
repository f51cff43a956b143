"""How does a chunk become a shard, and a shard a chunk again?

A chunk's key is BLAKE3, keyed by the space key, over the BLAKE3 hash of its plaintext. So a key never seals two
different plaintexts, the nonce may be constant, and within a space equal chunks give equal shards. The shard's
address is the BLAKE3 hash of the ciphertext. The number of the algorithm and the version of the format are bound
as additional data.

A shard ends with its *tag*, by which whoever has the key tells a changed one. To see whether a file of one's own
still holds a chunk, sealing it under its old key and comparing the tag is enough, and saves the hash: another
plaintext has that tag with a chance of 2^-128 (AEGIS-256) or, in the largest chunk, 2^-84 (Poly1305). Whoever could
look for one would need the key, and would change his own device's file; who fetches the shard checks its address.

AEGIS-256 seals where the CPU has AES instructions; without them it is twenty times slower than
XChaCha20-Poly1305, which is taken then. Both are opened everywhere. Sealing goes into a kept buffer and without
the GIL through the library handle of PyNaCl; where that handle is missing, its public functions do.
"""

from __future__ import annotations

import functools
import importlib
import time
from dataclasses import dataclass
from typing import Any, Final

import nacl.bindings  # first: it initialises libsodium, which would otherwise run without the CPU's instructions
import nacl.exceptions
from blake3 import blake3

from p2pqueue.errors import BadShard
from p2pqueue.payload.format import AEGIS_256, KEY_SIZE, LARGEST_CHUNK, TAG_SIZES, XCHACHA20_POLY1305

_NAMES: Final = {AEGIS_256: "crypto_aead_aegis256", XCHACHA20_POLY1305: "crypto_aead_xchacha20poly1305_ietf"}
_NONCES: Final = {AEGIS_256: bytes(32), XCHACHA20_POLY1305: bytes(24)}
_BOUND: Final = {number: b"p2pq1 shard " + bytes([number]) for number in _NAMES}

Buffer = bytes | bytearray | memoryview


def _library() -> tuple[Any, Any]:
    try:
        module = importlib.import_module("nacl._sodium")
        ffi, lib = module.ffi, module.lib
        for name in _NAMES.values():
            getattr(lib, f"{name}_encrypt"), getattr(lib, f"{name}_decrypt")
    except (ImportError, AttributeError):
        return None, None
    return ffi, lib


_FFI, _LIB = _library()


@dataclass(frozen=True)
class Shard:
    """A sealed chunk. `body` lies in the sealer's buffer: it holds until the next chunk is sealed."""

    address: bytes
    key: bytes
    body: memoryview
    tag: bytes = b""  # with which the body ends; empty where it was sealed elsewhere


class Sealer:
    """Seals chunk after chunk of one space into one kept buffer. Not for two threads at once."""

    def __init__(self, space_key: bytes, *, algorithm: int | None = None, capacity: int = LARGEST_CHUNK) -> None:
        self.algorithm = preferred_algorithm() if algorithm is None else algorithm
        self._space_key = space_key
        self._out = memoryview(bytearray(capacity + TAG_SIZES[self.algorithm]))

    def seal(self, chunk: Buffer) -> Shard:
        """The shard of a chunk of 1 byte up to the capacity."""
        key = chunk_key(self._space_key, chunk)
        body = self._out[: len(chunk) + TAG_SIZES[self.algorithm]]
        seal_into(self.algorithm, key, chunk, body)
        return Shard(blake3(body).digest(), key, body, bytes(body[len(chunk) :]))


def chunk_key(space_key: bytes, chunk: Buffer) -> bytes:
    """The key that seals a chunk in a space. It also proves the plaintext of a chunk whose key is known."""
    return blake3(blake3(chunk).digest(), key=space_key).digest()


def seal_into(algorithm: int, key: bytes, chunk: Buffer, out: memoryview) -> None:
    """Seals a chunk into `out`, which is longer by the tag."""
    if _LIB is None:
        out[:] = getattr(nacl.bindings, f"{_NAMES[algorithm]}_encrypt")(bytes(chunk), _BOUND[algorithm], _NONCES[algorithm], key)
        return
    written = _FFI.new("unsigned long long *")
    bound = _BOUND[algorithm]
    getattr(_LIB, f"{_NAMES[algorithm]}_encrypt")(
        _FFI.from_buffer("unsigned char[]", out, require_writable=True), written,
        _FFI.from_buffer("unsigned char[]", chunk), len(chunk),
        bound, len(bound), _FFI.NULL, _NONCES[algorithm], key,
    )  # fmt: skip


def open_into(algorithm: int, key: bytes, shard: Buffer, out: memoryview) -> int:
    """Opens a shard into `out` and tells the length of its chunk. Raises `BadShard` when the key doesn't fit."""
    if algorithm not in _NAMES:
        raise BadShard(f"A shard is sealed by algorithm {algorithm}, which this version doesn't know; upgrade p2pqueue")
    size = len(shard) - TAG_SIZES[algorithm]
    if size < 0 or size > len(out):
        raise BadShard(f"A shard of {len(shard)} bytes where one of {len(out) + TAG_SIZES[algorithm]} was to be")
    if not _decrypt(algorithm, key, shard, out[:size]):
        raise BadShard("A shard fits its address but not its key: the manifest that names it is wrong")
    return size


def address_of(shard: Buffer) -> bytes:
    """The address of a shard: the BLAKE3 hash of the sealed bytes."""
    return blake3(shard).digest()


@functools.cache
def preferred_algorithm() -> int:
    """The algorithm that is fast on this CPU: AEGIS-256 with AES instructions, which a short trial shows anywhere."""
    return min(TAG_SIZES, key=_trial)


def _decrypt(algorithm: int, key: bytes, shard: Buffer, out: memoryview) -> bool:
    bound = _BOUND[algorithm]
    if _LIB is None:
        try:
            opened = getattr(nacl.bindings, f"{_NAMES[algorithm]}_decrypt")(bytes(shard), bound, _NONCES[algorithm], key)
        except nacl.exceptions.CryptoError:
            return False
        out[:] = opened
        return True
    written = _FFI.new("unsigned long long *")
    failed = getattr(_LIB, f"{_NAMES[algorithm]}_decrypt")(
        _FFI.from_buffer("unsigned char[]", out, require_writable=True), written, _FFI.NULL,
        _FFI.from_buffer("unsigned char[]", shard), len(shard),
        bound, len(bound), _NONCES[algorithm], key,
    )  # fmt: skip
    return bool(failed == 0)


def _trial(algorithm: int) -> float:
    chunk = bytes(32 * 1024)
    out = memoryview(bytearray(len(chunk) + TAG_SIZES[algorithm]))
    times = []
    for _ in range(3):  # the best of three, so that a busy machine doesn't decide
        start = time.perf_counter()
        seal_into(algorithm, bytes(KEY_SIZE), chunk, out)
        times.append(time.perf_counter() - start)
    return min(times)
