"""A pairing code survives the ways in which people write it, and a slip is noticed before the one guess is used."""

from __future__ import annotations

import os
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import ArgumentError
from p2pqueue.identity import codes
from p2pqueue.identity.codes import Code
from p2pqueue.identity.words import FIRST, SECOND

VELVET = Code("7", "orbit", "velvet")


@pytest.mark.parametrize(
    "typed",
    [
        "7-orbit-velvet",
        "7 orbit velvet",
        "  7-ORBIT-Velvet\n",
        "7_orbit.velvet",
        "07-orbit-velvet",
        "7-velvet-orbit",  # the lists share no word, so their order tells nothing
        "7-orb-velv",
        "7 – orbit – velvet",
    ],
)
def test_a_code_is_understood_however_it_is_typed(typed: str) -> None:
    assert codes.parse(typed) == VELVET


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("", "a code is a number and two words"),
        ("orbit-velvet", "a code is a number and two words"),
        ("7-orbit", "a code is a number and two words"),
        ("7-orbit-velvet-acorn", "a code is a number and two words"),
        ("0-orbit-velvet", "begins with a number from 1"),
        ("1000-orbit-velvet", "begins with a number from 1"),
        ("²-orbit-velvet", "begins with a number from 1"),
        ("x-orbit-velvet", "begins with a number from 1"),
        ("7-orbut-velvet", "perhaps orbit"),
        ("7-or-velvet", "perhaps orbit or orchid"),
        ("7-orbit-qqqqq", "is no word of a code"),
        ("7-" + "a" * 5000, "This is no code"),
    ],
)
def test_a_slip_is_told_before_the_guess_is_used(typed: str, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        codes.parse(typed)


@given(st.binary(min_size=10, max_size=10))
def test_every_code_that_is_made_is_understood(drawn: bytes) -> None:
    made = codes.make(lambda size: drawn[:size])
    assert codes.parse(made.text) == made
    assert codes.parse_link(codes.link(made, ["10.0.0.7:7433", "[fd00::1]:7433"])) == (made, ("10.0.0.7:7433", "[fd00::1]:7433"))
    assert codes.parse_link(codes.link(made, [])) == (made, ())


@given(st.text(max_size=80))
def test_whatever_is_typed_is_a_code_or_an_error_in_words(typed: str) -> None:
    try:
        assert codes.parse(typed).first in FIRST
    except ArgumentError as error:
        assert str(error)


def test_the_lists_hold_256_words_each_that_are_easily_told_apart() -> None:
    assert len(set(FIRST)) == len(set(SECOND)) == 256
    assert not set(FIRST) & set(SECOND)
    assert all(word.isascii() and word.isalpha() and word.islower() and 4 <= len(word) <= 8 for word in FIRST + SECOND)
    for words in (FIRST, SECOND):
        assert len({word[:4] for word in words}) == 256
    assert [pair for pair in combinations(FIRST + SECOND, 2) if one_slip_apart(*pair)] == []


def one_slip_apart(one: str, other: str) -> bool:
    """Says whether one letter put in, left out or mistaken makes one word the other."""
    if len(one) == len(other):
        return sum(a != b for a, b in zip(one, other, strict=True)) == 1
    short, long = sorted((one, other), key=len)
    return len(long) - len(short) == 1 and any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def test_a_code_shows_no_word_where_it_might_be_logged() -> None:
    made = codes.make(os.urandom)
    assert made.first not in repr(made)
    assert made.second not in repr(made)


def test_the_words_of_a_code_are_completed() -> None:
    assert codes.complete("7-orb") == ["7-orbit"]
    assert codes.complete("7-orbit-velv") == ["7-orbit-velvet"]
    assert codes.complete("7-") == codes.complete("orb") == codes.complete("") == codes.complete("7-orbit-velvet-a") == []
