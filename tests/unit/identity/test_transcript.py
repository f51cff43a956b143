"""A sealed text opens once, on the other side, in the same conversation."""

from __future__ import annotations

import pytest

from p2pqueue.errors import MalformedMessage
from p2pqueue.identity.transcript import Transcript

KEY = b"k" * 16


def both(*, said: tuple[bytes, bytes] = (b"same", b"same")) -> tuple[Transcript, Transcript]:
    pair = Transcript("A"), Transcript("B")
    for each in pair:
        each.agree(KEY)
    for each, heard in zip(pair, said, strict=True):
        each.said(heard)
    return pair


def test_texts_open_in_the_order_in_which_they_were_said() -> None:
    a, b = both()
    assert b.open(a.seal(b"one")) == b"one"
    assert a.open(b.seal(b"two")) == b"two"
    assert b.open(a.seal(b"")) == b""
    assert a.digest == b.digest


def test_a_text_doesnt_open_where_something_else_was_said_before() -> None:
    a, b = both(said=(b"member", b"owner"))
    with pytest.raises(MalformedMessage):
        b.open(a.seal(b"text"))


def test_a_text_opens_neither_twice_nor_on_its_own_side_nor_out_of_order() -> None:
    a, b = both()
    sealed = a.seal(b"one")
    with pytest.raises(MalformedMessage):
        a.open(sealed)
    assert b.open(sealed) == b"one"
    with pytest.raises(MalformedMessage):
        b.open(sealed)
    a, b = both()
    a.seal(b"one")
    with pytest.raises(MalformedMessage):
        b.open(a.seal(b"two"))


def test_parts_can_not_be_moved_from_one_to_the_next() -> None:
    a, b = Transcript("A"), Transcript("B")
    a.said(b"ab", b"c")
    b.said(b"a", b"bc")
    assert a.digest != b.digest
