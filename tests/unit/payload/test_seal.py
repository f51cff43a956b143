"""A chunk becomes a shard and comes back, by one library or the other, and never altered."""

from __future__ import annotations

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import BadShard
from p2pqueue.payload import seal
from p2pqueue.payload.format import AEGIS_256, TAG_SIZES, XCHACHA20_POLY1305
from p2pqueue.payload.seal import Sealer, address_of, chunk_key, open_into, preferred_algorithm
from tests.unit.payload.conftest import SPACE_KEY

BOTH = pytest.mark.parametrize("algorithm", [AEGIS_256, XCHACHA20_POLY1305])


def opened(algorithm: int, key: bytes, body: bytes | memoryview) -> bytes:
    out = memoryview(bytearray(len(body)))
    return bytes(out[: open_into(algorithm, key, body, out)])


@BOTH
@given(chunk=st.binary(min_size=1, max_size=300))
def test_what_was_sealed_opens_again(algorithm: int, chunk: bytes) -> None:
    shard = Sealer(SPACE_KEY, algorithm=algorithm, capacity=300).seal(chunk)
    assert len(shard.body) == len(chunk) + TAG_SIZES[algorithm]
    assert shard.address == address_of(shard.body)
    assert opened(algorithm, shard.key, shard.body) == chunk


@BOTH
def test_the_format_stands(algorithm: int) -> None:
    """Shards are exchanged between versions: these values must never change."""
    shard = Sealer(SPACE_KEY, algorithm=algorithm).seal(b"hello")
    assert shard.key == blake3(blake3(b"hello").digest(), key=SPACE_KEY).digest()
    expected = {
        AEGIS_256: "52655a285aae5cd246c37ecd258ba6417a697fb872df5e8708d6acea39abc692",
        XCHACHA20_POLY1305: "f614ccdea2eac9042e6c975f6fab28b39f7ef2d7eeeb7272a6926493a51893cf",
    }
    assert shard.address.hex() == expected[algorithm]


@BOTH
def test_the_public_functions_of_the_library_give_the_same_bytes(algorithm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Sealer(SPACE_KEY, algorithm=algorithm).seal(b"the same")
    fast_body = bytes(fast.body)
    monkeypatch.setattr(seal, "_LIB", None)
    slow = Sealer(SPACE_KEY, algorithm=algorithm).seal(b"the same")
    assert bytes(slow.body) == fast_body
    assert opened(algorithm, fast.key, fast_body) == b"the same"
    with pytest.raises(BadShard):
        opened(algorithm, fast.key, bytes(fast_body[:-1]) + b"?")


@BOTH
@pytest.mark.parametrize("place", [0, 3, -1])
def test_one_changed_bit_is_noticed(algorithm: int, place: int) -> None:
    shard = Sealer(SPACE_KEY, algorithm=algorithm).seal(b"some bytes")
    body = bytearray(shard.body)
    body[place] ^= 1
    with pytest.raises(BadShard):
        opened(algorithm, shard.key, bytes(body))


def test_a_shard_of_one_algorithm_is_none_of_the_other() -> None:
    shard = Sealer(SPACE_KEY, algorithm=AEGIS_256).seal(bytes(64))
    with pytest.raises(BadShard):
        opened(XCHACHA20_POLY1305, shard.key, shard.body)


@pytest.mark.parametrize(
    ("algorithm", "size"), [(9, 40), (AEGIS_256, 0), (AEGIS_256, 31), (AEGIS_256, 200)], ids=["unknown", "empty", "no tag", "too long"]
)
def test_what_can_be_no_shard_is_refused_in_words(algorithm: int, size: int) -> None:
    with pytest.raises(BadShard, match="shard"):
        open_into(algorithm, bytes(32), bytes(size), memoryview(bytearray(100)))


def test_equal_chunks_are_equal_shards_in_one_space_and_different_ones_in_two() -> None:
    first, again, other = (Sealer(key).seal(b"chunk").address for key in (SPACE_KEY, SPACE_KEY, bytes(32)))
    assert first == again != other


def test_a_key_proves_the_plaintext_of_its_chunk() -> None:
    shard = Sealer(SPACE_KEY).seal(b"chunk")
    assert chunk_key(SPACE_KEY, b"chunk") == shard.key != chunk_key(SPACE_KEY, b"chunK")


def test_the_algorithm_is_the_one_that_is_fast_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "_trial", lambda algorithm: {AEGIS_256: 2.0, XCHACHA20_POLY1305: 1.0}[algorithm])
    preferred_algorithm.cache_clear()
    try:
        assert preferred_algorithm() == XCHACHA20_POLY1305
    finally:
        preferred_algorithm.cache_clear()
