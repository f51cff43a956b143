"""Signed steps towards a direct connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue import wire
from p2pqueue.errors import BadSignature, MalformedMessage, PeerError
from p2pqueue.net.notes import Signalling
from p2pqueue.net.signalling import Ends, Step
from tests.unit.net.kit import Space

ONE, TWO = Space().identities("one", "two")
FIRST = Ends(ONE.device_id, TWO.device_id, TWO.public_key, ONE.sign)
SECOND = Ends(TWO.device_id, ONE.device_id, ONE.public_key, TWO.sign)
STEP = Step("offer", "control", 7, b"signal")


def test_a_step_comes_back_and_the_lower_id_offers() -> None:
    assert SECOND.read_step(FIRST.sign_step(STEP)) == STEP
    assert (FIRST.offers, SECOND.offers) == (True, False)


def test_a_step_that_somebody_else_signed_or_that_was_meant_for_others_is_refused() -> None:
    note = FIRST.sign_step(STEP)
    with pytest.raises(BadSignature):
        FIRST.read_step(note)  # reflected
    with pytest.raises(BadSignature):
        SECOND.read_step(Signalling(note.body + b"x", note.signature))
    third = Space().identity("third")
    with pytest.raises(BadSignature):
        Ends(third.device_id, ONE.device_id, ONE.public_key, third.sign).read_step(note)


def test_a_step_of_a_later_version_is_ignored_and_nonsense_is_refused() -> None:
    def signed(body: object) -> Signalling:
        packed = wire.pack(body)
        covered = b"p2pqueue direct connection: a step is signed\0" + bytes.fromhex(ONE.device_id) + bytes.fromhex(TWO.device_id) + packed
        return Signalling(packed, ONE.sign(covered))

    assert SECOND.read_step(signed(["later", "control", 1, b""])) is None
    assert SECOND.read_step(signed(["offer", "video", 1, b""])) is None
    bad = [["offer", "control", -1, b""], ["offer", "control", 1 << 62, b""], ["offer", "control", 1, bytes(5000)]]
    for body in ([], ["offer"], {"a": 1}, *bad):
        with pytest.raises(MalformedMessage):
            SECOND.read_step(signed(body))


@given(st.binary(max_size=200), st.binary(min_size=64, max_size=64))
def test_any_bytes_are_refused(body: bytes, signature: bytes) -> None:
    with pytest.raises(PeerError):
        SECOND.read_step(Signalling(body, signature))
