"""Frames of a connection: secret, whole, in order, in their direction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import MalformedMessage
from p2pqueue.net.sealing import TAG_SIZE, Opener, Sealer, SessionKeys

KEY, OTHER = bytes(range(32)), bytes(32)


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_what_was_sealed_opens_in_the_same_order(frames: list[bytes]) -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    sealed = [sealer.seal(frame) for frame in frames]
    assert [len(frame) for frame in sealed] == [len(frame) + TAG_SIZE for frame in frames]
    assert [opener.open(frame) for frame in sealed] == frames


def test_a_replayed_frame_fails() -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    first = sealer.seal(b"once")
    opener.open(first)
    with pytest.raises(MalformedMessage):
        opener.open(first)


def test_a_frame_that_was_overtaken_or_left_out_fails() -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    sealer.seal(b"first")
    with pytest.raises(MalformedMessage):
        opener.open(sealer.seal(b"second"))


def test_a_reflected_frame_fails() -> None:
    mine = SessionKeys(sending=KEY, receiving=OTHER)
    with pytest.raises(MalformedMessage):
        Opener(mine.receiving).open(Sealer(mine.sending).seal(b"mine"))


@given(st.binary(max_size=100))
def test_bytes_that_nobody_sealed_fail(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Opener(KEY).open(frame)


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_changed_bit_anywhere_fails(frame: bytes, data: st.DataObject) -> None:
    sealed = bytearray(Sealer(KEY).seal(frame))
    at = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[at // 8] ^= 1 << at % 8
    with pytest.raises(MalformedMessage):
        Opener(KEY).open(bytes(sealed))


def test_keys_are_not_shown() -> None:
    assert "\\x" not in repr(SessionKeys(sending=KEY, receiving=OTHER))
