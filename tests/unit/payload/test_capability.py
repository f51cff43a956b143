"""The text of a manifest survives being copied, and says when it didn't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import MalformedMessage
from p2pqueue.payload.capability import Capability, parse_capability, unpack_capability
from p2pqueue.payload.format import ROOT_LIMIT

CAPABILITY = Capability(1, bytes(range(32)), bytes(range(32, 64)), 321)

capabilities = st.builds(
    Capability,
    st.integers(0, 255),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    st.integers(1, ROOT_LIMIT),
)


@given(capabilities)
def test_a_capability_survives_as_text_and_as_bytes(capability: Capability) -> None:
    assert parse_capability(capability.text) == capability
    assert parse_capability(f"  {capability.text.upper()}\n") == capability
    assert unpack_capability(capability.pack()) == capability


def test_the_text_is_one_word_of_known_length() -> None:
    assert CAPABILITY.text == (
        "p2pq1-aeaacaqdaqcqmbyibefawdanbyhraeiscmkbkfqxdamrugy4dupb6ibbeirsijjge4ucskrlfqws4lzqgezdgnbvgy3tqoj2hm6d2pr7aaaucbju"
    )
    assert len(CAPABILITY.text) == 118
    assert CAPABILITY.text.replace("-", "").isalnum()


@given(capabilities, st.data())
def test_a_mistyped_letter_is_told(capability: Capability, data: st.DataObject) -> None:
    place = data.draw(st.integers(6, 117))
    letter = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz234567"))
    text = capability.text[:place] + letter + capability.text[place + 1 :]
    if text != capability.text:
        try:
            parsed = parse_capability(text)
        except MalformedMessage as error:
            assert capability.text[6:] not in str(error)
        else:
            assert parsed != capability  # one in 65,536 slips through the check, and then names nothing


@pytest.mark.parametrize("text", ["", "clip.mov", "p2pq2-aaaa", "p2pq1-", "p2pq1-" + "a" * 111, "p2pq1-" + "a" * 113, "p2pq1-" + "é" * 112])
def test_what_is_no_manifest_is_refused_in_words(text: str) -> None:
    with pytest.raises(MalformedMessage, match="manifest"):
        parse_capability(text)


@pytest.mark.parametrize("size", [0, ROOT_LIMIT + 1])
def test_a_first_part_of_a_size_that_none_has_is_refused(size: int) -> None:
    packed = CAPABILITY.pack()[:-3] + size.to_bytes(3, "big")
    with pytest.raises(MalformedMessage, match="first part"):
        unpack_capability(packed)


def test_the_key_is_not_shown_by_accident() -> None:
    assert CAPABILITY.key.hex() not in repr(CAPABILITY)
    assert repr(CAPABILITY.key) not in repr(CAPABILITY)
